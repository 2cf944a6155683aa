//! Keys that are looked up in the key index, compared with a plain model while tables change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use bytesize::ByteSize;
use client::query::{GetRequest, GottenRows, Lookup, LookupOpen, QueryClient};
use lake::{IndexRequest, build_index};
use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::dataset::{UpdateBuilder, WriteMode, WriteParams};
use query_node::{QueryConfig, QueryNode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use telemetry::TelemetryConfig;
use wire::query::KeyIndex;

use crate::all_rows::{all_rows, check_all_rows};
use crate::key_runs::restarted;
use crate::lookups::{of_rows, text_keys};
use crate::node::{addresses, config, ids, names, serve_with};
use crate::operate::metric;
use crate::table::{FIRST, ROWS, TestTable, is_live, key, lake, rows};

/// The number of changes of a table.
const STEPS: usize = 8;

/// The counters of keys that were looked up in the key index alone, and of keys that were looked up in the table.
const BY_INDEX: &str = "bireme_query_keys_total{via=\"key_index\"}";
const IN_TABLE: &str = "bireme_query_keys_total{via=\"table\"}";

pub fn with_metrics(config: QueryConfig) -> QueryConfig {
    let metrics_listen = Some("127.0.0.1:0".parse().unwrap());
    QueryConfig { telemetry: TelemetryConfig { metrics_listen, ..Default::default() }, ..config }
}

pub async fn key_index(client: &QueryClient) -> Option<KeyIndex> {
    client.describe("t", 0).await.unwrap().response.key_index
}

/// Waits until the key index is as `wanted`.
pub async fn key_index_when(client: &QueryClient, wanted: impl Fn(&KeyIndex) -> bool) -> KeyIndex {
    let waits = async {
        loop {
            match key_index(client).await {
                Some(index) if wanted(&index) => return index,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waits)
        .await
        .expect("the key index stays as it is")
}

/// Waits until the key index covers the current version.
pub async fn covered(client: &QueryClient) -> KeyIndex {
    key_index_when(client, |index| index.missing_rows == 0).await
}

/// Gets rows by their keys. Returns the positions of the keys without a row, and the rows.
pub async fn get(client: &QueryClient, keys: &[String]) -> (Vec<u32>, RecordBatch) {
    let columns = vec!["id".to_owned()];
    let request =
        GetRequest { table: "t".into(), keys: keys.to_vec(), columns, ..Default::default() };
    let answer = client.get(request).await.unwrap();
    let GottenRows::Arrow(rows) = answer.rows else { panic!("{:?}", answer.rows) };
    assert_eq!(names(&rows), ["id", "_rowaddr"], "the key column was not asked for");
    (answer.not_found, rows)
}

/// Opens a Lookup stream for the columns that [`get`] returns.
pub async fn lookup(client: &QueryClient) -> Lookup {
    let columns = ["id", "_rowaddr"].map(str::to_owned).to_vec();
    let open = LookupOpen { table: "t".into(), columns, ..Default::default() };
    client.lookups().await.unwrap().open(open).await.unwrap()
}

/// Opens a Lookup stream that only finds out which keys have a row.
pub async fn presence(client: &QueryClient) -> Lookup {
    let open = LookupOpen { table: "t".into(), only_presence: true, ..Default::default() };
    client.lookups().await.unwrap().open(open).await.unwrap()
}

/// A table whose rows change at random, and a plain model of them.
pub struct History {
    pub table: TestTable,
    random: StdRng,
    /// The key of each row by its id.
    rows: BTreeMap<i64, Option<String>>,
    next_id: i64,
    is_unique: bool,
    stable_row_ids: bool,
}

impl History {
    pub async fn begin(seed: u64) -> Self {
        let (is_unique, stable_row_ids) = (seed.is_multiple_of(2), seed.is_multiple_of(3));
        let (table, random) = (TestTable::nowhere(), StdRng::seed_from_u64(seed));
        let rows = BTreeMap::new();
        let mut history = Self { table, random, rows, next_id: 0, is_unique, stable_row_ids };
        history.append(300).await;
        history.append(50).await;
        // Some histories begin without a BTREE.
        match (is_unique, seed % 4) {
            (true, 0) => {
                history.index(IndexRequest::Key { column: "key".into(), replace: false }).await
            }
            (false, 1) => history.index(IndexRequest::Scalar { column: "key".into() }).await,
            _ => {}
        }
        history
    }

    async fn index(&self, request: IndexRequest) {
        build_index(&lake(), &self.table.uri, &request, |_| {}).await.unwrap();
    }

    async fn append(&mut self, count: usize) {
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let key = match self.is_unique {
                true => Some(format!("k{}", self.next_id)),
                // Some keys have more rows than a look-up returns candidates.
                false if self.random.random_bool(0.3) => {
                    Some(format!("k{}", self.random.random_range(0..3)))
                }
                false => self
                    .random
                    .random_bool(0.9)
                    .then(|| format!("k{}", self.random.random_range(0..400))),
            };
            rows.push((self.next_id, key));
            self.next_id += 1;
        }
        let columns: [(&str, ArrayRef, bool); 3] = [
            ("id", Arc::new(Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id))), false),
            (
                "key",
                Arc::new(StringArray::from_iter(rows.iter().map(|(_, key)| key.as_ref()))),
                true,
            ),
            ("name", Arc::new(StringArray::from(vec!["old"; count])), true),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let exists = std::fs::exists(&self.table.uri).unwrap();
        let params = WriteParams {
            mode: if exists { WriteMode::Append } else { WriteMode::Create },
            enable_stable_row_ids: self.stable_row_ids,
            ..Default::default()
        };
        let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        Dataset::write(reader, self.table.uri.as_str(), Some(params)).await.unwrap();
        self.rows.extend(rows);
    }

    async fn dataset(&self) -> Dataset {
        Dataset::open(&self.table.uri).await.unwrap()
    }

    /// Sets a column of the rows whose id, divided by `of`, leaves the remainder 1.
    async fn update(&mut self, of: i64, column: &str, value: &str) {
        let update = UpdateBuilder::new(Arc::new(self.dataset().await));
        let update = update.update_where(&format!("id % {of} = 1")).unwrap();
        let update = update.set(column, &format!("'{value}'")).unwrap();
        update.build().unwrap().execute().await.unwrap();
        if column == "key" {
            let changed = self.rows.iter_mut().filter(|(id, _)| **id % of == 1);
            changed.for_each(|(_, key)| *key = Some(value.to_owned()));
        }
    }

    /// Makes change number `step` of the table, and returns what was done.
    pub async fn step(&mut self, step: usize) -> &'static str {
        let change = if step < 3 { step } else { self.random.random_range(0..6) };
        match change {
            0 => {
                let count = self.random.random_range(1..60);
                self.append(count).await;
                "append"
            }
            1 => {
                let (of, rest) = (self.random.random_range(3..30), self.random.random_range(0..3));
                let filter = format!("id % {of} = {rest}");
                self.dataset().await.delete(&filter).await.unwrap();
                self.rows.retain(|id, _| id % of != rest);
                "delete"
            }
            2 => {
                let of = self.random.random_range(5..40);
                self.update(of, "name", "new").await;
                "update of another column"
            }
            3 if !self.is_unique => {
                let (of, key) = (self.random.random_range(5..40), self.random.random_range(0..400));
                self.update(of, "key", &format!("k{key}")).await;
                "update of keys"
            }
            4 => {
                let options =
                    CompactionOptions { target_rows_per_fragment: 200, ..Default::default() };
                compact_files(&mut self.dataset().await, options, None).await.unwrap();
                "compaction"
            }
            _ => {
                for _ in 0..6 {
                    self.append(3).await;
                }
                "small appends"
            }
        }
    }

    /// Returns the addresses and ids of the rows of each key, by Lance's own scan.
    async fn rows_of_keys(&self) -> HashMap<String, BTreeSet<(u64, i64)>> {
        let dataset = self.dataset().await;
        let mut scanner = dataset.scan();
        scanner.project(&["key", "id"]).unwrap().with_row_address();
        let rows = scanner.try_into_batch().await.unwrap();
        let (keys, ids) = (rows["key"].as_string::<i32>(), rows["id"].as_primitive::<Int64Type>());
        let addrs = rows["_rowaddr"].as_primitive::<UInt64Type>();
        let mut of_keys = HashMap::<String, BTreeSet<(u64, i64)>>::new();
        let mut seen = BTreeMap::new();
        for row in 0..rows.num_rows() {
            let key = keys.iter().nth(row).flatten().map(str::to_owned);
            seen.insert(ids.value(row), key.clone());
            if let Some(key) = key {
                of_keys.entry(key).or_default().insert((addrs.value(row), ids.value(row)));
            }
        }
        assert_eq!(seen, self.rows, "the model has the table's rows");
        of_keys
    }

    /// Asserts that each key that ever existed, and some that never did, has the rows that it should have, or none.
    /// Returns the number of look-ups, four for each key, and the number of keys for which only the key index names a
    /// row.
    pub async fn check(
        &self,
        client: &QueryClient,
        [lookup, presence]: [&Lookup; 2],
        context: &str,
    ) -> (u64, u64) {
        let mut unproven = 0;
        let of_keys = self.rows_of_keys().await;
        let all_rows = all_rows(client, "key").await;
        let mut keys: Vec<String> =
            (0..self.next_id.max(400) + 50).map(|n| format!("k{n}")).collect();
        keys.extend(["", "k", "K1", "k01"].map(str::to_owned));
        let chunks: Vec<&[String]> = keys.chunks(300).collect();
        // All batches of the stream are under way at the same time.
        let looked_up = chunks.iter().map(|keys| lookup.get(text_keys(keys)));
        let looked_up = futures::future::try_join_all(looked_up).await.unwrap();
        for (keys, looked_up) in chunks.into_iter().zip(looked_up) {
            let (not_found, rows) = get(client, keys).await;
            // In so small a table, the key index reports no absent key as present.
            let there = presence.get(text_keys(keys)).await.unwrap();
            assert!(there.rows.is_none());
            assert_eq!(there.not_found, not_found, "{context}");
            let found = |key: &u32| !not_found.contains(key);
            assert!(there.unproven.iter().all(found), "{context}: {:?}", there.unproven);
            unproven += there.unproven.len() as u64;
            assert_eq!(looked_up.not_found, not_found, "{context}");
            assert_eq!(of_rows(looked_up.rows), rows, "{context}");
            let there = |key: &&String| of_keys.contains_key(*key);
            let first = |key: &String| *of_keys[key].first().unwrap();
            let expected: Vec<_> = keys.iter().filter(there).map(first).collect();
            let got: Vec<_> = addresses(&rows).into_iter().zip(ids(&rows)).collect();
            assert_eq!(got, expected, "{context}");
            let absent: Vec<u32> =
                (0..).zip(keys).filter(|(_, key)| !there(key)).map(|(at, _)| at).collect();
            assert_eq!(not_found, absent, "{context}");
            check_all_rows(&all_rows, text_keys(keys), keys, &of_keys, context).await;
        }
        (4 * keys.len() as u64, unproven)
    }
}

async fn check_history(seed: u64) {
    let mut history = History::begin(seed).await;
    let mut config = with_metrics(config(&[("t", &history.table)]));
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    let (node, client) = serve_with(config).await;
    // The streams last for the whole history.
    let (lookup, presence) = (lookup(&client).await, presence(&client).await);
    for step in 0..STEPS {
        let change = history.step(step).await;
        let in_table = metric(&node, IN_TABLE).await;
        node.refresh().await;
        let context = format!("seed {seed}, step {step}: {change}");
        history.check(&client, [&lookup, &presence], &context).await;
        if step > 0 {
            // The runs covered the version before, so the new one waited for its runs.
            assert_eq!(metric(&node, IN_TABLE).await, in_table, "{context}");
        }
        let index = covered(&client).await;
        assert!(index.runs <= 4 && index.error.is_empty(), "{context}: {index:?}");
        let (by_index, in_table) = (metric(&node, BY_INDEX).await, metric(&node, IN_TABLE).await);
        let (keys, unproven) = history.check(&client, [&lookup, &presence], &context).await;
        assert!(unproven > 0, "{context}: the key index answers");
        assert_eq!(metric(&node, BY_INDEX).await, by_index + keys as f64, "{context}");
        assert_eq!(metric(&node, IN_TABLE).await, in_table, "{context}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_is_found_in_every_version_of_a_random_history() {
    for seed in 0..6 {
        Box::pin(check_history(seed)).await;
    }
}

/// Serves a table with a BTREE on its keys.
async fn serve_keyed(change: impl FnOnce(&mut QueryConfig)) -> (TestTable, QueryNode, QueryClient) {
    let table = TestTable::plain().await;
    let request = IndexRequest::Key { column: "key".into(), replace: false };
    build_index(&lake(), &table.uri, &request, |_| {}).await.unwrap();
    let mut config = with_metrics(config(&[("t", &table)]));
    change(&mut config);
    let (node, client) = serve_with(config).await;
    (table, node, client)
}

pub async fn check_live(client: &QueryClient, rows: i64, is_there: impl Fn(i64) -> bool) {
    let keys: Vec<String> = (0..rows + 1).map(key).collect();
    let (not_found, found) = get(client, &keys).await;
    assert_eq!(ids(&found), (0..rows).filter(|&id| is_there(id)).collect::<Vec<_>>());
    assert_eq!(not_found.len() as i64, rows + 1 - found.num_rows() as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_and_a_delete_do_not_leave_the_index() {
    let (table, node, client) = serve_keyed(|_| {}).await;
    assert_eq!(key_index(&client).await, None, "nobody has looked up a key");
    check_live(&client, ROWS, is_live).await;
    covered(&client).await;
    table.append(ROWS..ROWS + 10).await;
    table.delete("id % 10 = 3").await;
    node.refresh().await;
    let is_there = |id: i64| id % 10 != 3 && (is_live(id) || id >= ROWS);
    let index = covered(&client).await;
    let (by_index, in_table) = (metric(&node, BY_INDEX).await, metric(&node, IN_TABLE).await);
    check_live(&client, ROWS + 10, is_there).await;
    assert_eq!(metric(&node, BY_INDEX).await, by_index + (ROWS + 11) as f64);
    assert_eq!(metric(&node, IN_TABLE).await, in_table);
    let usage = metric(&node, "bireme_query_key_index_usage_bytes").await;
    assert_eq!(usage, index.bytes as f64);
}

/// Sets the text of the rows that pass `filter`. They move to a new file.
async fn update(table: &TestTable, filter: &str) {
    let dataset = Arc::new(Dataset::open(&table.uri).await.unwrap());
    let update = UpdateBuilder::new(dataset).update_where(filter).unwrap();
    update.set("text", "'new'").unwrap().build().unwrap().execute().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_new_files_makes_a_look_up_leave_the_index() {
    let (table, node, client) = serve_keyed(|_| {}).await;
    check_live(&client, ROWS, is_live).await;
    covered(&client).await;
    let in_table = metric(&node, IN_TABLE).await;
    let (mut rows, mut looked_up) = (ROWS, metric(&node, BY_INDEX).await);
    // Each version has one or two files more. More than four runs are probed only after some of them were merged.
    for step in 0..7 {
        table.append(rows..rows + 10).await;
        rows += 10;
        if step % 2 == 0 {
            update(&table, &format!("id % 20 = {step}")).await;
        }
        node.refresh().await;
        // Old, updated and new keys, and absent ones.
        check_live(&client, rows, |id| is_live(id) || id >= ROWS).await;
        looked_up += (rows + 1) as f64;
        assert_eq!(metric(&node, BY_INDEX).await, looked_up, "step {step}");
        assert_eq!(metric(&node, IN_TABLE).await, in_table, "step {step}");
    }
    let merged = "bireme_query_key_index_runs_total{source=\"merge\"}";
    assert!(metric(&node, merged).await > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_versions_share_the_runs_of_their_files() {
    let (table, node, client) = serve_keyed(|_| {}).await;
    check_live(&client, ROWS, is_live).await;
    let bytes = covered(&client).await.bytes;
    let before = client.describe("t", 0).await.unwrap().response.version;
    table.delete(&format!("id >= {FIRST}")).await;
    node.refresh().await;
    check_live(&client, ROWS, |id| is_live(id) && id < FIRST).await;
    let in_table = metric(&node, IN_TABLE).await;
    let keys = vec![key(FIRST), key(0)];
    let request = GetRequest { table: "t".into(), version: before, keys, ..Default::default() };
    let answer = client.get(request).await.unwrap();
    assert_eq!(answer.not_found, [0u32; 0]);
    assert_eq!(metric(&node, IN_TABLE).await, in_table);
    assert_eq!(covered(&client).await.bytes, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_does_not_fit_stays_on_its_btree_and_says_so() {
    // The run of the two files takes 36 KiB, and building it 82 KiB more.
    let (table, node, client) = serve_keyed(|config| config.key_index = ByteSize::kib(64)).await;
    check_live(&client, ROWS, is_live).await;
    let index = key_index_when(&client, |index| !index.error.is_empty()).await;
    assert_eq!((index.runs, index.bytes, index.missing_rows), (0, 0, ROWS as u64));
    assert!(index.error.contains("more than `key_index` leaves (64.0 KiB"), "{}", index.error);
    table.append(ROWS..ROWS + 10).await;
    node.refresh().await;
    check_live(&client, ROWS + 10, |id| is_live(id) || id >= ROWS).await;
    assert_eq!(metric(&node, BY_INDEX).await, 0.0);
    assert_eq!(metric(&node, "bireme_query_key_index_usage_bytes").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_need_the_memory_of_the_run_that_they_share() {
    let table = TestTable::nowhere();
    let rows = rows(0..1_000);
    let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
    let params = WriteParams { max_rows_per_file: 5, ..Default::default() };
    let dataset = Dataset::write(reader, table.uri.as_str(), Some(params)).await.unwrap();
    assert_eq!(dataset.count_fragments(), 200);
    // The run takes 12 KiB, its list of files about 20 KiB, and building it 28 KiB more. Runs of one file each would
    // take 800 KiB.
    let (_node, client, index) = restarted(&table, ByteSize::kib(256)).await;
    assert_eq!((index.runs, index.error.as_str()), (1, ""));
    let (not_found, found) = get(&client, &[0, 999, 1_000].map(key)).await;
    assert_eq!((not_found, ids(&found)), (vec![2], vec![0, 999]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_there_is_no_index() {
    let (_table, node, client) = serve_keyed(|config| config.key_index = ByteSize::b(0)).await;
    check_live(&client, ROWS, is_live).await;
    check_live(&client, ROWS, is_live).await;
    assert_eq!(key_index(&client).await, None);
    assert_eq!(metric(&node, IN_TABLE).await, 2.0 * (ROWS + 1) as f64);
}
