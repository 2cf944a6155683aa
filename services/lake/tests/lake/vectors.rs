//! Compares vector searches with brute force.

use std::collections::HashSet;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    ArrayRef, AsArray, FixedSizeListArray, Float32Array, ListArray, RecordBatch, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Float32Type, UInt64Type};
use lake::{
    DistanceHit, IndexRequest, LakeError, Metric, Table, VectorIndex, VectorIndexKind, VectorQuery,
    build_index,
};
use lance::index::DatasetIndexExt;
use lance::index::vector::VectorIndexParams;
use lance_index::IndexType;
use lance_linalg::distance::DistanceType;

use crate::fixture::{
    DIMENSION, PLAIN, STABLE_IDS, TableKind, TablePlace, address_of, is_deleted, lake, rows,
    search_vector, vector, write, write_with_history,
};

pub fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    match metric {
        Metric::L2 => a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum(),
        Metric::Dot => 1.0 - dot(a, b),
        Metric::Cosine => 1.0 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
        Metric::Hamming => unreachable!(),
    }
}

/// Returns the `k` of `ids` whose vectors are nearest to `to`, with their distances.
fn nearest(
    metric: Metric,
    to: &[f32],
    k: usize,
    ids: impl Iterator<Item = i32>,
) -> Vec<(i32, f32)> {
    let mut all: Vec<_> = ids.map(|id| (id, distance(metric, to, &vector(id as usize)))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all.truncate(k);
    all
}

pub fn query(seed: usize, k: usize) -> VectorQuery {
    VectorQuery { vector: vector(1_000_000 + seed), k, ..Default::default() }
}

fn live() -> impl Iterator<Item = i32> {
    (0..600).filter(|id| !is_deleted(*id))
}

async fn check_exact(
    table: &Table,
    metric: Metric,
    filter: Option<&str>,
    live: impl Fn(i32) -> bool,
) {
    for seed in 0..5 {
        let query = VectorQuery { filter: filter.map(str::to_owned), ..query(seed, 10) };
        let hits = search_vector(table, &query).await.unwrap();
        let expected = nearest(metric, &query.vector, 10, self::live().filter(|id| live(*id)));
        let addresses: Vec<_> = hits.iter().map(|hit| hit.addr).collect();
        assert_eq!(addresses, expected.iter().map(|(id, _)| address_of(*id)).collect::<Vec<_>>());
        for (hit, (_, distance)) in hits.iter().zip(expected) {
            assert!((hit.distance - distance).abs() < 1e-4, "{hit:?} {distance}");
        }
    }
}

#[tokio::test]
async fn without_an_index_it_is_exact() {
    for kind in [PLAIN, STABLE_IDS] {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        assert_eq!(table.vector_metric("vector").await.unwrap(), Metric::L2);
        check_exact(&table, Metric::L2, None, |_| true).await;
        check_exact(&table, Metric::L2, Some("id % 3 = 0"), |id| id % 3 == 0).await;
    }
}

async fn recall(
    table: &Table,
    metric: Metric,
    filter: Option<&str>,
    pass: impl Fn(i32) -> bool,
) -> f64 {
    let (mut found, mut all) = (0, 0);
    for seed in 0..20 {
        // A refined search requests ten times as many candidates as rows, as this search does, and then ranks them
        // exactly.
        let query = VectorQuery {
            nprobes: Some(8),
            ef: Some(200),
            filter: filter.map(str::to_owned),
            ..query(seed, 100)
        };
        let hits = search_vector(table, &query).await.unwrap();
        assert!(hits.is_sorted_by(|a, b| a.distance <= b.distance));
        assert!(
            table
                .missing(&hits.iter().map(|hit| hit.addr).collect::<Vec<_>>())
                .await
                .unwrap()
                .is_empty()
        );
        let hits: HashSet<RowAddr> = hits.iter().map(|hit| hit.addr).collect();
        for (id, _) in nearest(metric, &query.vector, 10, live().filter(|id| pass(*id))) {
            all += 1;
            found += usize::from(hits.contains(&address_of(id)));
        }
        assert!(
            hits.iter().all(|addr| live().filter(|id| pass(*id)).any(|id| address_of(id) == *addr))
        );
    }
    f64::from(found as u32) / f64::from(all as u32)
}

/// Checks that a search finds what Lance's own plan for the same query finds. The search reads the partitions directly.
async fn compare_to_scanner(table: &Table, uri: &str) {
    let dataset = lance::Dataset::open(uri).await.unwrap();
    for (seed, nprobes) in [(0, 1), (1, 3), (2, 10), (3, 99)] {
        let query = VectorQuery { nprobes: Some(nprobes), ef: Some(200), ..query(seed, 30) };
        let hits = search_vector(table, &query).await.unwrap();
        let mut scanner = dataset.scan();
        let vector = arrow::array::Float32Array::from(query.vector.clone());
        scanner.nearest("vector", &vector, query.k).unwrap().nprobes(nprobes).ef(200);
        let expected = lances_hits(&mut scanner).await;
        assert_same_hits(&pairs(&hits), &expected, &format!("nprobes {nprobes}"));
    }
}

/// Checks that a search with a filter searches at least and at most as many partitions as Lance's own plan, and finds
/// the same rows. It asks for more rows than pass in so many partitions.
async fn compare_filtered_to_scanner(table: &Table, uri: &str) {
    let dataset = lance::Dataset::open(uri).await.unwrap();
    let partitions = table.measurable_index("vector").await.unwrap().unwrap().partitions;
    for (seed, (nprobes, nprobes_max)) in [(1, 1), (2, 2), (1, 3)].into_iter().enumerate() {
        let query = VectorQuery {
            nprobes: Some(nprobes),
            nprobes_max: Some(nprobes_max),
            ef: Some(200),
            filter: Some("id % 7 = 0".into()),
            ..query(seed, 50)
        };
        let hits = search_vector(table, &query).await.unwrap();
        let mut scanner = dataset.scan();
        let vector = Float32Array::from(query.vector.clone());
        scanner.prefilter(true).filter("id % 7 = 0").unwrap();
        scanner.nearest("vector", &vector, query.k).unwrap().ef(200);
        scanner.minimum_nprobes(nprobes).maximum_nprobes(nprobes_max);
        let expected = lances_hits(&mut scanner).await;
        let is_all = nprobes_max >= partitions;
        assert_eq!(expected.len() < query.k, !is_all, "{} rows of {nprobes_max}", expected.len());
        let probes = format!("nprobes {nprobes} to {nprobes_max}");
        assert_same_hits(&pairs(&hits), &expected, &probes);
        let planned = table.planned_search(&query).await.unwrap();
        assert_same_hits(&pairs(&planned), &expected, &probes);
    }
}

/// Checks that both searches found the same distances, and the same rows. If the last row is as far as rows that a
/// search left out, any of these may be the last, so rows as far as the last are compared by distance only.
fn assert_same_hits(found: &[(f32, u64)], expected: &[(f32, u64)], search: &str) {
    let distances = |hits: &[(f32, u64)]| hits.iter().map(|hit| hit.0).collect::<Vec<_>>();
    assert_eq!(distances(found), distances(expected), "{search}");
    let last = distances(expected).last().copied().expect("some rows are found");
    let nearer = expected.partition_point(|hit| hit.0 < last);
    assert_eq!(found[..nearer], expected[..nearer], "{search}");
}

/// Returns the distance and the address of each row.
fn pairs(hits: &[DistanceHit]) -> Vec<(f32, u64)> {
    hits.iter().map(|hit| (hit.distance, hit.addr.to_u64())).collect()
}

/// Returns the distances and addresses that Lance's scanner finds, nearest first.
async fn lances_hits(scanner: &mut lance::dataset::scanner::Scanner) -> Vec<(f32, u64)> {
    scanner.project(&["_distance"]).unwrap().with_row_address();
    let batch = scanner.try_into_batch().await.unwrap();
    let distances = batch["_distance"].as_primitive::<Float32Type>().values().iter();
    let addresses = batch["_rowaddr"].as_primitive::<UInt64Type>().values().iter();
    let mut found: Vec<_> = distances.copied().zip(addresses.copied()).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    found
}

/// Checks that each rung of a ladder finds the rows that a search with the rung's number of partitions finds and, for a
/// flat index, that a search for fewer rows finds the first of these rows. IVF_RQ skips a few rows; which ones depends
/// on the rows that the search has found before.
async fn compare_to_ladder(table: &Table, kind: VectorIndexKind) {
    let index = table.measurable_index("vector").await.unwrap().unwrap();
    assert_eq!(index.uncovered.len(), 0);
    // Product quantization needs more rows in each partition, so there are fewer partitions.
    let nprobes: Vec<_> = [1, 2, 5, 10].into_iter().filter(|it| *it <= index.partitions).collect();
    assert!(nprobes.len() >= 2);
    let ks = if index.is_flat { &[60, 20][..] } else { &[60] };
    let (mut same, mut all) = (0, 0);
    for seed in 4..14 {
        let query = query(seed, 60);
        let rungs = table.search_ladder(&query, &nprobes).await.unwrap().unwrap();
        assert!(rungs.is_sorted_by(|a, b| a.compared < b.compared), "more partitions, more rows");
        // The index still holds deleted rows.
        assert!(rungs.last().unwrap().compared >= live().count() as u64);
        for (rung, nprobes) in rungs.iter().zip(nprobes.iter().copied()) {
            for k in ks.iter().copied() {
                let query = VectorQuery { nprobes: Some(nprobes), k, ..query.clone() };
                let hits = search_vector(table, &query).await.unwrap();
                assert_eq!(hits.len(), rung.hits.len().min(k));
                // If two rows are equally near, either may be the last.
                let farthest = rung.hits[hits.len() - 1].distance;
                same += hits.iter().filter(|hit| hit.distance <= farthest).count();
                all += hits.len();
            }
        }
    }
    let least = if kind == VectorIndexKind::IvfRq { all * 97 / 100 } else { all };
    assert!(same >= least, "{kind}: {same} of {all}");
}

async fn check_recall(kind: TableKind, index: VectorIndexKind, metric: Metric) {
    let place = TablePlace::new();
    write_with_history(&place.uri(), kind).await;
    let lake = lake();
    let request = VectorIndex {
        column: "vector".into(),
        kind: index,
        metric,
        partitions: Some(10),
        ..Default::default()
    };
    let summary =
        build_index(&lake, &place.uri(), &IndexRequest::Vector(request), |_| ()).await.unwrap();
    assert_eq!((summary.name.as_str(), summary.rows), ("vector_vector", 529));
    let table = lake.open(&place.uri()).await.unwrap();
    assert_eq!(table.version(), summary.version);
    let info = table.indexes().await.unwrap();
    assert_eq!(info[0].kind.replace('_', "-").to_lowercase(), index.to_string());
    assert_eq!((info[0].metric, info[0].rows_uncovered), (Some(metric), 0));
    assert_eq!(table.vector_metric("vector").await.unwrap(), metric);
    table.prewarm().await.unwrap();
    Box::pin(compare_to_scanner(&table, &place.uri())).await;
    Box::pin(compare_filtered_to_scanner(&table, &place.uri())).await;
    Box::pin(compare_to_ladder(&table, index)).await;
    let found = recall(&table, metric, None, |_| true).await;
    assert!(found >= 0.9, "{kind:?} {index} {metric}: recall {found}");
    let found =
        recall(&table, metric, Some("id >= 250 AND id < 550"), |id| (250..550).contains(&id)).await;
    assert!(found >= 0.9, "{kind:?} {index} {metric}: recall with a filter {found}");
}

#[tokio::test]
async fn ivf_rq() {
    check_recall(PLAIN, VectorIndexKind::IvfRq, Metric::L2).await;
    check_recall(STABLE_IDS, VectorIndexKind::IvfRq, Metric::Cosine).await;
}

#[tokio::test]
async fn ivf_pq() {
    check_recall(PLAIN, VectorIndexKind::IvfPq, Metric::Cosine).await;
    check_recall(STABLE_IDS, VectorIndexKind::IvfPq, Metric::L2).await;
}

#[tokio::test]
async fn ivf_hnsw_sq() {
    check_recall(PLAIN, VectorIndexKind::IvfHnswSq, Metric::L2).await;
    check_recall(PLAIN, VectorIndexKind::IvfHnswSq, Metric::Dot).await;
}

#[tokio::test]
async fn rows_added_after_the_index_was_built_are_found() {
    for kind in [PLAIN, STABLE_IDS] {
        let place = TablePlace::new();
        write(&place.uri(), &[rows(0, 400)], kind).await;
        let lake = lake();
        let request =
            IndexRequest::Vector(VectorIndex { column: "vector".into(), ..Default::default() });
        build_index(&lake, &place.uri(), &request, |_| ()).await.unwrap();
        append_rows(&place.uri()).await;
        let table = lake.open(&place.uri()).await.unwrap();
        assert_eq!(table.indexes().await.unwrap()[0].rows_uncovered, 50);
        for nprobes in [None, Some(1)] {
            let query = VectorQuery { vector: vector(420), k: 3, nprobes, ..Default::default() };
            let hits = search_vector(&table, &query).await.unwrap();
            assert_eq!((hits[0].addr, hits[0].distance), (RowAddr::new(1, 20), 0.0));
        }
    }
}

async fn append_rows(uri: &str) {
    append(&mut lance::Dataset::open(uri).await.unwrap(), rows(400, 450)).await;
}

pub async fn append(dataset: &mut lance::Dataset, batch: RecordBatch) {
    let reader = arrow::array::RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    dataset.append(reader, None).await.unwrap();
}

#[tokio::test]
async fn invalid_searches_are_refused() {
    let place = TablePlace::new();
    write_with_history(&place.uri(), PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let ask = |change: fn(&mut VectorQuery)| {
        let mut query = query(0, 10);
        change(&mut query);
        let table = table.clone();
        async move { search_vector(&table, &query).await.unwrap_err() }
    };
    assert!(matches!(ask(|it| it.k = 0).await, LakeError::BadQuery { .. }));
    assert!(matches!(ask(|it| it.vector[3] = f32::NAN).await, LakeError::BadQuery { .. }));
    assert!(matches!(ask(|it| it.vector[3] = f32::INFINITY).await, LakeError::BadQuery { .. }));
    match ask(|it| it.vector.truncate(3)).await {
        LakeError::DimensionMismatch { expected: DIMENSION, got: 3, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        ask(|it| it.column = Some("nope".into())).await,
        LakeError::ColumnNotFound { .. }
    ));
    assert!(matches!(ask(|it| it.column = Some("id".into())).await, LakeError::NotAVector { .. }));
    for filter in ["id >", "nope = 3", "id = 'x' AND", ""] {
        let query = VectorQuery { filter: Some(filter.into()), ..query(0, 10) };
        match search_vector(&table, &query).await {
            Err(error @ LakeError::BadFilter { .. }) => {
                assert!(!error.to_string().contains(".rs:"), "{error}")
            }
            other => panic!("{filter}: {other:?}"),
        }
    }
    let none = VectorQuery { filter: Some("id > 9999".into()), ..query(0, 10) };
    assert_eq!(search_vector(&table, &none).await.unwrap(), []);
}

#[tokio::test]
async fn invalid_index_requests_are_refused() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 100)], PLAIN).await;
    let lake = lake();
    let build = |index: VectorIndex| {
        let (lake, uri) = (lake.clone(), place.uri());
        async move { build_index(&lake, &uri, &IndexRequest::Vector(index), |_| ()).await.unwrap_err() }
    };
    let on = |column: &str| VectorIndex { column: column.into(), ..Default::default() };
    assert!(matches!(build(on("nope")).await, LakeError::ColumnNotFound { .. }));
    assert!(matches!(build(on("text")).await, LakeError::NotAVector { .. }));
    let pq = VectorIndex { kind: VectorIndexKind::IvfPq, ..on("vector") };
    let few = build(pq).await;
    assert!(matches!(few, LakeError::TooFewRows { rows: 100, needed: 256, .. }), "{few:?}");
    assert!(few.to_string().contains("search without an index"), "{few}");
    let many = VectorIndex { partitions: Some(101), ..on("vector") };
    let many = build(many).await;
    assert!(matches!(many, LakeError::BadIndex { .. }), "{many:?}");
    assert!(many.to_string().contains("101 partitions for 100 rows"), "{many}");
    let hnsw = VectorIndex { kind: VectorIndexKind::IvfHnswSq, bits: Some(4), ..on("vector") };
    let codes = VectorIndex { sub_vectors: Some(4), ..on("vector") };
    for (index, kind) in [(hnsw, "ivf-rq"), (codes, "ivf-pq")] {
        let error = build(index).await;
        assert!(matches!(error, LakeError::BadIndex { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("are a setting of {kind}")), "{error}");
    }
    assert_eq!(lake.latest_version(&place.uri()).await.unwrap(), 1, "nothing was committed");
    // An index of the default kind can be built even on a table this small.
    let request = IndexRequest::Vector(on("vector"));
    let stages = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = stages.clone();
    let report = move |progress: lake::IndexProgress| seen.lock().unwrap().push(progress);
    build_index(&lake, &place.uri(), &request, report).await.unwrap();
    assert!(stages.lock().unwrap().iter().any(|it| it.ended), "progress is reported");
}

#[tokio::test]
async fn dimensions_that_a_kind_of_index_does_not_support() {
    let place = TablePlace::new();
    let values = Float32Array::from_iter_values((0..300 * 12).map(|i| i as f32));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(item, 12, Arc::new(values), None));
    write(&place.uri(), &[RecordBatch::try_from_iter([("v", vectors)]).unwrap()], PLAIN).await;
    let build = |kind| {
        let index = VectorIndex { column: "v".into(), kind, ..Default::default() };
        let uri = place.uri();
        async move { build_index(&lake(), &uri, &IndexRequest::Vector(index), |_| ()).await }
    };
    let error = build(VectorIndexKind::IvfRq).await.unwrap_err();
    assert!(matches!(error, LakeError::BadIndex { .. }), "{error:?}");
    assert!(error.to_string().ends_with("choose ivf-pq or ivf-hnsw-sq"), "{error}");
    build(VectorIndexKind::IvfPq).await.unwrap();
    build(VectorIndexKind::IvfHnswSq).await.unwrap();
}

/// Returns a table of 400 rows with a list of three vectors in `many`, and a vector in the field `v` of `one`. Both
/// have an index of one-bit codes, whose distances are rough estimates.
async fn write_lists_and_fields(uri: &str) -> lance::Dataset {
    let of = |from: usize, to: usize| -> ArrayRef {
        let values = Float32Array::from_iter_values((from..to).flat_map(vector));
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        Arc::new(FixedSizeListArray::new(item, DIMENSION as i32, Arc::new(values), None))
    };
    let (all, ones) = (of(0, 1200), of(0, 400));
    let item = Arc::new(Field::new("item", all.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(3, 400));
    let many: ArrayRef = Arc::new(ListArray::new(item, offsets, all, None));
    let field = Arc::new(Field::new("v", ones.data_type().clone(), true));
    let one: ArrayRef = Arc::new(StructArray::from(vec![(field, ones)]));
    let batch = RecordBatch::try_from_iter([("many", many), ("one", one)]).unwrap();
    let mut dataset = write(uri, &[batch], PLAIN).await;
    for (column, metric) in [("many", DistanceType::Cosine), ("one.v", DistanceType::L2)] {
        let parameters = VectorIndexParams::ivf_rq(4, 1, metric);
        dataset.create_index(&[column], IndexType::Vector, None, &parameters, false).await.unwrap();
    }
    dataset
}

/// Builds an IVF_FLAT index of 24 partitions on the table of [`write_with_history`]. Returns the table, a search for all
/// rows that pass a filter, and their number.
async fn filtered(place: &TablePlace, metric: DistanceType) -> (Table, VectorQuery, usize) {
    let mut dataset = write_with_history(&place.uri(), PLAIN).await;
    // Up to 16 partitions, ties are sorted alike whatever the limit of the sort is.
    let parameters = VectorIndexParams::ivf_flat(24, metric);
    dataset.create_index(&["vector"], IndexType::Vector, None, &parameters, false).await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    let filter = Some("id % 3 = 0".into());
    // All rows that pass would be scored instead, unless only the index is searched.
    let query = VectorQuery { nprobes: Some(1), filter, indexed_only: true, ..query(0, 400) };
    (table, query, live().filter(|id| id % 3 == 0).count())
}

pub async fn found(table: &Table, query: &VectorQuery) -> HashSet<RowAddr> {
    let hits = search_vector(table, query).await.unwrap();
    let rows: HashSet<_> = hits.iter().map(|hit| hit.addr).collect();
    assert_eq!(rows.len(), hits.len(), "each row is found once");
    rows
}

#[tokio::test]
async fn partitions_at_equal_distances_are_all_searched_once() {
    let place = TablePlace::new();
    let (table, query, passing) = filtered(&place, DistanceType::Dot).await;
    let query = VectorQuery { vector: vec![0.0; DIMENSION], ..query };
    for nprobes in 1..5 {
        let query = VectorQuery { nprobes: Some(nprobes), ..query.clone() };
        assert_eq!(found(&table, &query).await.len(), passing, "from {nprobes} partitions");
    }
}

#[tokio::test]
async fn a_vector_to_which_no_distance_is_finite_hides_no_rows_from_later_searches() {
    for metric in [DistanceType::L2, DistanceType::Cosine] {
        let place = TablePlace::new();
        let (table, query, passing) = filtered(&place, metric).await;
        let long = VectorQuery { vector: vec![1e19; DIMENSION], ..query.clone() };
        let error = search_vector(&table, &long).await.unwrap_err().to_string();
        assert!(error.contains("add up to 1.6e39, and at most 8.5e37"), "{error}");
        if metric == DistanceType::Cosine {
            let short = VectorQuery { vector: vec![1e-30; DIMENSION], ..query.clone() };
            assert_eq!(found(&table, &short).await.len(), 0, "it has no direction");
        }
        assert_eq!(found(&table, &query).await.len(), passing, "{metric}");
    }
}

#[tokio::test]
async fn a_number_that_the_columns_floats_can_not_hold_is_refused() {
    let place = TablePlace::new();
    let batch = rows(0, 20);
    let halves = DataType::new_fixed_size_list(DataType::Float16, DIMENSION as i32, true);
    let halves = arrow::compute::cast(&batch["vector"], &halves).unwrap();
    let batch = RecordBatch::try_from_iter([("halves", halves)]).unwrap();
    write(&place.uri(), &[batch], PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let of = |number| {
        let mut vector = vector(3);
        vector[5] = number;
        VectorQuery { vector, k: 3, ..Default::default() }
    };
    assert_eq!(search_vector(&table, &of(65_504.0)).await.unwrap().len(), 3);
    let error = search_vector(&table, &of(-65_536.0)).await.unwrap_err();
    assert!(matches!(error, LakeError::BadQuery { .. }));
    assert!(error.to_string().contains("the vector's number 5 is -65536"), "{error}");
}

#[tokio::test]
async fn candidates_of_lists_and_of_nested_columns_are_refined_as_lance_does() {
    let place = TablePlace::new();
    let dataset = write_lists_and_fields(&place.uri()).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let mut differ = 0;
    for (column, vectors) in [("many", 1), ("many", 2), ("one.v", 1)] {
        let mut of_factors = Vec::new();
        for refine_factor in [0, 1, 4] {
            let vector: Vec<f32> = (0..vectors).flat_map(|at| vector(1_000_000 + at)).collect();
            let query = VectorQuery {
                column: Some(column.into()),
                vector: vector.clone(),
                k: 10,
                nprobes: Some(2),
                refine_factor,
                ..Default::default()
            };
            let hits = search_vector(&table, &query).await.unwrap();
            let values = Float32Array::from(vector);
            let item = Arc::new(Field::new("item", DataType::Float32, true));
            let values: ArrayRef = match vectors {
                1 => Arc::new(values),
                _ => Arc::new(FixedSizeListArray::new(
                    item,
                    DIMENSION as i32,
                    Arc::new(values),
                    None,
                )),
            };
            let mut scanner = dataset.scan();
            scanner.nearest(column, values.as_ref(), 10).unwrap().nprobes(2);
            if refine_factor > 0 {
                scanner.refine(refine_factor);
            }
            let expected = lances_hits(&mut scanner).await;
            let found: Vec<_> = hits.iter().map(|hit| (hit.distance, hit.addr.to_u64())).collect();
            assert_eq!(found, expected, "{column}, {vectors} vectors, refined by {refine_factor}");
            of_factors.push(found);
        }
        assert_ne!(of_factors[0], of_factors[1], "{column}: refined distances are not estimates");
        differ += usize::from(of_factors[1] != of_factors[2]);
    }
    assert!(differ > 0, "more candidates find nearer rows");
}
