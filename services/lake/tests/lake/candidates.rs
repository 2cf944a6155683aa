//! Compares searches whose filter is evaluated for candidates with searches whose list of rows that pass is known.

use std::collections::HashMap;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    ArrayRef, Date32Array, FixedSizeListArray, Float32Array, Int32Array, RecordBatch,
};
use arrow::datatypes::{DataType, Field, Schema};
use lake::{
    CandidateSearch, Candidates, DistanceHit, IndexRequest, Metric, Table, VectorIndex,
    VectorIndexKind, VectorQuery, VectorRoute, Widened, build_index,
};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::optimize::OptimizeOptions;
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};

use crate::fixture::{PLAIN, STABLE_IDS, TableKind, TablePlace, lake, rows, vector, write};

/// Rows of the table: so many that a scan costs more than a few hundred candidates.
const ROWS: usize = 30_000;

async fn indexed(kind: TableKind, index: VectorIndexKind, metric: Metric) -> TablePlace {
    let place = TablePlace::new();
    write(&place.uri(), &[narrow(0, ROWS / 2), narrow(ROWS / 2, ROWS)], kind).await;
    let request = VectorIndex {
        column: "vector".into(),
        kind: index,
        metric,
        partitions: Some(16),
        sub_vectors: (index == VectorIndexKind::IvfPq).then_some(8),
        ..Default::default()
    };
    build_index(&lake(), &place.uri(), &IndexRequest::Vector(request), |_| ()).await.unwrap();
    let mut dataset = Dataset::open(&place.uri()).await.unwrap();
    dataset.delete("id % 10 = 7").await.unwrap();
    // Rows that the index does not cover.
    write_more(&place.uri(), ROWS, ROWS + 40).await;
    place
}

fn narrow(from: usize, to: usize) -> RecordBatch {
    rows(from, to).project(&[0, 1, 3]).unwrap()
}

async fn write_more(uri: &str, from: usize, to: usize) {
    let batch = narrow(from, to);
    let mut dataset = Dataset::open(uri).await.unwrap();
    let schema: Arc<Schema> = batch.schema();
    let reader = arrow::array::RecordBatchIterator::new([Ok(batch)], schema);
    dataset.append(reader, None).await.unwrap();
}

fn query(seed: usize, k: usize, nprobes: usize, filter: &str) -> VectorQuery {
    VectorQuery {
        vector: vector(1_000_000 + seed),
        k,
        nprobes: Some(nprobes),
        filter: Some(filter.into()),
        checks_candidates: true,
        ..Default::default()
    }
}

async fn route(table: &Table, query: &VectorQuery) -> Option<CandidateSearch> {
    match table.open_route(query).await.unwrap() {
        VectorRoute::Candidates(search) => Some(*search),
        VectorRoute::Direct(_) => None,
        VectorRoute::Planned(reason) => panic!("planned: {reason}"),
    }
}

/// Runs a search as a query node does. Returns the number of rounds, and the rows that pass, or `None` if a scan is
/// cheaper.
async fn run(
    table: &Table,
    query: &VectorQuery,
    mut search: CandidateSearch,
    pass: &[RowAddr],
) -> (usize, Option<Vec<DistanceHit>>) {
    let mut checked: HashMap<RowAddr, bool> = HashMap::new();
    for round in 1.. {
        let Candidates { hits, partitions } = table.candidates(query, &search).await.unwrap();
        assert!(partitions >= query.nprobes.unwrap(), "{partitions}");
        let new: Vec<_> = hits.iter().filter(|hit| !checked.contains_key(&hit.addr)).collect();
        let passes = |addr: &RowAddr| pass.binary_search(addr).is_ok();
        search.filter.record(new.len(), new.iter().filter(|hit| passes(&hit.addr)).count());
        checked.extend(new.iter().map(|hit| (hit.addr, passes(&hit.addr))));
        let passing: Vec<_> = hits.iter().copied().filter(|hit| passes(&hit.addr)).collect();
        match search.next(hits.len(), passing.len(), checked.len()) {
            Widened::Enough => return (round, Some(passing.into_iter().take(query.k).collect())),
            Widened::Further => {}
            Widened::Costly => return (round, None),
        }
    }
    unreachable!("a search ends");
}

async fn compare(kind: TableKind, index: VectorIndexKind, metric: Metric) {
    let place = Box::pin(indexed(kind, index, metric)).await;
    let (mut rounds_max, mut costly) = (0, 0);
    // IVF_RQ skips rows that are probably too far, judged by the nearest rows that it has found so far.
    let strays_max = if index == VectorIndexKind::IvfRq { 1 } else { 0 };
    for (seed, (filter, k, nprobes)) in [
        ("id >= 15000", 5, 1),
        ("id >= 15000", 20, 4),
        ("id < 9000 AND name IS NOT NULL", 10, 16),
        ("id < 3000", 4, 2),
        ("id > -1", 30, 16),
        ("name IS NULL", 3, 1),
        ("id = 77", 2, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let context = format!("{kind:?} {index} {metric} `{filter}`, k {k}, nprobes {nprobes}");
        // A new lake knows nothing of this filter yet.
        let table = lake().open(&place.uri()).await.unwrap();
        let pass = table.scan_filter(filter, ROWS).await.unwrap();
        let query = query(seed, k, nprobes, filter);
        let search = route(&table, &query).await.unwrap_or_else(|| panic!("{context}: listed"));
        assert_eq!(search.filter.scan_rows, 27_040, "{context}");
        assert_eq!(search.to_score.len(), 40, "{context}");
        let (rounds, found) = run(&table, &query, search, &pass).await;
        rounds_max = rounds.max(rounds_max);
        let Some(found) = found else {
            costly += 1;
            assert!(pass.len() < ROWS / 20, "{context}: {} pass", pass.len());
            continue;
        };
        assert!(table.route_if_open(&query).await.is_ok());
        let listed = VectorQuery { checks_candidates: false, ..query.clone() };
        let VectorRoute::Direct(search) = table.open_route(&listed).await.unwrap() else {
            panic!("{context}: not direct");
        };
        let expected = search.hits.await.unwrap();
        assert_eq!(found.len(), expected.len(), "{context}");
        let last = expected.last().unwrap().distance;
        let strays = found.iter().filter(|hit| {
            !expected.iter().any(|it| it.addr == hit.addr) && (hit.distance - last).abs() > 1e-4
        });
        assert!(strays.count() <= strays_max, "{context}: {found:?}, not {expected:?}");
        // The list is known now.
        assert!(route(&table, &query).await.is_none(), "{context}");
    }
    assert!(rounds_max > 1, "{rounds_max}");
    assert!(costly >= 1, "{costly}");
}

#[tokio::test]
async fn candidates_that_pass_are_those_of_a_search_with_the_list() {
    for (kind, index, metric) in [
        (PLAIN, VectorIndexKind::IvfRq, Metric::L2),
        (STABLE_IDS, VectorIndexKind::IvfPq, Metric::Cosine),
    ] {
        Box::pin(compare(kind, index, metric)).await;
    }
}

#[tokio::test]
async fn a_list_is_made_where_it_is_cheaper() {
    let place = Box::pin(indexed(PLAIN, VectorIndexKind::IvfRq, Metric::L2)).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let open = async |k: usize, filter: &str| route(&table, &query(1, k, 4, filter)).await;
    // A search for 10 rows needs few candidates, but one for 150 rows so many that they cost more than a scan of 27,040
    // rows.
    assert!(open(10, "id > 5").await.is_some());
    assert!(open(150, "id > 5").await.is_none());
    // The search for 150 rows has made the list of this filter.
    assert!(open(10, "id > 5").await.is_none());
    // These filters have no predicate.
    assert!(open(10, "id % 2 = 0").await.is_none());
    assert!(open(10, "name LIKE '%7'").await.is_none());
    // Hardly any row passes this filter, which is known after the first search.
    let search = open(10, "id = 9").await.unwrap();
    search.filter.record(200, 0);
    assert!(open(10, "id = 9").await.is_none());
    // Searches share the cost of a list: it is due once they have cost as much.
    let first = open(10, "id > 7").await.unwrap();
    first.filter.record(100, 60);
    let second = open(10, "id > 7").await.unwrap();
    assert!(!second.filter.is_list_due());
    second.filter.record(200, 120);
    assert!(second.filter.is_list_due());
    assert!(!first.filter.is_list_due(), "one search has it made");
    second.filter.list_postponed();
    assert!(first.filter.is_list_due());
    first.filter.list_failed();
    assert!(!second.filter.is_list_due(), "a list that failed is not made again at once");
    second.filter.record(300, 180);
    assert!(second.filter.is_list_due());
    assert!(open(10, "id > 7").await.is_some(), "until it is made, candidates are compared");
    table.make_list("id > 7").await.unwrap();
    assert!(open(10, "id > 7").await.is_none());

    // If a scalar index answers all of a filter, the list is made. If it answers a part, only the rows that it leaves
    // are candidates.
    let btree = IndexRequest::Scalar { column: "id".into() };
    build_index(&lake(), &place.uri(), &btree, |_| ()).await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    let open = async |filter: &str| route(&table, &query(1, 10, 4, filter)).await;
    assert!(open("id > 11").await.is_none());
    let narrowed = open("id > 12 AND name IS NOT NULL").await.unwrap();
    assert!(narrowed.is_narrowed());
    // Of the 27,040 live rows, the 12 with ids from 0 to 12 are left out (7 is deleted).
    assert_eq!(narrowed.filter.scan_rows, 27_028);
    assert!(!open("name IS NOT NULL").await.unwrap().is_narrowed());
    assert!(table.open_route(&query(1, 10, 4, "name >")).await.is_err());
}

/// The rows of the table with wide ranges, and how many of these its indexes cover.
const WIDE_ROWS: i32 = 270_000;
const WIDE_COVERED: i32 = 260_000;

/// A table with BTREEs on `id`, which counts the rows, on its date `day`, of which each has ten rows, on `size`, which
/// has a NaN, and on `note`, which is null in every second row. A BITMAP has the 50 topics. Two segments of each index
/// cover all but the last rows.
async fn with_wide_ranges(kind: TableKind) -> TablePlace {
    let place = TablePlace::new();
    let rows = |ids: std::ops::Range<i32>| {
        let values =
            ids.clone().flat_map(|id| (1..=4).map(move |at| (id as f32 * at as f32).sin()));
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let values = Arc::new(Float32Array::from_iter_values(values));
        let size = |id: i32| if id == 0 { f32::NAN } else { id as f32 };
        let columns: [(&str, ArrayRef, bool); 6] = [
            ("id", Arc::new(Int32Array::from_iter_values(ids.clone())), false),
            ("day", Arc::new(Date32Array::from_iter_values(ids.clone().map(|id| id / 10))), false),
            ("size", Arc::new(Float32Array::from_iter_values(ids.clone().map(size))), false),
            (
                "note",
                Arc::new(ids.clone().map(|id| (id % 2 == 0).then_some(id)).collect::<Int32Array>()),
                true,
            ),
            ("topic", Arc::new(Int32Array::from_iter_values(ids.map(|id| id % 50))), false),
            ("vector", Arc::new(FixedSizeListArray::new(item, 4, values, None)), false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let append = async |ids| {
        let rows = rows(ids);
        let reader = arrow::array::RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
        let mut dataset = Dataset::open(&place.uri()).await.unwrap();
        dataset.append(reader, None).await.unwrap();
        dataset
    };
    let mut dataset = write(&place.uri(), &[rows(0..WIDE_COVERED / 2)], kind).await;
    for column in ["id", "day", "size", "note", "topic"] {
        let (kind, name) = match column {
            "topic" => (IndexType::Bitmap, BuiltinIndexType::Bitmap),
            _ => (IndexType::BTree, BuiltinIndexType::BTree),
        };
        let params = ScalarIndexParams::for_builtin(name);
        dataset.create_index(&[column], kind, None, &params, false).await.unwrap();
    }
    let request = VectorIndex {
        column: "vector".into(),
        kind: VectorIndexKind::IvfPq,
        metric: Metric::L2,
        partitions: Some(16),
        sub_vectors: Some(4),
        ..Default::default()
    };
    build_index(&lake(), &place.uri(), &IndexRequest::Vector(request), |_| ()).await.unwrap();
    let mut dataset = append(WIDE_COVERED / 2..WIDE_COVERED).await;
    dataset.optimize_indices(&OptimizeOptions::append()).await.unwrap();
    append(WIDE_COVERED..WIDE_ROWS).await;
    place
}

async fn compare_wide_ranges(kind: TableKind) {
    let place = Box::pin(with_wide_ranges(kind)).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let query = |k, filter: &str| VectorQuery {
        vector: (1..=4).map(|at| (0.3 * at as f32).cos()).collect(),
        indexed_only: true,
        ..query(0, k, 4, filter)
    };
    // For each filter and number of rows: how many rows indexes would list and a scan would read, or indexes leave by the
    // other conditions; and whether they leave rows.
    for (filter, k, scan_rows, is_narrowed) in [
        ("id >= 30000", 10, 240_000, false),
        ("id < 250000 AND NOT id < 10000", 10, 250_000, false),
        ("day >= DATE '1978-03-19'", 10, 240_000, false),
        ("id >= 1000 AND day < DATE '2039-12-15'", 10, 2 * 258_000, false),
        ("id >= 1000 AND topic = 7", 5, 15_200, true),
        ("day >= DATE '1975-06-24' AND topic IN (7, 9)", 5, 20_400, true),
    ] {
        let pass = table.scan_filter(filter, WIDE_ROWS as usize).await.unwrap();
        let query = query(k, filter);
        let search = route(&table, &query).await.unwrap_or_else(|| panic!("`{filter}`: listed"));
        let near = search.filter.scan_rows.abs_diff(scan_rows) * 20 <= scan_rows;
        assert!(near, "`{filter}`: {} rows, not {scan_rows}", search.filter.scan_rows);
        assert!(search.filter.has_wide_ranges(), "`{filter}`");
        assert_eq!(search.is_narrowed(), is_narrowed, "`{filter}`");
        let (rounds, found) = run(&table, &query, search, &pass).await;
        assert!(rounds <= 2, "`{filter}`: {rounds}");
        let found = found.unwrap_or_else(|| panic!("`{filter}`: a list is cheaper"));
        table.make_list(filter).await.unwrap();
        let VectorRoute::Direct(search) = table.open_route(&query).await.unwrap() else {
            panic!("`{filter}`: the list is not used");
        };
        assert_eq!(search.allowed.map(|it| it.rows), Some(pass.len() as u64), "`{filter}`");
        // Several rows may have the same distance by their codes.
        let distances = |hits: Vec<DistanceHit>| hits.into_iter().map(|hit| hit.distance).collect();
        let (found, expected): (Vec<_>, Vec<_>) =
            (distances(found), distances(search.hits.await.unwrap()));
        assert_eq!(found, expected, "`{filter}`");
    }
    // Ranges are listed if fewer rows are in them, if it is not known how many are, or if rows pass that are not in them.
    for filter in [
        "id >= 180000",
        "id < 100",
        "size < 5",
        "note >= 0",
        "topic = 7",
        "id >= 30000 AND id IN (30007, 200007)",
        "id >= 30001 OR topic = 7",
        "(topic = 7 AND id >= 30002) OR (topic = 9 AND id < 7)",
    ] {
        let search = route(&table, &query(10, filter)).await;
        let wide = search.filter(|search| search.filter.has_wide_ranges());
        assert!(wide.is_none(), "`{filter}`");
    }
    // So many candidates would cost more than the list.
    assert!(route(&table, &query(2_500, "id >= 30003")).await.is_none());
    // If far fewer rows pass than was estimated, the list is made.
    let mut search = route(&table, &query(100, "id >= 30004")).await.unwrap();
    assert_eq!(search.next(130, 1, 130), Widened::Costly);
}

#[tokio::test]
async fn candidates_are_compared_with_ranges_that_very_many_rows_are_in() {
    Box::pin(compare_wide_ranges(PLAIN)).await;
}

#[tokio::test]
async fn candidates_with_stable_row_ids_are_compared_with_wide_ranges() {
    Box::pin(compare_wide_ranges(STABLE_IDS)).await;
}
