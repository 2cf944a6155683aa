//! Key indexes that a node writes beside a table.

use std::time::{Duration, Instant};

use bytesize::ByteSize;
use client::query::QueryClient;
use query_node::QueryNode;

use crate::key_runs::{files, folder, restarted, sources, write};
use crate::keys::{check_live, covered, get, with_metrics};
use crate::node::{config, serve_with};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, is_live, key};

/// The longest time until a node has written: the longest random wait, and as long again.
const PATIENCE: Duration = Duration::from_secs(20);

const PLENTY: ByteSize = ByteSize::mib(64);

const WRITTEN: &str = "bireme_query_key_index_written_total";
const FAILURES: &str = "bireme_query_key_index_write_failures_total";

/// Serves a table on a node that writes its runs, and waits until the key index covers it.
async fn writer(table: &TestTable) -> (QueryNode, QueryClient) {
    let mut config = with_metrics(config(&[("t", table)]));
    let of_table = config.tables.get_mut("t").unwrap();
    (of_table.key, of_table.write_key_runs) = (Some("key".into()), true);
    let (node, client) = serve_with(config).await;
    get(&client, &[key(0)]).await;
    covered(&client).await;
    (node, client)
}

async fn until(node: &QueryNode, name: &str, count: f64) {
    let deadline = Instant::now() + PATIENCE;
    while metric(node, name).await < count {
        assert!(Instant::now() < deadline, "{name}: {}", metric(node, name).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asserts that a node that starts loads the runs of the whole table, and builds none.
async fn assert_written(table: &TestTable, rows: i64) {
    let (node, client, index) = restarted(table, PLENTY).await;
    assert_eq!(index.runs, index.loaded_runs);
    check_live(&client, rows, |id| is_live(id) || id >= ROWS).await;
    let [loaded, built, merged, refused] = sources(&node).await;
    assert!(loaded > 0.0 && [built, merged, refused] == [0.0; 3], "{built} {merged} {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_writes_what_is_missing_and_a_restarted_node_builds_nothing() {
    let table = TestTable::plain().await;
    let (node, client) = writer(&table).await;
    until(&node, WRITTEN, 1.0).await;
    assert_eq!(files(&table).len(), 1);
    assert_written(&table, ROWS).await;
    // The written run is the one in memory, so it was built once.
    assert_eq!(sources(&node).await, [0.0, 1.0, 0.0, 0.0]);
    let usage = metric(&node, "bireme_query_key_index_usage_bytes").await;
    assert_eq!(usage, covered(&client).await.bytes as f64, "all other memory was returned");
    node.shutdown(Duration::from_secs(1)).await.unwrap();

    // Another node writes only the run of the appended file.
    let old = files(&table);
    table.append(ROWS..ROWS + 10).await;
    let (node, _client) = writer(&table).await;
    until(&node, WRITTEN, 1.0).await;
    let new = files(&table);
    assert!(new.len() == 2 && new.contains(&old[0]));
    assert_eq!(sources(&node).await, [1.0, 1.0, 0.0, 0.0]);
    assert_written(&table, ROWS + 10).await;
    // The command finds nothing to do.
    let summary = write(&table).await;
    assert_eq!((summary.runs, summary.written, summary.deleted), (2, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_write_at_once_and_the_command_do_not_harm_each_other() {
    let table = TestTable::plain().await;
    let (one, two) = tokio::join!(writer(&table), writer(&table));
    // Both have waited, and one has found the other's run, unless they have waited equally long.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let written = metric(&one.0, WRITTEN).await + metric(&two.0, WRITTEN).await;
    assert!((1.0..=2.0).contains(&written), "{written}");
    assert_eq!(metric(&one.0, FAILURES).await + metric(&two.0, FAILURES).await, 0.0);
    assert_written(&table, ROWS).await;
    let summary = write(&table).await;
    assert_eq!((summary.runs, summary.written), (1, 0));
    assert_written(&table, ROWS).await;
    for (_, client) in [&one, &two] {
        check_live(client, ROWS, is_live).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_replaced() {
    let table = TestTable::plain().await;
    write(&table).await;
    let [file] = files(&table).try_into().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4_096 + 70] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (node, _client) = writer(&table).await;
    assert_eq!(sources(&node).await, [0.0, 1.0, 0.0, 1.0]);
    until(&node, WRITTEN, 1.0).await;
    let deadline = Instant::now() + PATIENCE;
    while files(&table).contains(&file) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_written(&table, ROWS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_not_write_serves_and_does_not_try_again() {
    let table = TestTable::plain().await;
    // A file in the place of the folder: not even root can write there.
    std::fs::write(folder(&table).parent().unwrap(), "not a folder").unwrap();
    let (node, client) = writer(&table).await;
    until(&node, FAILURES, 1.0).await;
    table.append(ROWS..ROWS + 10).await;
    node.refresh().await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    check_live(&client, ROWS + 10, |id| is_live(id) || id >= ROWS).await;
    assert_eq!((metric(&node, FAILURES).await, metric(&node, WRITTEN).await), (1.0, 0.0));
    node.shutdown(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_not_told_to_writes_nothing() {
    let table = TestTable::plain().await;
    let (node, _client, _) = restarted(&table, PLENTY).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(!folder(&table).exists());
    assert_eq!(metric(&node, WRITTEN).await, 0.0);
}
