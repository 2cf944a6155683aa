//! Key indexes that a node loads from the files that `bireme index` writes beside a table.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use client::query::QueryClient;
use key_runs::{RunsSummary, write_runs};
use query_node::QueryNode;
use wire::query::KeyIndex;

use crate::keys::{History, check_live, covered, get, lookup, presence, with_metrics};
use crate::node::{config, serve_with};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, is_live, key, lake};

/// The number of changes of a table.
const STEPS: usize = 8;

pub async fn write(table: &TestTable) -> RunsSummary {
    write_runs(&lake(), &table.uri, "key", |_| ()).await.unwrap()
}

/// Returns the numbers of runs from files, from the key column and from merges, and of refused files.
pub async fn sources(node: &QueryNode) -> [f64; 4] {
    let of = |source| format!("bireme_query_key_index_runs_total{{source=\"{source}\"}}");
    [
        metric(node, &of("file")).await,
        metric(node, &of("column")).await,
        metric(node, &of("merge")).await,
        metric(node, "bireme_query_key_index_refused_total").await,
    ]
}

/// Serves a table on a node of its own, as after a restart, and waits until the key index covers it.
pub async fn restarted(
    table: &TestTable,
    key_index: ByteSize,
) -> (QueryNode, QueryClient, KeyIndex) {
    let mut config = with_metrics(config(&[("t", table)]));
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    config.key_index = key_index;
    let (node, client) = serve_with(config).await;
    get(&client, &[key(0)]).await;
    let index = covered(&client).await;
    (node, client, index)
}

pub fn folder(table: &TestTable) -> PathBuf {
    Path::new(&table.uri).join("_bireme/keys")
}

/// The files of a table's runs.
pub fn files(table: &TestTable) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder(table)).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

const PLENTY: ByteSize = ByteSize::mib(64);

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_loads_runs_and_builds_only_those_of_new_files() {
    let table = TestTable::plain().await;
    assert_eq!((write(&table).await.runs, files(&table).len()), (1, 1));
    let (node, client, index) = restarted(&table, PLENTY).await;
    assert_eq!((index.runs, index.loaded_runs), (1, 1));
    check_live(&client, ROWS, is_live).await;
    assert_eq!(sources(&node).await, [1.0, 0.0, 0.0, 0.0]);
    let usage = metric(&node, "bireme_query_key_index_usage_bytes").await;
    assert_eq!(usage, index.bytes as f64, "all other memory was returned");

    // The run of a file that is appended later is built, with the seed of the loaded one.
    table.append(ROWS..ROWS + 10).await;
    node.refresh().await;
    let index = covered(&client).await;
    assert_eq!((index.runs, index.loaded_runs), (2, 1));
    let is_there = |id: i64| is_live(id) || id >= ROWS;
    check_live(&client, ROWS + 10, is_there).await;
    assert_eq!(sources(&node).await, [1.0, 1.0, 0.0, 0.0]);

    // A run that was written before the node sees the version is loaded. It covers both new files, so that the run that
    // was built is no longer probed.
    table.append(ROWS + 10..ROWS + 20).await;
    assert_eq!(write(&table).await.written, 1);
    node.refresh().await;
    let index = covered(&client).await;
    assert_eq!((index.runs, index.loaded_runs), (2, 2));
    check_live(&client, ROWS + 20, is_there).await;
    assert_eq!(sources(&node).await, [2.0, 1.0, 0.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn persisted_runs_are_loaded_before_anybody_looks_up_a_key() {
    let table = TestTable::plain().await;
    write(&table).await;
    let mut config = with_metrics(config(&[("t", &table)]));
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    let (node, client) = serve_with(config).await;
    node.refresh().await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while sources(&node).await[0] == 0.0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check_live(&client, ROWS, is_live).await;
    assert_eq!(metric(&node, "bireme_query_keys_total{via=\"table\"}").await, 0.0);
    assert_eq!(sources(&node).await, [1.0, 0.0, 0.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_are_written_with_another_seed_meanwhile_are_left_alone() {
    let table = TestTable::plain().await;
    let (node, client, _) = restarted(&table, PLENTY).await;
    write(&table).await;
    table.append(ROWS..ROWS + 10).await;
    write(&table).await;
    node.refresh().await;
    let index = covered(&client).await;
    assert_eq!((index.runs, index.loaded_runs), (2, 0));
    check_live(&client, ROWS + 10, |id| is_live(id) || id >= ROWS).await;
    assert_eq!(sources(&node).await, [0.0, 2.0, 0.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_made_again_uses_its_own_runs() {
    let table = TestTable::plain().await;
    write(&table).await;
    let (node, client, _) = restarted(&table, PLENTY).await;
    let aside = table.uri.clone() + "-old-keys";
    std::fs::rename(folder(&table), &aside).unwrap();
    std::fs::remove_dir_all(&table.uri).unwrap();
    table.append(0..500).await;
    // The files of the old table are there again, and cover nothing.
    std::fs::create_dir_all(Path::new(&table.uri).join("_bireme")).unwrap();
    std::fs::rename(&aside, folder(&table)).unwrap();
    node.refresh().await;
    check_live(&client, 500, |_| true).await;
    let index = covered(&client).await;
    check_live(&client, 500, |_| true).await;
    assert_eq!((index.runs, index.loaded_runs), (1, 0));
    assert_eq!(sources(&node).await, [1.0, 1.0, 0.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_a_dropped_run_is_loaded_again_for_a_version_that_needs_it() {
    let table = TestTable::nowhere();
    table.append(0..ROWS).await;
    write(&table).await;
    let (node, client, loaded) = restarted(&table, PLENTY).await;
    // The latest version has none of the first one's files.
    table.delete("id >= 0").await;
    table.append(0..500).await;
    node.refresh().await;
    // The first version is not in use any more, so a later refresh drops its run.
    let deadline = Instant::now() + Duration::from_secs(60);
    while covered(&client).await.bytes >= loaded.bytes {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
        node.refresh().await;
    }
    assert_eq!(sources(&node).await, [1.0, 1.0, 0.0, 0.0]);

    client.describe("t", 1).await.unwrap();
    while sources(&node).await[..2].iter().sum::<f64>() < 3.0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(sources(&node).await, [2.0, 1.0, 0.0, 0.0]);
}

async fn check_history(seed: u64) {
    let mut history = History::begin(seed).await;
    for step in 0..STEPS {
        let change = history.step(step).await;
        let is_written = !step.is_multiple_of(3);
        if is_written {
            write(&history.table).await;
        }
        let context = format!("seed {seed}, step {step}: {change}, written: {is_written}");
        let (node, client, index) = restarted(&history.table, PLENTY).await;
        assert!(index.runs <= 4 && index.error.is_empty(), "{context}: {index:?}");
        let [_, from_column, merged, refused] = sources(&node).await;
        assert_eq!(refused, 0.0, "{context}");
        if is_written {
            assert_eq!(index.runs, index.loaded_runs, "{context}");
            assert_eq!((from_column, merged), (0.0, 0.0), "{context}");
        }
        let (lookup, presence) = (lookup(&client).await, presence(&client).await);
        history.check(&client, [&lookup, &presence], &context).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_is_found_by_loaded_runs_in_every_version_of_a_random_history() {
    for seed in 0..4 {
        Box::pin(check_history(seed)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_right_is_refused_and_its_run_built() {
    let table = TestTable::plain().await;
    write(&table).await;
    let [file] = files(&table).try_into().unwrap();
    let good = std::fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let damages = [
        (flipped(0), "no run"),
        (flipped(8), "another format"),
        (flipped(17), "another seed"),
        (flipped(70), "another data file"),
        (flipped(4_096 + 70), "a changed tag"),
        (flipped(good.len() - 200), "a changed last page"),
        (good[..good.len() - 4_096].to_vec(), "a page too few"),
        (good[..100].to_vec(), "a part of the head"),
        (Vec::new(), "nothing"),
        ([good.as_slice(), &[0; 4_096]].concat(), "a page too many"),
    ];
    for (bytes, damage) in damages {
        std::fs::write(&file, bytes).unwrap();
        let (node, client, index) = restarted(&table, PLENTY).await;
        assert_eq!((index.runs, index.loaded_runs), (1, 0), "{damage}");
        check_live(&client, ROWS, is_live).await;
        assert_eq!(sources(&node).await, [0.0, 1.0, 0.0, 1.0], "{damage}");
        let usage = metric(&node, "bireme_query_key_index_usage_bytes").await;
        assert_eq!(usage, covered(&client).await.bytes as f64, "{damage}");
    }
    // A refused file is not read again for the next version.
    let (node, client, _) = restarted(&table, PLENTY).await;
    table.append(ROWS..ROWS + 10).await;
    node.refresh().await;
    get(&client, &[key(ROWS)]).await;
    covered(&client).await;
    assert_eq!(sources(&node).await[3], 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn loading_keeps_within_the_memory_of_key_indexes() {
    let table = TestTable::plain().await;
    write(&table).await;
    // The run takes 36 KiB, its file 40 KiB, and building it 118 KiB. Even the head takes more than a page of 4 KiB while
    // it is read.
    let (node, client, index) = restarted(&table, ByteSize::kib(80)).await;
    assert_eq!((index.runs, index.loaded_runs), (1, 1));
    check_live(&client, ROWS, is_live).await;
    assert_eq!(sources(&node).await, [1.0, 0.0, 0.0, 0.0]);

    let mut config = with_metrics(config(&[("t", &table)]));
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    config.key_index = ByteSize::kib(4);
    let (node, client) = serve_with(config).await;
    check_live(&client, ROWS, is_live).await;
    let failed = async {
        loop {
            match client.describe("t", 0).await.unwrap().response.key_index {
                Some(index) if !index.error.is_empty() => return index,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let index = tokio::time::timeout(Duration::from_secs(60), failed).await.unwrap();
    assert_eq!((index.runs, index.missing_rows), (0, ROWS as u64));
    check_live(&client, ROWS, is_live).await;
    assert_eq!(sources(&node).await, [0.0; 4]);
    assert_eq!(metric(&node, "bireme_query_key_index_usage_bytes").await, 0.0);
}
