//! Searches that ask for a recall, the curves that a node knows, and Tune.

use std::path::{Path, PathBuf};

use client::query::{By, QueryClient, SearchRequest, TuneProgress, TuneRequest, Vector};
use futures::{StreamExt, TryStreamExt};
use lake::{IndexRequest, Metric, VectorIndex, VectorIndexKind, build_index};
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;
use query_node::QueryNode;
use recall::{Curve, CurveFiles, decode, encode};
use tonic::transport::Endpoint;
use wire::query::IndexRecall;
use wire::query::query_service_client::QueryServiceClient;
use wire::{Fault, Reason};

use crate::keys::with_metrics;
use crate::node::{addresses, config, near, serve, serve_with, words};
use crate::operate::metric;
use crate::overload::PATIENCE;
use crate::table::{ROWS, TestTable, lake, vector};

/// The number of rows that are drawn as questions: each is compared with all rows, which are read from the table.
const QUESTIONS: u32 = 60;

async fn steps(client: &QueryClient, request: TuneRequest) -> Result<Vec<TuneProgress>, Fault> {
    let steps = client.tune(request).await?.collect::<Vec<_>>().await;
    steps.into_iter().collect()
}

pub fn request() -> TuneRequest {
    TuneRequest { table: "t".into(), rows: QUESTIONS, ..Default::default() }
}

pub async fn tuned(client: &QueryClient, request: TuneRequest) -> Curve {
    let steps = steps(client, request).await.unwrap();
    decode(&steps.last().unwrap().curve).unwrap()
}

pub async fn keep(table: &TestTable, curve: &Curve) -> PathBuf {
    let files = CurveFiles::of(&lake().open(&table.uri).await.unwrap()).await.unwrap();
    let name = files.write(&encode(curve).unwrap()).await.unwrap();
    Path::new(&table.uri).join("_bireme/recall").join(name)
}

/// Starts another node for `table`, which looks for curves at its start.
async fn restarted(table: &TestTable) -> (QueryNode, QueryClient) {
    let (node, client) = serve_with(with_metrics(config(&[("t", table)]))).await;
    node.ready().await;
    (node, client)
}

/// Makes a table with an index, and measures and keeps the index's curve. No node serves the table afterwards.
async fn measured() -> (TestTable, Curve) {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let (_node, client) = restarted(&table).await;
    let curve = tuned(&client, request()).await;
    keep(&table, &curve).await;
    (table, curve)
}

fn wants(recall: f32) -> SearchRequest {
    SearchRequest { recall: Some(recall), explain: true, ..near(vector(5), 10) }
}

/// Searches, and returns the detail of the stage that searched the index.
async fn detail(client: &QueryClient, request: SearchRequest) -> Result<String, Fault> {
    let stages = client.search(request).await?.stages;
    Ok(stages.into_iter().find(|stage| stage.name == "search").unwrap().detail)
}

async fn described(client: &QueryClient) -> Option<IndexRecall> {
    let indexes = client.describe("t", 0).await.unwrap().response.indexes;
    indexes.into_iter().find(|index| !index.metric.is_empty()).unwrap().recall
}

async fn index(table: &TestTable, kind: VectorIndexKind) {
    let request = VectorIndex {
        column: "vector".into(),
        kind,
        metric: Metric::L2,
        partitions: Some(16),
        ..Default::default()
    };
    build_index(&lake(), &table.uri, &IndexRequest::Vector(request), |_| {}).await.unwrap();
}

fn assert_unknown(fault: &Fault, says: &str) {
    assert_eq!(fault.reason, Reason::RecallUnknown, "{fault}");
    assert!(fault.message.contains(says), "{fault}: {says}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_takes_the_cheapest_setting_that_the_curve_has() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let fault = client.search(wants(0.9)).await.unwrap_err();
    assert_unknown(
        &fault,
        "of column `vector` of table `t` was never measured; measure it with `bireme tune t`",
    );
    assert_eq!(described(&client).await, None);

    let steps = steps(&client, request()).await.unwrap();
    let exact: Vec<_> = steps.iter().filter(|step| step.step == "exact").collect();
    assert_eq!(exact.last().unwrap().done, exact[0].total, "all rows were compared");
    let curve = decode(&steps.last().unwrap().curve).unwrap();
    assert_eq!((curve.question_count, curve.index.partitions, curve.version), (QUESTIONS, 16, 8));
    let of_10 = curve.of_k.iter().find(|it| it.k == 10).unwrap();
    let best = of_10.points.last().unwrap();
    assert!(best.recall > 0.999 && of_10.points[0].recall < best.recall, "{of_10:?}");
    keep(&table, &curve).await;

    // Because the node knows no curve, it looks for curves again, at most every 2 s.
    let found = loop {
        match client.search(wants(0.9)).await {
            Err(fault) => assert_unknown(&fault, "never measured"),
            Ok(found) => break found,
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let setting = curve.choose(10, 0.9).unwrap();
    let (nprobes, factor) = (setting.nprobes, setting.refine_factor);
    let explained = &found.stages.iter().find(|stage| stage.name == "search").unwrap().detail;
    let says = format!(
        "nprobes {nprobes} and refine factor {factor} for recall 0.9, by the curve of version 8"
    );
    assert!(explained.contains(&says), "{explained}: {says}");
    let explicit = SearchRequest { nprobes, refine_factor: Some(factor), ..near(vector(5), 10) };
    let explicit = client.search(explicit).await.unwrap();
    assert_eq!(addresses(&found.rows), addresses(&explicit.rows));

    let filtered = SearchRequest { filter: "id < 1500".into(), ..wants(0.9) };
    let explained = detail(&client, filtered).await.unwrap();
    assert!(
        explained.ends_with("the curve makes no claim about searches with a filter"),
        "{explained}"
    );
    let like = SearchRequest { by: Some(By::Like("row-8".into())), ..wants(0.9) };
    assert!(detail(&client, like).await.unwrap().contains("for recall 0.9"));
    let fault = client.search(wants(0.9999)).await.unwrap_err();
    assert_unknown(&fault, "no measured setting reaches it: the best recall@10 is 1.000");
    let fault = client.search(SearchRequest { k: 5000, ..wants(0.9) }).await.unwrap_err();
    assert_unknown(&fault, "recall was measured for at most 1000 rows");

    let described = described(&client).await.unwrap();
    assert_eq!(
        (described.version, described.questions, described.questions_given),
        (8, QUESTIONS, false)
    );
    let wanted = described.settings.iter().find(|it| it.k == 10 && it.wanted == 0.9).unwrap();
    assert_eq!((wanted.nprobes, wanted.refine_factor), (nprobes, factor));
    assert!(described.warnings.is_empty(), "{:?}", described.warnings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_curve_outlives_appended_rows_and_builds_by_the_same_parameters_but_no_other_index() {
    let (table, _) = measured().await;
    table.append(ROWS..ROWS + 50).await;
    let (_node, client) = restarted(&table).await;
    let explained = detail(&client, wants(0.9)).await.unwrap();
    assert!(
        explained.contains("50 rows that it does not cover") && !explained.contains("earlier"),
        "{explained}"
    );

    index(&table, VectorIndexKind::IvfRq).await;
    let (_node, client) = restarted(&table).await;
    let explained = detail(&client, wants(0.9)).await.unwrap();
    assert!(explained.ends_with(", of an earlier state of the index"), "{explained}");
    let warnings = described(&client).await.unwrap().warnings;
    assert!(warnings[0].contains("an earlier state of the index, of version 8"), "{warnings:?}");
    // A curve of this build is used as soon as there is one.
    let newer = tuned(&client, request()).await;
    let path = keep(&table, &newer).await;
    let (_node, client) = restarted(&table).await;
    let explained = detail(&client, wants(0.9)).await.unwrap();
    assert!(explained.contains(&format!("the curve of version {}", newer.version)), "{explained}");
    assert!(!explained.contains("earlier"), "{explained}");
    // Another curve of this build replaces it. The curve of the earlier build is kept for nodes that serve an earlier
    // version.
    let again = keep(&table, &newer).await;
    assert!(again.exists() && !path.exists());
    assert_eq!(std::fs::read_dir(again.parent().unwrap()).unwrap().count(), 2);

    index(&table, VectorIndexKind::IvfPq).await;
    let (_node, client) = restarted(&table).await;
    let fault = client.search(wants(0.9)).await.unwrap_err();
    assert_unknown(
        &fault,
        "was measured on another index than it has now; measure it with `bireme tune t`",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_curve_outlives_a_merge_of_segments_and_partitions() {
    let (table, curve) = measured().await;
    table.append(ROWS..ROWS + 50).await;
    let mut dataset = lance::Dataset::open(&table.uri).await.unwrap();
    dataset.optimize_indices(&OptimizeOptions::default()).await.unwrap();
    let opened = lake().open(&table.uri).await.unwrap();
    let measurable = opened.measurable_index("vector").await.unwrap().unwrap();
    assert!(
        measurable.partitions < curve.index.partitions as usize,
        "{measurable:?}, {}",
        curve.index.partitions
    );
    let (_node, client) = restarted(&table).await;
    let explained = detail(&client, wants(0.9)).await.unwrap();
    assert!(explained.ends_with(", of an earlier state of the index"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_foreign_files_are_refused_and_counted() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let (node, client) = restarted(&table).await;
    let curve = tuned(&client, request()).await;
    drop((node, client));
    let file = keep(&table, &curve).await;
    let good = std::fs::read(&file).unwrap();
    let mut foreign = curve.clone();
    foreign.table = "another".into();
    foreign.index.segments = vec!["another".into()];
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    let refused = "bireme_query_recall_curves_refused_total";
    for (bytes, count, says) in [
        (damaged, 1.0, "was never measured"),
        (good[..good.len() / 2].to_vec(), 1.0, "was never measured"),
        (Vec::new(), 1.0, "was never measured"),
        // It is whole, but of another table.
        (encode(&foreign).unwrap(), 0.0, "was measured on another index"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let (node, client) = restarted(&table).await;
        assert_unknown(&client.search(wants(0.9)).await.unwrap_err(), says);
        assert_eq!(metric(&node, refused).await, count);
        node.refresh().await;
        assert_eq!(metric(&node, refused).await, count, "it is not read again");
        assert_eq!(client.search(near(vector(5), 10)).await.unwrap().rows.num_rows(), 10);
    }
    std::fs::write(&file, good).unwrap();
    let (_node, client) = restarted(&table).await;
    client.search(wants(0.9)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_configuration_names_is_used_without_one_beside_the_table() {
    let table = TestTable::indexed(VectorIndexKind::IvfPq, Metric::Cosine).await;
    let (node, client) = restarted(&table).await;
    let questions = (0..40).map(|id| Vector { values: vector(id * 31 + 5000) });
    let given = TuneRequest { questions: questions.collect(), rows: 0, ..request() };
    let curve = tuned(&client, given).await;
    assert_eq!(curve.question_count, 40);
    drop((node, client));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.curve");
    std::fs::write(&file, encode(&curve).unwrap()).unwrap();
    let start = async || {
        let mut config = with_metrics(config(&[("t", &table)]));
        let files = vec![folder.path().join("missing.curve"), file.clone()];
        config.tables.get_mut("t").unwrap().recall_curves = files;
        let (node, client) = serve_with(config).await;
        node.ready().await;
        (node, client)
    };
    let (node, client) = start().await;
    assert!(detail(&client, wants(0.8)).await.unwrap().contains("for recall 0.8"));
    assert!(described(&client).await.unwrap().questions_given);
    let beside = Path::new(&table.uri).join("_bireme");
    assert!(!beside.exists());
    drop((node, client));
    // The store can't list the folder beside the table.
    std::fs::create_dir(&beside).unwrap();
    std::os::unix::fs::symlink("recall", beside.join("recall")).unwrap();
    let files = CurveFiles::of(&lake().open(&table.uri).await.unwrap()).await.unwrap();
    assert!(files.list().await.is_err());
    let (_node, client) = start().await;
    assert!(detail(&client, wants(0.8)).await.unwrap().contains("for recall 0.8"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_measured_or_combined_is_refused() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let fault = steps(&client, request()).await.unwrap_err();
    assert_unknown(&fault, "it has no index, so every row is compared");
    // Without an index no row is missed, so no curve is needed.
    let found = client.search(wants(0.95)).await.unwrap();
    assert!(found.exhaustive);

    let argument = |fault: Fault, says: &str| {
        assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
        assert!(fault.message.contains(says), "{fault}: {says}");
    };
    for (change, says) in [
        (SearchRequest { nprobes: 5, ..wants(0.9) }, "`nprobes` is set beside `recall`"),
        (
            SearchRequest { refine_factor: Some(0), ..wants(0.9) },
            "`refine_factor` is set beside `recall`",
        ),
        (
            SearchRequest { recall: Some(0.9), ..words("oak", 3) },
            "`recall` applies only to searches by",
        ),
        (wants(1.0), "`recall` is 1; give a number between"),
        (wants(f32::NAN), "`recall` is NaN"),
    ] {
        argument(client.search(change).await.unwrap_err(), says);
    }
    let tune = async |request| steps(&client, request).await.unwrap_err();
    argument(
        tune(TuneRequest { rows: 2001, ..request() }).await,
        "`rows` is 2001; draw at most 2000",
    );
    let questions = vec![Vector { values: vector(1) }];
    argument(
        tune(TuneRequest { questions, ..request() }).await,
        "`rows` is set beside `questions`",
    );
    let questions = vec![Vector { values: vec![1.0] }];
    let fault = tune(TuneRequest { questions, rows: 0, ..request() }).await;
    assert_eq!(fault.reason, Reason::BadVector);
    assert_eq!(
        tune(TuneRequest { table: "none".into(), ..request() }).await.reason,
        Reason::TableNotFound
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_measured_and_an_index_that_refinement_does_not_repair_carries_a_warning() {
    let table = TestTable::indexed(VectorIndexKind::IvfHnswSq, Metric::L2).await;
    let (_node, client) = restarted(&table).await;
    let mut curve = tuned(&client, TuneRequest { rows: 20, ..request() }).await;
    let of_10 = curve.of_k.iter_mut().find(|it| it.k == 10).unwrap();
    assert!(of_10.points.last().unwrap().recall > 0.95, "{of_10:?}");
    assert!(of_10.points.iter().all(|it| it.recall <= 1.0 && it.candidates <= 500), "{of_10:?}");
    of_10.default_refine_best = 0.75;
    keep(&table, &curve).await;
    let (_node, client) = restarted(&table).await;
    assert!(detail(&client, wants(0.8)).await.unwrap().contains("for recall 0.8"));
    let warnings = described(&client).await.unwrap().warnings;
    assert!(warnings[0].contains("at most 0.750 with more partitions"), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tune_whose_caller_does_not_read_delays_no_other() {
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let (node, client) = serve(&[("t", &table)]).await;
    // Few reports fit into 64 bytes.
    let uri = format!("http://{}", node.local_addr());
    let endpoint = Endpoint::from_shared(uri).unwrap().initial_stream_window_size(64);
    let mut slow = QueryServiceClient::new(endpoint.connect().await.unwrap());
    let unread = slow.tune(request()).await.unwrap().into_inner();
    let other = tokio::time::timeout(PATIENCE, tuned(&client, request())).await;
    assert_eq!(other.expect("the other Tune has its turn").question_count, QUESTIONS);
    let steps: Vec<TuneProgress> = unread.try_collect().await.unwrap();
    assert_eq!(decode(&steps.last().unwrap().curve).unwrap().question_count, QUESTIONS);
}
