//! Tests the deadlines of requests that are answered in pieces, that report progress, or that may take long.

use std::time::Duration;

use client::query::{QueryClient, TakeRequest, WarmRequest};
use futures::StreamExt;
use lake::{Metric, VectorIndexKind};
use query_node::{AccessConfig, QueryConfig, QueryNode};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use wire::query::TuneRequest;
use wire::{Fault, Reason};

use crate::access::{policy, secret};
use crate::fake_io;
use crate::keys::with_metrics;
use crate::node::{config, metrics, serve_with};
use crate::operate::metric;
use crate::table::{TestTable, address_of};
use crate::take::{ROWS_FIRST, WIDE_PIECE_BYTES, wide_table, wide_take};

/// The maximum time of each wait: longer than the test takes on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of rows of [`large_take`]. With their vectors they are 65 MB, which is more than the node makes ahead of
/// a reader, and more than the connection holds.
const ROWS_TAKEN: usize = 200_000;

/// Returns a Take from `table` whose answer has many pieces.
pub fn large_take(table: &str) -> TakeRequest {
    TakeRequest {
        table: table.into(),
        row_addrs: vec![address_of(1).to_u64(); ROWS_TAKEN],
        columns: vec!["vector".into(), "id".into()],
        ..Default::default()
    }
}

/// Returns the fault with which a Warm of `t` ends.
async fn end_of_warm(client: &QueryClient) -> Fault {
    let warm = WarmRequest { table: "t".into(), ..Default::default() };
    let steps: Vec<_> = client.warm(warm).await.unwrap().collect().await;
    steps.into_iter().last().unwrap().unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_and_a_tune_end_at_the_deadline_of_their_caller() {
    // This I/O node answers no batch, and its Warms never end.
    let io = fake_io::serve(|_| Vec::new()).await;
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let config = QueryConfig { io_nodes: vec![io], ..config(&[("t", &table)]) };
    let (_node, client) = serve_with(config).await;
    let client = client.with_timeout(Duration::from_secs(10));
    let warmed = tokio::time::timeout(PATIENCE, end_of_warm(&client)).await;
    let fault = warmed.expect("the Warm ends");
    assert_eq!(fault.reason, Reason::DeadlineExceeded, "{fault}");
    assert!(fault.message.contains("the deadline passed during warm"), "{fault}");

    // So many questions take far longer.
    let tune = TuneRequest { table: "t".into(), rows: 2000, ..Default::default() };
    let steps = client.tune(tune).await.unwrap();
    let steps = tokio::time::timeout(PATIENCE, steps.collect::<Vec<_>>()).await;
    let last = steps.expect("the Tune ends").pop().unwrap();
    assert_eq!(last.unwrap_err().reason, Reason::DeadlineExceeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeout_of_a_grant_bounds_all_pieces_of_a_take_and_a_whole_warm() {
    let io = fake_io::serve(|_| Vec::new()).await;
    let (table, folder) = (TestTable::plain().await, tempfile::tempdir().unwrap());
    let grants = r#"
        [[grants]]
        name = "hasty"
        who = ["key:one"]
        tables = ["*"]
        may = ["read", "warm"]
        timeout = "10s"
    "#;
    let file = folder.path().join("access.toml");
    std::fs::write(&file, policy(grants)).unwrap();
    let access = Some(AccessConfig::Policy(file));
    let unanswered =
        QueryConfig { io_nodes: vec![io], access: access.clone(), ..config(&[("t", &table)]) };
    let (_unanswered, client) = serve_with(unanswered).await;
    let client = client.with_token(&secret("one")).unwrap();
    let warmed = tokio::time::timeout(PATIENCE, end_of_warm(&client)).await;
    assert_eq!(warmed.expect("the Warm ends").reason, Reason::DeadlineExceeded);

    let table = wide_table().await;
    let config = QueryConfig { access, ..config(&[("t", &table)]) };
    let (node, client) = serve_with(with_metrics(config)).await;
    let client = client.with_token(&secret("one")).unwrap();
    let mut taken = client.take(wide_take(2 * ROWS_FIRST)).await.unwrap();
    assert!(taken.next().await.unwrap().is_some());
    // The call ends although nobody reads.
    let is_counted = |line: &str| line.contains("/Take") && line.contains("DEADLINE_EXCEEDED");
    let ended = async {
        while !metrics(&node).await.lines().any(is_counted) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the call ends");
    // The rest of the first piece still waits for the reader.
    let held = metric(&node, "bireme_query_traffic_memory_usage_bytes").await;
    assert!(held >= WIDE_PIECE_BYTES as f64, "{held} bytes");
    let fault = loop {
        match taken.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("all rows were sent"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.reason, Reason::DeadlineExceeded, "{fault}");
}

/// Begins a call of plain HTTP. Its body, of two bytes, is still to be sent.
async fn begin(node: &QueryNode, path: &str, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Returns the first line of the answer to a call.
async fn status_line(stream: TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.unwrap();
    line
}

/// The bodies are late, so that the calls take longer than the timeouts, however fast the store is.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_all_versions_may_take_longer_than_other_calls() {
    let table = TestTable::plain().await;
    let timeout = Duration::from_millis(500);
    let (node, _client) = serve_with(QueryConfig { timeout, ..config(&[("t", &table)]) }).await;
    node.ready().await;
    let mut of_lancedb = begin(&node, "/v1/table/t/version/list/", "").await;
    for (path, more) in [
        ("/v1/table/t/version/list", ""),
        ("/v1/table/t/version/list/", "X-Request-Timeout-Ms: 500\r\n"),
    ] {
        let line = status_line(begin(&node, path, more).await).await;
        assert!(line.starts_with("HTTP/1.1 408 "), "{path} {more}: {line}");
    }
    of_lancedb.write_all(b"{}").await.unwrap();
    let line = status_line(of_lancedb).await;
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
}
