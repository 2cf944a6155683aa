//! Key indexes that do not fit into memory: look-ups read pages of the files beside the table.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use bytesize::ByteSize;
use client::query::QueryClient;
use lance::Dataset;
use query_node::QueryNode;
use wire::query::KeyIndex;

use crate::key_runs::{files, restarted, write};
use crate::keys::{
    History, check_live, covered, get, key_index, key_index_when, lookup, presence, with_metrics,
};
use crate::node::{config, ids, serve_with};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, is_live, key};

/// Enough memory to open the plain table's run in pages (9 KiB), but not to load it (68 KiB).
const HEADS_ONLY: ByteSize = ByteSize::kib(33);

/// The number of pages of the plain table's run, if no entry is spilled.
const PAGES: f64 = 9.0;

const PAGED: &str = "bireme_query_key_index_runs_total{source=\"pages\"}";
const REFUSED: &str = "bireme_query_key_index_refused_total";
const IN_TABLE: &str = "bireme_query_keys_total{via=\"table\"}";

/// Returns the numbers of pages that were read, were damaged, and could not be read.
async fn pages(node: &QueryNode) -> [f64; 3] {
    let of = |outcome| format!("bireme_query_key_index_pages_total{{outcome=\"{outcome}\"}}");
    [
        metric(node, &of("read")).await,
        metric(node, &of("damaged")).await,
        metric(node, &of("failed")).await,
    ]
}

async fn usage(node: &QueryNode) -> f64 {
    metric(node, "bireme_query_key_index_usage_bytes").await
}

/// Writes the run of the plain table. Returns its file. The seed of the hashes is random, and some seeds spill entries, to
/// one more page: then the run is written again with another seed, so that the numbers of pages are exact.
async fn write_unspilled(table: &TestTable) -> PathBuf {
    // The head takes a page too.
    let bytes = (PAGES as u64 + 1) * 4096;
    loop {
        let written = write(table).await.bytes;
        let [file] = files(table).try_into().unwrap();
        if written == bytes {
            return file;
        }
        assert_eq!(written, bytes + 4096);
        std::fs::remove_file(file).unwrap();
    }
}

/// Serves the plain table with its run in pages.
async fn paged() -> (TestTable, PathBuf, QueryNode, QueryClient) {
    let table = TestTable::plain().await;
    let file = write_unspilled(&table).await;
    let (node, client, index) = restarted(&table, HEADS_ONLY).await;
    assert_eq!((index.runs, index.loaded_runs, index.paged_runs), (1, 0, 1));
    (table, file, node, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_fit_is_searched_page_by_page() {
    let table = TestTable::plain().await;
    write_unspilled(&table).await;
    // 9 KiB are enough to decode the head, which takes a page of 4 KiB in the file. 64 KiB are more than the file has,
    // but too few for loading it.
    for key_index in [ByteSize::kib(9), HEADS_ONLY, ByteSize::kib(64)] {
        let (node, client, index) = restarted(&table, key_index).await;
        assert_eq!((index.runs, index.loaded_runs, index.paged_runs), (1, 0, 1));
        assert_eq!((index.error.as_str(), index.paged_bytes as f64), ("", PAGES * 4096.0));
        assert!(index.bytes < 300, "{index:?}");
        assert_eq!(usage(&node).await, index.bytes as f64, "all other memory was returned");
        assert_eq!(metric(&node, PAGED).await, 1.0);
        let paged = metric(&node, "bireme_query_table_key_index_paged_bytes{table=\"t\"}").await;
        assert_eq!(paged, PAGES * 4096.0);

        let (before, in_table) = (pages(&node).await[0], metric(&node, IN_TABLE).await);
        check_live(&client, ROWS, is_live).await;
        assert_eq!(pages(&node).await, [before + PAGES, 0.0, 0.0], "each page is read once");
        for id in [5, 6, ROWS] {
            get(&client, &[key(id)]).await;
        }
        assert_eq!(pages(&node).await, [before + PAGES + 3.0, 0.0, 0.0], "a page for each key");
        assert_eq!(metric(&node, IN_TABLE).await, in_table, "no key needs the table");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_new_files_are_in_memory_beside_a_run_in_pages() {
    let (table, _, node, client) = paged().await;
    table.append(ROWS..ROWS + 100).await;
    table.delete("id % 10 = 3").await;
    node.refresh().await;
    let is_there = |id: i64| id % 10 != 3 && (is_live(id) || id >= ROWS);
    check_live(&client, ROWS + 100, is_there).await;
    let index = covered(&client).await;
    assert_eq!((index.runs, index.loaded_runs, index.paged_runs), (2, 0, 1));
    let in_table = metric(&node, IN_TABLE).await;
    check_live(&client, ROWS + 100, is_there).await;
    assert_eq!(metric(&node, IN_TABLE).await, in_table);

    // After a restart with a little more memory, the run of the new file is loaded.
    write(&table).await;
    let (node, client, index) = restarted(&table, ByteSize::kib(64)).await;
    assert_eq!((index.runs, index.loaded_runs, index.paged_runs), (2, 1, 1));
    let in_table = metric(&node, IN_TABLE).await;
    check_live(&client, ROWS + 100, is_there).await;
    assert_eq!(metric(&node, IN_TABLE).await, in_table);
}

async fn check_restarts(seed: u64) -> u32 {
    let (mut history, mut paged) = (History::begin(seed).await, 0);
    for step in 0..6 {
        let change = history.step(step).await;
        write(&history.table).await;
        let context = format!("seed {seed}, step {step}: {change}");
        let (node, client, index) = restarted(&history.table, ByteSize::kib(40)).await;
        assert_eq!(index.runs, index.loaded_runs + index.paged_runs, "{context}: {index:?}");
        paged += index.paged_runs;
        let (lookup, presence) = (lookup(&client).await, presence(&client).await);
        history.check(&client, [&lookup, &presence], &context).await;
        assert_eq!(pages(&node).await[1..], [0.0, 0.0], "{context}");
    }
    paged
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_is_found_by_runs_in_pages_in_every_version_of_a_random_history() {
    let mut paged = 0;
    for seed in 0..4 {
        paged += Box::pin(check_restarts(seed)).await;
    }
    assert!(paged >= 12, "{paged} runs in pages");
}

/// Checks all versions of a history with one node, while runs are written beside the table, and replaced.
async fn check_one_node(seed: u64) -> [f64; 2] {
    let mut history = History::begin(seed).await;
    write(&history.table).await;
    let mut config = with_metrics(config(&[("t", &history.table)]));
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    config.key_index = ByteSize::kib(40);
    let (node, client) = serve_with(config).await;
    let (lookup, presence) = (lookup(&client).await, presence(&client).await);
    for step in 0..8 {
        let change = history.step(step).await;
        if !step.is_multiple_of(3) {
            write(&history.table).await;
        }
        node.refresh().await;
        let context = format!("seed {seed}, step {step}: {change}");
        for _ in 0..2 {
            history.check(&client, [&lookup, &presence], &context).await;
            assert!(usage(&node).await <= 40.0 * 1024.0, "{context}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let [read, damaged, _] = pages(&node).await;
    assert_eq!((damaged, metric(&node, REFUSED).await), (0.0, 0.0), "seed {seed}");
    [metric(&node, PAGED).await, read]
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_follows_a_random_history_whose_runs_are_replaced() {
    let mut sums = [0.0; 2];
    for seed in 0..4 {
        let counts = Box::pin(check_one_node(seed)).await;
        sums = [sums[0] + counts[0], sums[1] + counts[1]];
    }
    assert!(sums[0] >= 4.0 && sums[1] >= 100.0, "{sums:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_damaged_page_are_looked_up_in_the_table() {
    let (_table, file, node, client) = paged().await;
    let good = std::fs::read(&file).unwrap();
    let mut bytes = good.clone();
    // One bit of the fourth page of buckets. All other pages are right.
    bytes[4 * 4096 + 70] ^= 1;
    replace(&file, &bytes);
    let in_table = metric(&node, IN_TABLE).await;
    for round in 1..=2 {
        let [read, damaged, failed] = pages(&node).await;
        check_live(&client, ROWS, is_live).await;
        let [now_read, now_damaged, now_failed] = pages(&node).await;
        assert_eq!((now_damaged, now_failed), (damaged + 1.0, failed));
        // On a busy machine a page may be read once more.
        let pages_read = now_read - read;
        assert!((PAGES - 1.0..=PAGES).contains(&pages_read), "{pages_read}");
        assert_eq!(metric(&node, REFUSED).await, 1.0, "the file counts once");
        let by_table = metric(&node, IN_TABLE).await - in_table;
        assert!((200.0..500.0).contains(&(by_table / f64::from(round))), "{by_table} in {round}");
    }
    replace(&file, &good);
    let by_table = metric(&node, IN_TABLE).await;
    check_live(&client, ROWS, is_live).await;
    assert_eq!(metric(&node, IN_TABLE).await, by_table, "the page is right again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_truncated_or_gone_is_not_needed() {
    let (table, file, node, client) = paged().await;
    let good = std::fs::read(&file).unwrap();
    // The sixth page of nine is cut, and the pages behind it are gone.
    replace(&file, &good[..6 * 4096 + 100]);
    let [read, ..] = pages(&node).await;
    check_live(&client, ROWS, is_live).await;
    let [read_after, damaged, failed] = pages(&node).await;
    assert_eq!((read_after - read, damaged + failed), (5.0, 4.0));
    assert!(key_index(&client).await.is_some_and(|index| index.paged_runs == 1));

    // The file is renamed, as if a new one had replaced it: the new one is used.
    replace(&file, &good);
    let other = file.with_file_name(format!("{:032x}.keys", 1));
    std::fs::rename(&file, &other).unwrap();
    check_live(&client, ROWS, is_live).await;
    let index = paged_again(&client).await;
    assert_eq!((index.runs, index.missing_rows), (1, 0));
    let in_table = metric(&node, IN_TABLE).await;
    check_live(&client, ROWS, is_live).await;
    assert_eq!((metric(&node, IN_TABLE).await, metric(&node, PAGED).await), (in_table, 2.0));

    // Without any file, and without memory to build the run, keys are looked up in the table.
    std::fs::remove_file(&other).unwrap();
    check_live(&client, ROWS, is_live).await;
    let index = key_index_when(&client, |index| !index.error.is_empty()).await;
    assert_eq!((index.runs, index.missing_rows), (0, ROWS as u64));
    check_live(&client, ROWS, is_live).await;
    assert_eq!(usage(&node).await, 0.0);
    drop(table);
}

/// Waits until a run is in pages and nothing is missing.
async fn paged_again(client: &QueryClient) -> KeyIndex {
    key_index_when(client, |index| index.missing_rows == 0 && index.paged_runs == 1).await
}

/// Overwrites a file with other bytes.
fn replace(file: &Path, bytes: &[u8]) {
    std::fs::write(file, bytes).unwrap();
}

/// Creates a table in which 400 rows have one key, and 100 rows have other keys.
async fn with_frequent_key() -> TestTable {
    let table = TestTable::nowhere();
    let keys = (0..500).map(|id| if id % 5 == 0 { key(id) } else { "same".to_owned() });
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..500))),
        ("key", Arc::new(StringArray::from_iter_values(keys))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::write(reader, table.uri.as_str(), None).await.unwrap();
    table
}

/// Checks the keys of [`with_frequent_key`].
async fn check_frequent(client: &QueryClient) {
    let keys: Vec<String> = (0..500).map(key).chain(["same".to_owned()]).collect();
    let (not_found, rows) = get(client, &keys).await;
    let expected: Vec<i64> = (0..500).step_by(5).chain([1]).collect();
    assert_eq!((ids(&rows), not_found.len()), (expected, 400), "the first row of 400 counts");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_have_no_room_in_their_pages_are_read_too() {
    let table = with_frequent_key().await;
    write(&table).await;
    let [file] = files(&table).try_into().unwrap();
    let good = std::fs::read(&file).unwrap();
    // A head, two pages of buckets, and one of spilled entries, which is also read when the run is opened.
    assert_eq!(good.len(), 4 * 4096);
    let (node, client, index) = restarted(&table, ByteSize::kib(40)).await;
    assert_eq!((index.paged_runs, index.paged_bytes), (1, 3 * 4096));
    let (before, in_table) = (pages(&node).await, metric(&node, IN_TABLE).await);
    check_frequent(&client).await;
    assert_eq!(pages(&node).await[0], before[0] + 3.0);
    // The key has more rows than a look-up returns candidates, but the first candidate has the key already.
    assert_eq!(metric(&node, IN_TABLE).await, in_table);

    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    for bytes in [flipped(17), flipped(good.len() - 4096), good[..good.len() - 1].to_vec()] {
        replace(&file, &bytes);
        let (node, client, index) = restarted(&table, ByteSize::kib(40)).await;
        assert_eq!((index.runs, index.loaded_runs, index.paged_runs), (1, 0, 0), "it is built");
        assert_eq!((metric(&node, REFUSED).await, metric(&node, PAGED).await), (1.0, 0.0));
        check_frequent(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_loads_indexes_at_start_has_opened_the_key_index() {
    let table = TestTable::plain().await;
    write(&table).await;
    for (key_index, source) in [(HEADS_ONLY, "pages"), (ByteSize::mib(1), "file")] {
        let mut config = with_metrics(config(&[("t", &table)]));
        let entry = config.tables.get_mut("t").unwrap();
        (entry.key, entry.warm_indexes) = (Some("key".into()), true);
        config.key_index = key_index;
        let (node, client) = serve_with(config).await;
        node.ready().await;
        let opened = format!("bireme_query_key_index_runs_total{{source=\"{source}\"}}");
        assert_eq!(metric(&node, &opened).await, 1.0);
        check_live(&client, ROWS, is_live).await;
        assert_eq!(metric(&node, IN_TABLE).await, 0.0);
    }
}
