//! Compares vector, full-text and filtered searches of tables that are changed at random with the searches of Lance's
//! own scanner.

use std::collections::BTreeSet;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    Array, AsArray, FixedSizeListArray, Float32Array, RecordBatch, RecordBatchIterator,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Float32Type, UInt64Type};
use lake::{
    AllowedBy, DistanceHit, IndexRequest, Metric, PlanReason, Table, VectorIndex, VectorIndexKind,
    VectorQuery, VectorRoute, build_index,
};
use lance::Dataset;
use lance::dataset::UpdateBuilder;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;
use lance_index::vector::ApproxMode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{PLAIN, STABLE_IDS, TableKind, TablePlace, lake, rows, vector, write};
use crate::text_forms::compare_text;
use crate::vectors::distance;

/// The number of changes of a table.
const STEPS: usize = 6;

/// A table with a vector index, which is changed at random.
struct History {
    place: TablePlace,
    random: StdRng,
    next_id: usize,
}

impl History {
    async fn begin(kind: TableKind, index: VectorIndexKind, metric: Metric, seed: u64) -> Self {
        let place = TablePlace::new();
        write(&place.uri(), &[some_null(&rows(0, 400)), some_null(&rows(400, 600))], kind).await;
        let request = VectorIndex {
            column: "vector".into(),
            kind: index,
            metric,
            // Then Lance makes 8 partitions for IVF_RQ, whose segments are all so small that they are searched as one,
            // and 2 for IVF_PQ, whose first segment is searched by itself.
            partitions: Some(8),
            // With one code per vector, the default for this dimension, rows share codes. Which of those rows become
            // candidates for the exact comparison would then be arbitrary.
            sub_vectors: (index == VectorIndexKind::IvfPq).then_some(8),
            ..Default::default()
        };
        let request = IndexRequest::Vector(request);
        build_index(&lake(), &place.uri(), &request, |_| ()).await.unwrap();
        let btree = IndexRequest::Scalar { column: "id".into() };
        build_index(&lake(), &place.uri(), &btree, |_| ()).await.unwrap();
        for column in ["text", "name"] {
            let text = IndexRequest::Text { column: column.into(), positions: true };
            build_index(&lake(), &place.uri(), &text, |_| ()).await.unwrap();
        }
        Self { place, random: StdRng::seed_from_u64(seed), next_id: 600 }
    }

    async fn dataset(&self) -> Dataset {
        Dataset::open(&self.place.uri()).await.unwrap()
    }

    /// Makes change number `step` of the table and returns its name. In each history, the first two changes are an
    /// append and a further index segment.
    async fn step(&mut self, step: usize) -> &'static str {
        let mut dataset = self.dataset().await;
        let change = match step {
            0 => 0,
            1 => 1,
            _ => self.random.random_range(0..5),
        };
        match change {
            0 => {
                let rows = self.random.random_range(1..120);
                let batch = some_null(&rows_from(&mut self.next_id, rows));
                let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
                dataset.append(reader, None).await.unwrap();
                "append"
            }
            1 => {
                dataset.optimize_indices(&OptimizeOptions::append()).await.unwrap();
                "a further index segment"
            }
            2 => {
                let (of, rest) = (self.random.random_range(3..30), self.random.random_range(0..3));
                dataset.delete(&format!("id % {of} = {rest}")).await.unwrap();
                "delete"
            }
            3 => {
                let update = UpdateBuilder::new(Arc::new(dataset));
                let filter = format!("id % {} = 1", self.random.random_range(5..40));
                let update = update.update_where(&filter).unwrap().set("name", "'new'").unwrap();
                update.build().unwrap().execute().await.unwrap();
                "update"
            }
            _ => {
                let options =
                    CompactionOptions { target_rows_per_fragment: 500, ..Default::default() };
                compact_files(&mut dataset, options, None).await.unwrap();
                "compaction"
            }
        }
    }
}

fn rows_from(next: &mut usize, count: usize) -> RecordBatch {
    *next += count;
    rows(*next - count, *next)
}

/// Makes the vector of every thirteenth row null.
fn some_null(batch: &RecordBatch) -> RecordBatch {
    let at = batch.schema().index_of("vector").unwrap();
    let (field, size, values, _) = batch.column(at).as_fixed_size_list().clone().into_parts();
    let valid: Vec<bool> = (0..batch.num_rows()).map(|row| row % 13 != 5).collect();
    let vectors = FixedSizeListArray::new(field, size, values, Some(NullBuffer::from(valid)));
    let mut columns = batch.columns().to_vec();
    columns[at] = Arc::new(vectors);
    RecordBatch::try_new(batch.schema(), columns).unwrap()
}

/// Asserts that two searches found the same rows with the same distances, up to a relative error of 1e-4. The searches
/// may differ in rows that tie with the last one, and in `strays_max` further rows.
fn assert_same(found: &[DistanceHit], expected: &[DistanceHit], strays_max: usize, context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}");
    let distinct: BTreeSet<_> = found.iter().map(|hit| hit.addr).collect();
    assert_eq!(found.len(), distinct.len(), "{context}");
    // If a dot-product distance is near 0, it is the difference of two rounded numbers near 1, so its relative error
    // may be large. Below 1e-2, an absolute error of 1e-6 is allowed instead.
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-4 * a.abs().max(b.abs()).max(1e-2);
    let last = expected.last().map_or(0.0, |hit| hit.distance);
    let mut strays = Vec::new();
    for hit in found {
        match expected.iter().find(|it| it.addr == hit.addr) {
            Some(same) => {
                assert!(near(hit.distance, same.distance), "{context}: {hit:?}, {same:?}")
            }
            None if near(hit.distance, last) => {}
            None => strays.push(hit),
        }
    }
    assert!(strays.len() <= strays_max, "{context}: {strays:?}, but the last is {last}");
}

/// Returns the maximum number of rows by which a direct search of an index may differ from a planned one. IVF_RQ skips
/// rows that are probably too far, judged by the nearest rows that it has found so far. A wider search, or one that
/// meets the rows in another order, may skip other rows.
fn strays_max(index: VectorIndexKind) -> usize {
    if index == VectorIndexKind::IvfRq { 2 } else { 0 }
}

/// Returns what Lance finds by its plan: in its accurate mode if several `segments` of IVF_RQ were searched as one, which
/// is done in that mode.
async fn planned(
    table: &Table,
    dataset: &Dataset,
    index: VectorIndexKind,
    segments: usize,
    query: &VectorQuery,
) -> Vec<DistanceHit> {
    if index != VectorIndexKind::IvfRq || segments < 2 {
        return table.planned_search(query).await.unwrap();
    }
    let mut scan = dataset.scan();
    scan.disable_scoring_autoprojection().project(&["_distance"]).unwrap().with_row_address();
    let vector = Float32Array::from(query.vector.clone());
    scan.prefilter(true).nearest("vector", &vector, query.k).unwrap();
    match &query.filter {
        Some(filter) => scan.filter(filter).unwrap().minimum_nprobes(query.nprobes.unwrap()),
        None => scan.nprobes(query.nprobes.unwrap()),
    };
    let found = scan.approx_mode(ApproxMode::Accurate).try_into_batch().await.unwrap();
    let distances = found["_distance"].as_primitive::<Float32Type>().values();
    let rows = found["_rowaddr"].as_primitive::<UInt64Type>().values();
    let hit = |(row, distance): (&u64, &f32)| DistanceHit {
        addr: RowAddr::from_u64(*row),
        distance: *distance,
    };
    rows.iter().zip(distances).map(hit).collect()
}

/// Returns the `k` nearest of `rows` by exact distances.
async fn exact_nearest(
    table: &Table,
    metric: Metric,
    to: &[f32],
    k: usize,
    rows: &[RowAddr],
) -> Vec<DistanceHit> {
    let taken = table.take(rows, &["vector".to_owned()]).await.unwrap();
    let vectors = taken.column(0).as_fixed_size_list();
    let mut hits = Vec::new();
    for (row, addr) in rows.iter().enumerate().filter(|(row, _)| vectors.is_valid(*row)) {
        let vector = vectors.value(row);
        let vector = vector.as_primitive::<Float32Type>().values();
        hits.push(DistanceHit { addr: *addr, distance: distance(metric, to, vector) });
    }
    hits.sort_by(|a, b| a.distance.total_cmp(&b.distance));
    hits.truncate(k);
    hits
}

/// Compares direct searches with planned ones. Returns the numbers of index segments and of rows that the index does
/// not cover, or the reason if the index can't be searched directly.
async fn compare(
    table: &Table,
    dataset: &Dataset,
    index: VectorIndexKind,
    metric: Metric,
    context: &str,
) -> Result<(usize, usize), PlanReason> {
    let mut seen = (0, 0);
    for (seed, nprobes, k) in [(1, 1, 5), (2, 3, 40), (3, 8, 1), (4, 8, 300), (5, 20, 2000)] {
        let query = VectorQuery {
            vector: vector(1_000_000 + seed),
            k,
            nprobes: Some(nprobes),
            ef: Some(2000),
            ..Default::default()
        };
        let search = match table.open_route(&query).await.unwrap() {
            VectorRoute::Direct(search) => search,
            VectorRoute::Planned(reason) => return Err(reason),
            VectorRoute::Candidates(_) => panic!("{context}: there is no filter"),
        };
        seen = (search.segments, search.to_score.len());
        // A segment of few rows has fewer partitions.
        assert!((search.segments..=nprobes.min(8) * search.segments).contains(&search.partitions));
        let mut found = search.hits.await.unwrap();
        if !search.to_score.is_empty() {
            // Lance compares the vectors of all rows that it found, those of the index too.
            let candidates =
                found.iter().map(|hit| hit.addr).chain(search.to_score.iter().copied());
            let candidates: Vec<_> = candidates.collect();
            found = exact_nearest(table, metric, &query.vector, k, &candidates).await;
        }
        let expected = planned(table, dataset, index, seen.0, &query).await;
        let context = format!("{context}, nprobes {nprobes}, k {k}");
        assert_same(&found, &expected, strays_max(index), &context);
    }
    Ok(seen)
}

/// Filters that the BTREE on `id` answers wholly, in part or not at all.
const FILTERS: [&str; 9] = [
    "id < 150",
    "id = 7",
    "id = -1",
    "NOT (id < 500)",
    "NOT (id IN (3, 4))",
    "id >= 100 AND id < 450 OR id = 3",
    "id % 3 = 0",
    "id > 100 AND name IS NOT NULL",
    "id >= 0",
];

/// Compares direct searches that have a filter with planned ones, or with exact distances if all rows that pass are to
/// be scored. Adds the kinds of searches that ran to `seen`.
async fn compare_filtered(
    table: &Table,
    dataset: &Dataset,
    index: VectorIndexKind,
    metric: Metric,
    context: &str,
    uncovered: u64,
    seen: &mut BTreeSet<&'static str>,
) {
    for (seed, filter) in (10..).zip(FILTERS) {
        let pass = table.scan_filter(filter, 10_000).await.unwrap();
        for limit in [1, 7, 10_000] {
            let first = table.search_filter(filter, limit).await.unwrap().rows;
            assert_eq!(first, pass[..limit.min(pass.len())], "{context}, `{filter}`");
            if let Some(known) = table.known_rows(filter) {
                assert_eq!(known.first(limit).rows, first, "{context}, `{filter}`");
                seen.insert("known");
            }
        }
        assert_eq!(table.rows_passing(filter, pass.len()).await.unwrap().as_ref(), Some(&pass));
        if let Some(fewer) = pass.len().checked_sub(1) {
            assert_eq!(table.rows_passing(filter, fewer).await.unwrap(), None);
        }
        for (nprobes, k) in [(1, 5), (2, 60), (8, 40), (20, 2000)] {
            let context = format!("{context}, `{filter}`, nprobes {nprobes}, k {k}");
            let query = VectorQuery {
                vector: vector(1_000_000 + seed),
                k,
                nprobes: Some(nprobes),
                ef: Some(2000),
                filter: Some(filter.into()),
                ..Default::default()
            };
            let VectorRoute::Direct(search) = table.open_route(&query).await.unwrap() else {
                panic!("{context}: planned");
            };
            let allowed = search.allowed.unwrap();
            assert_eq!(allowed.rows, pass.len() as u64, "{context}");
            assert!(search.to_score.iter().all(|row| pass.binary_search(row).is_ok()), "{context}");
            let (is_exact, segments) = (search.partitions == 0, search.segments);
            let mut found = search.hits.await.unwrap();
            assert!(found.iter().all(|hit| pass.binary_search(&hit.addr).is_ok()), "{context}");
            let candidates =
                found.iter().map(|hit| hit.addr).chain(search.to_score.iter().copied());
            let candidates: Vec<_> = candidates.collect();
            let nearest = exact_nearest(table, metric, &query.vector, k, &pass).await;
            // Lance compares the vectors of all rows that it found if the index does not cover all rows.
            if is_exact || uncovered > 0 {
                found = exact_nearest(table, metric, &query.vector, k, &candidates).await;
            }
            assert_eq!(found.len(), nearest.len(), "{context}");
            if is_exact {
                assert_same(&found, &nearest, 0, &context);
            } else if nprobes >= 8 {
                // All partitions are searched, so chance does not decide which rows are candidates.
                let expected = planned(table, dataset, index, segments, &query).await;
                assert_same(&found, &expected, strays_max(index), &context);
            }
            seen.insert(if is_exact { "scored" } else { "searched" });
            seen.insert(match allowed.by {
                AllowedBy::Indexes { .. } => "by index",
                AllowedBy::Scan => "by scan",
            });
        }
    }
}

async fn check_history(kind: TableKind, index: VectorIndexKind, metric: Metric, seed: u64) {
    let mut history = History::begin(kind, index, metric, seed).await;
    let mut done = Vec::new();
    let (mut segments_max, mut fresh_max) = (0, 0);
    let mut filtered = BTreeSet::new();
    for step in 0..STEPS {
        done.push(history.step(step).await);
        let context = format!("seed {seed}, {index} {metric} {kind:?}, after {done:?}");
        let table = lake().open(&history.place.uri()).await.unwrap();
        let uncovered = table.indexes().await.unwrap();
        let uncovered = uncovered.iter().find(|it| it.is_vector()).unwrap().rows_uncovered;
        let dataset = history.dataset().await;
        let compared = compare(&table, &dataset, index, metric, &context).await;
        let (segments, fresh) = compared.unwrap_or_else(|reason| panic!("{context}: {reason}"));
        assert_eq!(fresh as u64, uncovered, "{context}");
        let text = Box::pin(compare_text(&table, &dataset, &context)).await;
        assert_eq!(text.fresh as u64, uncovered, "{context}");
        let mut planned = BTreeSet::from([PlanReason::CombinedFields.to_string()]);
        if uncovered > 0 {
            planned.insert(PlanReason::CombinedUncovered(uncovered).to_string());
        }
        assert_eq!(text.planned, planned, "{context}");
        compare_filtered(&table, &dataset, index, metric, &context, uncovered, &mut filtered).await;
        segments_max = segments_max.max(segments);
        fresh_max = fresh_max.max(fresh);
    }
    assert!(segments_max > 1 && fresh_max > 0, "seed {seed}: {done:?}");
    assert_eq!(filtered.len(), 5, "seed {seed}: {filtered:?}");
}

#[tokio::test]
async fn direct_searches_find_what_lance_finds_after_every_change() {
    use VectorIndexKind::{IvfHnswSq, IvfPq, IvfRq};
    for (seed, kind, index, metric) in [
        (1, PLAIN, IvfRq, Metric::L2),
        (2, STABLE_IDS, IvfRq, Metric::Cosine),
        (3, PLAIN, IvfPq, Metric::Dot),
        (4, STABLE_IDS, IvfPq, Metric::L2),
        (5, STABLE_IDS, IvfHnswSq, Metric::L2),
    ] {
        Box::pin(check_history(kind, index, metric, seed)).await;
    }
}

#[tokio::test]
async fn a_search_that_needs_a_plan_has_a_reason() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 300)], PLAIN).await;
    let reason = |query: VectorQuery| {
        let uri = place.uri();
        async move {
            let table = lake().open(&uri).await.unwrap();
            match table.open_route(&query).await.unwrap() {
                VectorRoute::Direct(_) | VectorRoute::Candidates(_) => None,
                VectorRoute::Planned(reason) => Some(reason),
            }
        }
    };
    let query = || VectorQuery { vector: vector(3), k: 3, nprobes: Some(2), ..Default::default() };
    assert_eq!(reason(query()).await, Some(PlanReason::Unindexed));
    let index = VectorIndex { column: "vector".into(), partitions: Some(4), ..Default::default() };
    build_index(&lake(), &place.uri(), &IndexRequest::Vector(index), |_| ()).await.unwrap();
    assert_eq!(reason(query()).await, None);
    let unset = VectorQuery { nprobes: None, ..query() };
    assert_eq!(reason(unset).await, Some(PlanReason::ProbesUnset));
    for filter in ["name < CAST(now() AS string)", "id < 3 OR Current_Date() IS NULL"] {
        let clock = VectorQuery { filter: Some(filter.into()), ..query() };
        assert_eq!(reason(clock).await, Some(PlanReason::Clock), "{filter}");
    }
    let filtered = || VectorQuery { filter: Some("id < 3".into()), ..query() };
    assert_eq!(reason(filtered()).await, None);
    let table = lake().open(&place.uri()).await.unwrap();
    let is_unopened =
        async |query: VectorQuery| table.route_if_open(&query).await.unwrap().is_none();
    assert!(is_unopened(query()).await);
    table.open_route(&query()).await.unwrap();
    assert!(!is_unopened(query()).await);
    assert!(is_unopened(filtered()).await);
    table.open_route(&filtered()).await.unwrap();
    assert!(!is_unopened(filtered()).await);
}
