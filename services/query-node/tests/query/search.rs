use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use client::query::{By, CountRequest, SearchRequest};
use lake::{Metric, VectorIndexKind};
use query_node::QueryConfig;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::reply::Outcome;
use wire::fetch::{Batch, Opened, Reply};
use wire::{Fault, Reason, schema_to_bytes};

use crate::ejection::failing;
use crate::fake_io;
use crate::keys::with_metrics;
use crate::node::{
    addresses, assert_true, by, config, ids, metrics, names, near, numbers, serve, serve_with,
    served, words,
};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, is_live, live, vector};

/// Returns the `k` nearest of `among`, by a plain computation.
fn nearest(
    query: &[f32],
    metric: Metric,
    k: usize,
    among: impl Iterator<Item = i64>,
) -> Vec<(i64, f32)> {
    let mut all: Vec<(i64, f32)> =
        among.map(|id| (id, distance(query, &vector(id), metric))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all.truncate(k);
    all
}

fn distance(a: &[f32], b: &[f32], metric: Metric) -> f32 {
    let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let dot: f64 = pairs().map(|(a, b)| a * b).sum();
    let norm = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let distance = match metric {
        Metric::L2 => pairs().map(|(a, b)| (a - b).powi(2)).sum(),
        Metric::Cosine => 1.0 - dot / (norm(a) * norm(b)),
        Metric::Dot => 1.0 - dot,
        Metric::Hamming => unreachable!("not among the tests"),
    };
    distance as f32
}

/// Returns the recall. Asserts that distances are correct and in order.
fn recall(rows: &RecordBatch, query: &[f32], metric: Metric, truth: &[(i64, f32)]) -> f64 {
    let (ids, distances) = (ids(rows), numbers(rows, "_distance"));
    assert!(distances.is_sorted(), "{distances:?}");
    for (&id, &got) in ids.iter().zip(&distances) {
        let exact = distance(query, &vector(id), metric);
        assert!((got - exact).abs() <= 1e-4 * exact.abs().max(1.0), "{id}: {got}, not {exact}");
    }
    let found: HashSet<i64> = ids.into_iter().collect();
    truth.iter().filter(|(id, _)| found.contains(id)).count() as f64 / truth.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn refined_searches_find_the_nearest_whatever_the_index_and_metric() {
    use VectorIndexKind::{IvfPq, IvfRq};
    for (kind, metric) in [
        (IvfRq, Metric::L2),
        (IvfRq, Metric::Cosine),
        (IvfPq, Metric::Dot),
        (IvfPq, Metric::Cosine),
    ] {
        let table = TestTable::indexed(kind, metric).await;
        let (node, client) = serve(&[("t", &table)]).await;
        let mut found = 0.0;
        for i in 0..20 {
            let query: Vec<f32> = vector(i * 131).iter().map(|x| x + 0.1).collect();
            let answer = client.search(near(query.clone(), 10)).await.unwrap();
            assert_eq!(answer.rows.num_rows(), 10);
            assert_true(&answer.rows);
            let truth = nearest(&query, metric, 10, live());
            found += recall(&answer.rows, &query, metric, &truth) / 20.0;
        }
        assert!(found >= 0.95, "recall {found} with {kind} and {metric}");
        assert!(node.fallback_rows() > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_index_does_not_cover_are_candidates_too() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let table = TestTable::indexed(VectorIndexKind::IvfRq, metric).await;
        table.append(ROWS..ROWS + 40).await;
        table.delete("id % 10 = 7").await;
        let (_node, client) = serve(&[("t", &table)]).await;
        let fresh = || (ROWS..ROWS + 40).filter(|&id| is_live(id));
        for id in [5, ROWS + 12, ROWS + 31] {
            let query: Vec<f32> = vector(id).iter().map(|x| x + 0.05).collect();
            let truth = nearest(&query, metric, 10, live().chain(fresh()));
            let request = SearchRequest { explain: true, ..near(query.clone(), 10) };
            let answer = client.search(request.clone()).await.unwrap();
            assert!(recall(&answer.rows, &query, metric, &truth) >= 0.9);
            let search = answer.stages.iter().find(|stage| stage.name == "search").unwrap();
            let said = "100 candidates, from 16 partitions of the index, and 36 rows that it does \
                        not cover";
            assert_eq!(search.detail, said);
            // Distances are exact without refinement too: because fresh rows are scored exactly, all candidates are.
            let answer = client.search(SearchRequest { refine_factor: Some(0), ..request });
            let rows = answer.await.unwrap().rows;
            let truth: Vec<_> = truth.into_iter().filter(|(id, _)| *id >= ROWS).collect();
            assert!(truth.is_empty() || recall(&rows, &query, metric, &truth) == 1.0);
        }
    }
}

/// An I/O node that returns only the nearest rows breaks ties by the order of the rows.
#[tokio::test(flavor = "multi_thread")]
async fn candidates_are_scored_in_the_order_of_their_addresses() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = DataType::FixedSizeList(item, vector(0).len() as i32);
    let schema = schema_to_bytes(&Schema::new(vec![Field::new("vector", vectors, true)])).unwrap();
    let asked: Arc<Mutex<Vec<Batch>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let io = fake_io::serve(move |asked| match asked {
        RequestKind::Open(open) => {
            let schema = schema.clone();
            vec![ResponseKind::Opened(Opened { handle: open.handle, schema, error: None })]
        }
        RequestKind::Batches(batches) => {
            let refused = |batch: &Batch| {
                let error = Fault::new(Reason::UnsupportedType, "no rows").into();
                let outcome = Some(Outcome::Error(error));
                ResponseKind::Reply(Reply { id: batch.id, outcome, ..Default::default() })
            };
            let replies = batches.batches.iter().map(refused).collect();
            noted.lock().unwrap().extend(batches.batches);
            replies
        }
        _ => Vec::new(),
    });
    let config = QueryConfig { io_nodes: vec![io.await], ..config(&[("t", &table)]) };
    let (_node, client) = serve_with(config).await;
    client.search(near(vector(5), 10)).await.unwrap();
    let asked = asked.lock().unwrap();
    let scored: Vec<&Batch> = asked.iter().filter(|batch| batch.rerank.is_some()).collect();
    assert_eq!(scored.iter().map(|batch| batch.row_addrs.len()).sum::<usize>(), 100);
    assert!(scored.iter().all(|batch| batch.row_addrs.is_sorted()), "{scored:?}");
}

/// The I/O node fails, so the vectors are read from the table, 4 MiB at a time.
#[tokio::test(flavor = "multi_thread")]
async fn vectors_that_no_io_node_scores_are_read_in_parts() {
    const DIMENSION: usize = 2048;
    let rows = 1200;
    let values = (0..rows).flat_map(|row| std::iter::repeat_n(row as f32, DIMENSION));
    let values = Arc::new(Float32Array::from_iter_values(values));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::new(item, DIMENSION as i32, values, None);
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int64Array::from_iter_values(0..rows))), ("vector", Arc::new(vectors))];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let (io, _) = failing().await;
    let (node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        // The node is asked each time.
        ejection_failures: 1000,
        ..config(&[("t", &table)])
    })
    .await;
    // In the first part, the second one and the third.
    for row in [3, 700, 1100] {
        let query = vec![row as f32 + 0.3; DIMENSION];
        let found = client.search(near(query, 5)).await.unwrap();
        assert_eq!(ids(&found.rows), [row, row + 1, row - 1, row + 2, row - 2]);
    }
    // Each search scores all rows, and fetches five.
    assert_eq!(node.fallback_rows(), 3 * (rows as u64 + 5));
}

/// By cosine, the distance of many of these vectors to themselves is computed as a little less than 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_lower_bound_of_0_leaves_out_no_equal_vector() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::Cosine).await;
    let (_node, client) = serve(&[("t", &table)]).await;
    for id in live().take(40) {
        for exact in [false, true] {
            let request = SearchRequest { exact, lower_bound: Some(0.0), ..near(vector(id), 10) };
            let rows = client.search(request).await.unwrap().rows;
            assert_eq!((ids(&rows)[0], rows.num_rows()), (id, 10), "exact: {exact}");
            assert!(numbers(&rows, "_distance")[0] >= 0.0);
        }
    }
}

/// All candidates of the index are nearer than the bound, and more rows than are wanted, which it does not cover, are
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn a_lower_bound_leaves_out_no_indexed_row_beside_uncovered_ones() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    table.append(ROWS..ROWS + 300).await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let rows = || live().chain(ROWS..ROWS + 300);
    for id in [3, 555, 1999] {
        let all = nearest(&vector(id), Metric::L2, 1_000, rows());
        let lower = all[700].1;
        let request = SearchRequest {
            nprobes: 16,
            refine_factor: Some(40),
            lower_bound: Some(lower),
            ..near(vector(id), 5)
        };
        let found = client.search(request).await.unwrap().rows;
        let beyond = all.iter().filter(|(_, distance)| *distance >= lower).take(5);
        let is_indexed = |id: &i64| *id < ROWS;
        let expected = beyond.filter(|(id, _)| is_indexed(id)).count();
        // The index only estimates which rows are just beyond the bound, so others of its rows may be found.
        let found = ids(&found).into_iter().filter(is_indexed).count();
        assert!(expected > 2 && found > 2, "row {id}: {found} of {expected} indexed rows");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_has_the_columns_asked_for() {
    let (_table, _node, client) = served().await;
    let answer = client.search(near(vector(5), 3)).await.unwrap();
    assert_eq!(names(&answer.rows), ["id", "key", "text", "tag", "_rowaddr", "_distance"]);
    let columns = ["vector", "tag", "id"].map(str::to_owned).to_vec();
    let request = SearchRequest { columns, ..near(vector(5), 3) };
    let answer = client.search(request).await.unwrap();
    assert_eq!(names(&answer.rows), ["vector", "tag", "id", "_rowaddr", "_distance"]);
    assert_true(&answer.rows);
    assert_eq!(ids(&answer.rows)[0], 5);
    assert!(numbers(&answer.rows, "_distance")[0].abs() < 1e-5);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_refinement_the_index_has_its_say() {
    let (_table, node, client) = served().await;
    let request = SearchRequest {
        refine_factor: Some(0),
        columns: vec!["id".into()],
        ..near(vector(5), 100)
    };
    let answer = client.search(request).await.unwrap();
    // Only the columns of the answer were fetched, no vectors.
    assert_eq!((answer.rows.num_rows(), node.fallback_rows()), (100, 100));
    assert!(numbers(&answer.rows, "_distance").is_sorted());
    let truth = nearest(&vector(5), Metric::L2, 100, live());
    let found: HashSet<i64> = ids(&answer.rows).into_iter().collect();
    assert!(truth.iter().filter(|(id, _)| found.contains(id)).count() >= 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_holds_before_the_search() {
    let (_table, _node, client) = served().await;
    let query = vector(1234);
    let filter = "id < 300 AND tag = 'tag-1'".to_owned();
    let request = SearchRequest { filter, ..near(query.clone(), 10) };
    let answer = client.search(request).await.unwrap();
    let truth = nearest(&query, Metric::L2, 10, live().filter(|id| *id < 300 && id % 3 == 1));
    assert_eq!(recall(&answer.rows, &query, Metric::L2, &truth), 1.0);
    assert_eq!(ids(&answer.rows), truth.iter().map(|(id, _)| *id).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_alone_gives_the_first_rows() {
    let (_table, _node, client) = served().await;
    let filter = "id >= 1990".to_owned();
    let request = SearchRequest { table: "t".into(), filter, k: 20, ..Default::default() };
    let answer = client.search(request).await.unwrap();
    let truth: Vec<i64> = (1990..).filter(|&id| is_live(id)).take(20).collect();
    assert_eq!(ids(&answer.rows), truth);
    assert_eq!(names(&answer.rows).last().unwrap(), "_rowaddr");
    assert_true(&answer.rows);
    let filter = "id < 0".to_owned();
    let request = SearchRequest { table: "t".into(), filter, k: 20, ..Default::default() };
    let answer = client.search(request).await.unwrap();
    assert_eq!(answer.rows.num_rows(), 0);
    assert_eq!(names(&answer.rows), ["id", "key", "text", "tag", "_rowaddr"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_alone_uses_the_rows_that_an_earlier_search_has_found() {
    let (_table, _node, client) = served().await;
    let filter = "id >= 1990 OR id = 3".to_owned();
    let request = SearchRequest {
        table: "t".into(),
        filter: filter.clone(),
        k: 20,
        explain: true,
        ..Default::default()
    };
    let truth: Vec<i64> =
        [3].into_iter().chain(1990..).filter(|&id| is_live(id)).take(20).collect();
    let rows = |count| format!("20 candidates{count}");
    let passing = live().filter(|id| *id >= 1990 || *id == 3).count();
    let known = rows(format!("; {passing} rows of the version pass the filter, by a scan"));
    for expected in [rows(String::new()), known] {
        let answer = client.search(request.clone()).await.unwrap();
        assert_eq!(ids(&answer.rows), truth);
        let search = answer.stages.iter().find(|stage| stage.name == "search").unwrap();
        assert_eq!(search.detail, expected);
        client
            .search(SearchRequest { filter: filter.clone(), ..words("willow", 7) })
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn like_a_row_means_near_its_vector_and_answers_repeat_themselves() {
    let (_table, _node, client) = served().await;
    let like = || client.search(by(By::Like("row-2042".into()), 10));
    let answer = like().await.unwrap();
    assert_eq!(ids(&answer.rows)[0], 2042);
    let truth = nearest(&vector(2042), Metric::L2, 10, live());
    assert!(recall(&answer.rows, &vector(2042), Metric::L2, &truth) >= 0.9);
    assert_eq!(like().await.unwrap().rows, answer.rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_index_the_search_is_exact() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let query = vector(77);
    let answer = client.search(near(query.clone(), 25)).await.unwrap();
    let truth = nearest(&query, Metric::L2, 25, live());
    assert_eq!(recall(&answer.rows, &query, Metric::L2, &truth), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rows_than_there_are_gives_all_of_them() {
    let (_table, _node, client) = served().await;
    let request = SearchRequest { refine_factor: Some(1), nprobes: 16, ..near(vector(3), 5000) };
    let answer = client.search(request).await.unwrap();
    let mut all = addresses(&answer.rows);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), live().count());
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_are_told_in_order_when_asked_for() {
    let (_table, _node, client) = served().await;
    let request = SearchRequest { explain: true, ..by(By::Like("row-8".into()), 5) };
    let answer = client.search(request).await.unwrap();
    let names: Vec<&str> = answer.stages.iter().map(|stage| stage.name.as_str()).collect();
    let order =
        ["validate", "lookup", "vector", "search", "rerank", "rank", "fetch", "assemble", "reply"];
    assert_eq!(names, order);
    assert!(answer.stages[1].detail.contains("`row-8` in column `key`: row 0:8"));
    assert!(answer.stages[2].detail.contains("1 row from the table by this node"));
    assert!(answer.stages[4].detail.contains("50 rows from the table by this node"));
    let quiet = client.search(near(vector(5), 5)).await.unwrap();
    assert_eq!(quiet.stages, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_says_how_it_found_its_candidates() {
    let plain = TestTable::plain().await;
    let indexed = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let (_node, client) = serve(&[("plain", &plain), ("indexed", &indexed)]).await;
    for (table, filter, exhaustive, said) in [
        (
            "plain",
            "",
            true,
            "3 candidates, of every row, read from the table: the vectors have no index",
        ),
        (
            "plain",
            "id < 50",
            true,
            "3 candidates, of every row that passes, read from the table: the vectors have no index",
        ),
        ("indexed", "", false, "30 candidates, from 16 partitions of the index"),
        (
            "indexed",
            "id < 50",
            false,
            "45 rows of the version pass the filter, by a scan, each of which is scored, because that costs less than to \
             search the index",
        ),
        (
            "indexed",
            "id < 400",
            false,
            "30 candidates, from 16 partitions of the index; 360 rows of the version pass the filter, by a scan",
        ),
    ] {
        let request = SearchRequest {
            table: table.into(),
            filter: filter.into(),
            explain: true,
            ..near(vector(5), 3)
        };
        let found = client.search(request).await.unwrap();
        assert_eq!(found.exhaustive, exhaustive, "{table} {filter}");
        let search = found.stages.iter().find(|stage| stage.name == "search").unwrap();
        assert_eq!(search.detail, said);
    }
    let found = client.search(SearchRequest { table: "indexed".into(), ..words("oak", 3) }).await;
    assert!(!found.unwrap().exhaustive);
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_are_counted_by_what_they_read() {
    let plain = TestTable::plain().await;
    let indexed = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let config = with_metrics(config(&[("plain", &plain), ("indexed", &indexed)]));
    let (node, client) = serve_with(config).await;
    let of = |table: &str, filter: &str| SearchRequest {
        table: table.into(),
        filter: filter.into(),
        ..near(vector(5), 3)
    };
    let nothing = SearchRequest { table: "indexed".into(), k: 3, ..Default::default() };
    for (request, by, via, index) in [
        (of("plain", ""), "vector", "exhaustive", "none"),
        (of("plain", "id < 50"), "vector", "exhaustive", "none"),
        (SearchRequest { exact: true, ..of("indexed", "") }, "vector", "exhaustive", "none"),
        // Few rows pass, so all of them are scored, and the index is not searched.
        (of("indexed", "id < 50"), "vector", "scored", "none"),
        (of("indexed", "id < 400"), "vector", "index", "IVF_RQ"),
        (of("indexed", "id < 400 AND now() IS NOT NULL"), "vector", "scanner", "IVF_RQ"),
        (SearchRequest { table: "indexed".into(), ..words("oak", 3) }, "text", "index", "Inverted"),
        (
            SearchRequest { filter: "key = 'row-5'".into(), ..nothing.clone() },
            "filter",
            "index",
            "planned",
        ),
        (SearchRequest { filter: "id < 60".into(), ..nothing }, "filter", "scanner", "planned"),
    ] {
        let labels = format!("by=\"{by}\",via=\"{via}\",index=\"{index}\"");
        let count = async || {
            let text = metrics(&node).await;
            let value = |line: &str| {
                let (labels_and_more, value) =
                    line.strip_prefix("bireme_query_searches_total{")?.split_once("} ")?;
                Some((labels_and_more == labels, value.parse::<u64>().unwrap()))
            };
            let counts: Vec<_> = text.lines().filter_map(value).collect();
            let all: u64 = counts.iter().map(|(_, count)| count).sum();
            let these: u64 =
                counts.iter().filter(|(is_this, _)| *is_this).map(|(_, count)| count).sum();
            (these, all)
        };
        let before = count().await;
        client.search(request.clone()).await.unwrap();
        assert_eq!(count().await, (before.0 + 1, before.1 + 1), "{labels}: {request:?}");
    }
    // The three exhaustive searches have candidates; the search that scores all rows that pass has none.
    let of_none = "bireme_query_search_candidates_count{index=\"none\"}";
    assert_eq!(metric(&node, of_none).await, 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_with_and_without_a_filter() {
    let (_table, _node, client) = served().await;
    let count = async |filter: &str, version| {
        let request = CountRequest {
            table: "t".into(),
            filter: filter.into(),
            version,
            ..Default::default()
        };
        client.count(request).await
    };
    let all = count("", 0).await.unwrap();
    assert_eq!(all.rows, live().count() as u64);
    assert_eq!(all.version, client.describe("t", 0).await.unwrap().response.version);
    // With a scalar index, and by a scan.
    for filter in ["id < 100", "abs(id) < 100"] {
        let counted = count(filter, 0).await.unwrap();
        assert_eq!(counted.rows, live().filter(|id| *id < 100).count() as u64, "{filter}");
    }
    let first = count(" ", 1).await.unwrap();
    assert_eq!((first.rows, first.version), (2000, 1));
    let refused = count("id <", 0).await.unwrap_err();
    assert_eq!(refused.reason, Reason::BadFilter, "{refused}");
}
