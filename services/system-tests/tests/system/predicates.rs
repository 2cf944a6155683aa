//! Tests filters that I/O nodes evaluate next to the rows: on one node, against a plain computation, and in searches
//! through both tiers, against searches that know the rows that pass.

use std::path::Path;
use std::sync::Arc;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
    StringArray,
};
use arrow_schema::{DataType, Field};
use client::fetch::{Metric, Outcome, Predicate, Projection, Rerank};
use client::query::SearchRequest;
use lake::{IndexRequest, Lake, LakeOptions, VectorIndex, build_index};
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wire::Reason;
use wire::fetch::{PredicateOp, PredicateStep};
use wire::query::{Vector, search_request::By};

use crate::cluster::{Cluster, Io, folder, soon};

/// The number of rows of the table, of which the index covers all but the last `FRESH`.
pub const ROWS: i64 = 12_000;
const FRESH: i64 = 20;
const DIMENSION: usize = 64;

/// Rows are deleted whose id ends in 9.
pub fn is_live(id: i64) -> bool {
    id % 10 != 9
}

pub fn size(id: i64) -> Option<i64> {
    (id % 11 != 3).then_some(id * 7919 % 1000)
}

pub fn name(id: i64) -> String {
    format!("name-{}", id % 4)
}

pub fn vector(id: i64) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(id as u64);
    (0..DIMENSION).map(|_| random.random_range(-1.0..1.0)).collect()
}

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let values = Float32Array::from_iter_values(ids.clone().flat_map(vector));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::new(item, DIMENSION as i32, Arc::new(values), None);
    let names: StringArray = ids.clone().map(|id| Some(name(id))).collect();
    let columns: [(&str, ArrayRef, bool); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone())), false),
        ("size", Arc::new(Int64Array::from_iter(ids.map(size))), true),
        ("name", Arc::new(names), true),
        ("vector", Arc::new(vectors), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

pub async fn write(uri: &str, stable_row_ids: bool) {
    let append = async |ids: std::ops::Range<i64>| {
        let batch = rows(ids.clone());
        let mode = if ids.start == 0 { WriteMode::Create } else { WriteMode::Append };
        let params =
            WriteParams { mode, enable_stable_row_ids: stable_row_ids, ..Default::default() };
        let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        Dataset::write(reader, uri, Some(params)).await.unwrap();
    };
    append(0..ROWS / 2).await;
    append(ROWS / 2..ROWS - FRESH).await;
    let index =
        VectorIndex { column: "vector".into(), partitions: Some(8), ..VectorIndex::default() };
    let lake = Lake::new(LakeOptions::default());
    build_index(&lake, uri, &IndexRequest::Vector(index), |_| {}).await.unwrap();
    append(ROWS - FRESH..ROWS).await;
    Dataset::open(uri).await.unwrap().delete("id % 10 = 9").await.unwrap();
}

/// Builds a scalar index with Lance.
pub async fn build_scalar(uri: &str, column: &str, kind: IndexType) {
    let params = ScalarIndexParams::for_builtin(kind.try_into().unwrap());
    let mut dataset = Dataset::open(uri).await.unwrap();
    dataset.create_index(&[column], kind, None, &params, false).await.unwrap();
}

pub fn address(id: i64) -> RowAddr {
    let starts = [0, ROWS / 2, ROWS - FRESH];
    let fragment = starts.iter().rposition(|start| *start <= id).unwrap();
    RowAddr::new(fragment as u32, (id - starts[fragment]) as u32)
}

fn step(op: PredicateOp, column: u32, values: &[&[u8]]) -> PredicateStep {
    let values = values.iter().map(|value| value.to_vec().into()).collect();
    PredicateStep { op: op.into(), column, values }
}

/// `size > 500 AND NOT name IN ('name-1', 'name-3')`, for the columns `name` and `size`.
fn predicate() -> Predicate {
    let steps = vec![
        step(PredicateOp::Greater, 1, &[&500_i64.to_le_bytes()]),
        step(PredicateOp::In, 0, &[b"name-1", b"name-3"]),
        step(PredicateOp::Not, 0, &[]),
        step(PredicateOp::And, 0, &[]),
    ];
    Predicate { steps }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_which_rows_pass_from_its_drives_and_from_the_table() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    Box::pin(write(&uri, false)).await;
    let version = Dataset::open(&uri).await.unwrap().version().version;
    let io = Io::start(|_| {}).await;
    let ids: Vec<i64> = (0..ROWS).step_by(3).chain([5, 5, 8]).collect();
    let addrs: Vec<_> = ids.iter().map(|id| address(*id)).chain([RowAddr::new(7, 1)]).collect();
    let passes = |id: &i64| is_live(*id) && size(*id) > Some(500) && id % 4 % 2 == 0;
    let expected: Vec<u32> =
        (0..).zip(&ids).filter(|(_, id)| passes(id)).map(|(at, _)| at).collect();
    let projection = io.open(&uri, version, &["name", "size"]).await;
    for warm in [false, true] {
        if warm {
            io.warm(&uri, version).await;
        }
        let reply = io.client.check(&projection, &addrs, &predicate(), soon()).await.unwrap();
        assert_eq!(reply.outcome, Outcome::Passing(expected.clone()), "warm {warm}");
        assert_eq!(reply.missing.last(), Some(&(ids.len() as u32)), "warm {warm}");
        // Both columns are in one pack, so a row costs one read at most.
        let times = reply.times();
        assert_eq!(times.table_rows == 0, warm);
        assert!(!warm || times.drive_reads as usize <= addrs.len());
    }
    refused(&io, &projection, &addrs[..4], vec![], "leave 0 results").await;
    let unknown = vec![PredicateStep { op: 99, ..PredicateStep::default() }];
    refused(&io, &projection, &addrs[..4], unknown, "operation 99 in step 0").await;
    let short = vec![step(PredicateOp::Less, 1, &[b"abc"])];
    refused(&io, &projection, &addrs[..4], short, "a value of 3 bytes").await;
    let beyond = vec![step(PredicateOp::IsNull, 2, &[])];
    refused(&io, &projection, &addrs[..4], beyond, "column 2").await;
    let several = vec![step(PredicateOp::Less, 0, &[b"a", b"b"])];
    refused(&io, &projection, &addrs[..4], several, "has 2 values").await;
    // The stream goes on.
    let rerank = Some(Rerank::new(&[0.0; DIMENSION], Metric::L2, 1));
    let vectors = io.open(&uri, version, &["vector"]).await;
    let near = io.client.fetch(&vectors, addrs[..4].to_vec(), rerank, soon()).await.unwrap();
    assert_eq!(near.into_neighbors().unwrap().len(), 1);
    io.stop().await;
}

async fn refused(
    io: &Io,
    projection: &Projection,
    addrs: &[RowAddr],
    steps: Vec<PredicateStep>,
    why: &str,
) {
    let fault = io.client.check(projection, addrs, &Predicate { steps }, soon()).await.unwrap_err();
    assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
    assert!(fault.message.contains(why), "{fault}");
}

/// The answer of a search.
pub struct Answer {
    pub ids: Vec<i64>,
    pub distances: Vec<f32>,
    /// The name and detail of each stage.
    pub details: Vec<String>,
}

pub async fn search(cluster: &Cluster, filter: &str, seed: i64, k: u32, after: bool) -> Answer {
    let values = vector(seed * 977 + 5).iter().map(|x| x + 0.01).collect();
    let request = SearchRequest {
        table: "t".into(),
        by: Some(By::Vector(Vector { values })),
        filter: filter.into(),
        filter_after: after,
        k,
        nprobes: 8,
        refine_factor: Some(4),
        explain: true,
        columns: vec!["id".into()],
        ..Default::default()
    };
    let answer = cluster.client.search(request).await.unwrap();
    let details = answer.stages.iter().filter(|stage| stage.depth == 0);
    Answer {
        ids: answer.rows["id"].as_primitive::<Int64Type>().values().to_vec(),
        distances: answer.rows["_distance"].as_primitive::<Float32Type>().values().to_vec(),
        details: details.map(|stage| format!("{}: {}", stage.name, stage.detail)).collect(),
    }
}

/// A filter that I/O nodes can evaluate, the same condition in a form that they cannot evaluate, and a plain
/// computation of it.
pub type Case = (&'static str, &'static str, fn(i64) -> bool);

pub const CASES: [Case; 5] = [
    ("size > 500", "size + 0 * size > 500 AND abs(size) >= 0", |id| size(id) > Some(500)),
    ("size IS NULL", "size IS NULL AND abs(id) >= 0", |id| size(id).is_none()),
    ("name IN ('name-0', 'name-2', 'x', 'y')", "id % 2 = 0", |id| id % 2 == 0),
    (
        "NOT (name = 'name-1' OR size < 100)",
        "NOT (name = 'name-1' OR size < 100) AND abs(id) >= 0",
        |id| id % 4 != 1 && size(id) >= Some(100),
    ),
    ("id >= 6000 AND size IS NOT NULL", "id >= 6000 AND abs(size) >= 0", |id| {
        id >= 6000 && size(id).is_some()
    }),
];

/// Returns the ids and distances that a search finds with a filter that I/O nodes cannot evaluate.
pub async fn listed(cluster: &Cluster, plain: &str, seed: i64) -> (Vec<i64>, Vec<f32>) {
    let answer = search(cluster, plain, seed, 5, false).await;
    assert!(answer.details.iter().any(|it| it.contains("by a scan")), "{:?}", answer.details);
    (answer.ids, answer.distances)
}

/// Checks that a search with `filter_after` returns those rows of a search without a filter that pass the filter.
pub async fn check_after(
    cluster: &Cluster,
    filter: &str,
    seed: i64,
    passes: fn(i64) -> bool,
    context: &str,
) {
    let after = search(cluster, filter, seed, 50, true).await;
    let all = search(cluster, "", seed, 50, false).await;
    let expected: Vec<_> = all.ids.into_iter().filter(|id| passes(*id)).collect();
    assert_eq!(after.ids, expected, "{context}");
}

async fn check_searches(uri: &Path, stable_row_ids: bool, io_nodes: usize) {
    Box::pin(write(uri.to_str().unwrap(), stable_row_ids)).await;
    for warm in [false, true] {
        // The new cluster's query node has not cached the rows of any filter yet.
        let cluster = Cluster::start(io_nodes, &[("t", uri)]).await;
        if warm {
            let uri = uri.to_str().unwrap();
            let version = Dataset::open(uri).await.unwrap().version().version;
            for io in &cluster.io {
                io.warm(uri, version).await;
            }
        }
        for (seed, (filter, plain, passes)) in (0..).zip(CASES) {
            let context =
                format!("`{filter}`, {io_nodes} nodes, stable {stable_row_ids}, warm {warm}");
            let near = search(&cluster, filter, seed, 5, false).await;
            let filtered: Vec<_> =
                near.details.iter().filter(|it| it.starts_with("filter: ")).collect();
            assert!(!filtered.is_empty(), "{context}: {:?}", near.details);
            let told = near.details.iter().any(|it| {
                it.starts_with("search: ") && it.contains("the filter is evaluated for candidates")
            });
            assert!(told, "{context}: {:?}", near.details);
            let (ids, distances) = listed(&cluster, plain, seed).await;
            assert_eq!((near.ids.len(), &near.ids), (5, &ids), "{context}");
            assert_eq!(near.distances, distances, "{context}");
            assert!(
                near.ids.iter().all(|id| passes(*id) && is_live(*id)),
                "{context}: {:?}",
                near.ids
            );
            check_after(&cluster, filter, seed, passes, &context).await;
        }
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_that_filter_candidates_answer_like_those_that_know_all_rows() {
    for (stable_row_ids, io_nodes) in [(false, 1), (true, 2)] {
        let folder = folder();
        let uri = folder.path().join("table");
        Box::pin(check_searches(&uri, stable_row_ids, io_nodes)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_that_indexes_leave_are_filtered_without_a_scan_of_the_table() {
    for (stable_row_ids, io_nodes) in [(false, 2), (true, 1)] {
        let folder = folder();
        let uri = folder.path().join("table");
        let path = uri.to_str().unwrap();
        Box::pin(write(path, stable_row_ids)).await;
        build_scalar(path, "name", IndexType::Bitmap).await;
        build_scalar(path, "id", IndexType::BTree).await;
        let version = Dataset::open(path).await.unwrap().version().version;
        let cluster = Cluster::start(io_nodes, &[("t", &uri)]).await;
        for io in &cluster.io {
            io.warm(path, version).await;
        }
        // Nobody can read the table's columns now, except from the drives of the I/O nodes.
        let (data, away) = (uri.join("data"), uri.join("away"));
        std::fs::rename(&data, &away).unwrap();
        let cases: [Case; 4] = [
            (
                "name IN ('name-0', 'name-2') AND size > 500",
                "id % 2 = 0 AND abs(size) > 500",
                |id| id % 2 == 0 && size(id) > Some(500),
            ),
            // Hardly any row passes.
            (
                "name = 'name-1' AND size IN (3, 333)",
                "id % 4 = 1 AND abs(size) IN (3, 333)",
                |id| id % 4 == 1 && [Some(3), Some(333)].contains(&size(id)),
            ),
            // Few rows are left.
            ("id >= 11880 AND size > 500", "id + 0 >= 11880 AND abs(size) > 500", |id| {
                id >= 11_880 && size(id) > Some(500)
            }),
            ("name = 'none' AND size > 500", "id < 0 AND abs(size) > 500", |_| false),
        ];
        let mut answers = Vec::new();
        for (seed, (filter, _, passes)) in (0..).zip(cases) {
            let context = format!("`{filter}`, {io_nodes} nodes");
            let near = search(&cluster, filter, seed, 5, false).await;
            let left = near.details.iter().find(|it| it.contains("scalar indexes leave"));
            let left = left.unwrap_or_else(|| panic!("{context}: {:?}", near.details));
            let is_each = left.contains("for each of which the filter is evaluated");
            assert_eq!(is_each, seed > 1, "{context}: {left}");
            assert!(near.ids.iter().all(|id| passes(*id) && is_live(*id)), "{context}");
            check_after(&cluster, filter, seed, passes, &context).await;
            answers.push((context, near));
        }
        std::fs::rename(&away, &data).unwrap();
        for (seed, ((_, plain, passes), (context, near))) in (0..).zip(cases.iter().zip(answers)) {
            let listed = search(&cluster, plain, seed, 5, false).await;
            let count = (0..ROWS).filter(|id| passes(*id) && is_live(*id)).count();
            assert_eq!(near.ids.len(), 5.min(count), "{context}");
            assert_eq!((near.ids, near.distances), (listed.ids, listed.distances), "{context}");
        }
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_finds_the_rows_if_too_few_candidates_pass() {
    let folder = folder();
    let uri = folder.path().join("table");
    Box::pin(write(uri.to_str().unwrap(), false)).await;
    let cluster = Cluster::start(1, &[("t", &uri)]).await;
    let answer = search(&cluster, "size = 0", 1, 5, false).await;
    let mut expected: Vec<_> =
        (0..ROWS).filter(|id| is_live(*id) && size(*id) == Some(0)).collect();
    let by_scan = answer.details.iter().find(|it| it.contains("by a scan")).unwrap();
    assert!(by_scan.contains(", because only "), "{by_scan}");
    // The node has filled no rows yet.
    let cold = "candidates passed, and most rows came from the table";
    assert!(by_scan.ends_with(cold), "{by_scan}");
    assert_eq!(answer.ids.len(), 5.min(expected.len()));
    expected.retain(|id| answer.ids.contains(id));
    assert_eq!(expected.len(), answer.ids.len());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_io_nodes_a_filter_finds_the_same_rows() {
    let folder = folder();
    let uri = folder.path().join("table");
    Box::pin(write(uri.to_str().unwrap(), false)).await;
    let mut cluster = Cluster::start(2, &[("t", &uri)]).await;
    let (filter, plain, _) = CASES[0];
    let listed = search(&cluster, plain, 3, 5, false).await;
    for io in cluster.io.drain(..) {
        io.stop().await;
    }
    let near = search(&cluster, filter, 3, 5, false).await;
    assert_eq!((near.ids, near.distances), (listed.ids, listed.distances));
    cluster.stop().await;
}
