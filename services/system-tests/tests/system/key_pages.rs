//! Tests key indexes that do not fit into a query node's memory. All tables but one are in an S3 server, so the node
//! reads their pages through the I/O nodes. The other one is in a folder.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, RecordBatchIterator, StringArray};
use arrow_select::concat::concat_batches;
use bytesize::ByteSize;
use client::fetch::Instant;
use client::query::{GottenRows, QueryClient};
use futures::StreamExt;
use key_runs::{RunsSummary, write_runs};
use lake::{IngestOptions, Lake, LakeOptions, ingest};
use lance::Dataset;
use lance::dataset::{UpdateBuilder, WriteMode, WriteParams};
use query_node::{QueryConfig, QueryNode, TableConfig};
use telemetry::TelemetryConfig;
use wire::query::{GetRequest, IndexFiles, KeyIndex, WarmProgress, WarmRequest};

use crate::cluster::{Cluster, folder, member, sample, soon, total};
use crate::store::S3;
use crate::telemetry::{scrape, value};
use crate::words::{read, warm as warm_rows};

const URI: &str = "s3://lake/words";

/// The number of keys of one request.
const KEYS: usize = 1000;

/// A table in a folder, its copy in an S3 server, and a plain model of its rows.
struct Words {
    folder: tempfile::TempDir,
    s3: S3,
    /// The gloss of each key.
    model: BTreeMap<String, String>,
    rows: RecordBatch,
}

impl Words {
    /// Creates a table that consists of `copies` copies of the sample with different keys, and has a persisted run.
    /// `None` if there is no S3 server.
    async fn new(copies: usize) -> Option<Self> {
        let s3 = S3::start(false).await?;
        let (folder, sample) = (folder(), read(&sample()));
        let copies: Vec<RecordBatch> = (0..copies).map(|copy| renamed(&sample, copy)).collect();
        let rows = concat_batches(&sample.schema(), &copies).unwrap();
        let model = texts(&rows, "synset").into_iter().zip(texts(&rows, "gloss")).collect();
        let it = Self { folder, s3, model, rows };
        it.dataset_of(&it.rows, None).await;
        let written = it.write_runs().await;
        assert_eq!(written.runs, 1);
        it.publish();
        Some(it)
    }

    fn uri(&self) -> String {
        self.folder.path().join("words").to_str().unwrap().to_owned()
    }

    async fn dataset(&self) -> Dataset {
        Dataset::open(&self.uri()).await.unwrap()
    }

    /// Writes rows as a new table.
    async fn dataset_of(&self, rows: &RecordBatch, params: Option<WriteParams>) {
        let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
        Dataset::write(reader, self.uri().as_str(), params).await.unwrap();
    }

    async fn write_runs(&self) -> RunsSummary {
        let lake = Lake::new(LakeOptions::default());
        write_runs(&lake, &self.uri(), "synset", |_| ()).await.unwrap()
    }

    /// Puts the table's files into the S3 server.
    fn publish(&self) {
        self.s3.put_folder(Path::new(&self.uri()), "/lake/words");
    }

    /// Returns the path and the bytes of the file of the persisted run.
    fn run_file(&self) -> (String, Vec<u8>) {
        let files = std::fs::read_dir(Path::new(&self.uri()).join("_bireme/keys")).unwrap();
        let [file] = files.map(|file| file.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        (format!("/lake/words/_bireme/keys/{name}"), std::fs::read(&file).unwrap())
    }

    /// Serves the table from two I/O nodes.
    async fn serve(&self, key_index: ByteSize) -> Cluster {
        let storage = self.s3.options();
        Cluster::start_with(2, &[("words", URI.as_ref())], |io, query| {
            io.storage = storage.clone();
            configure(query, key_index);
            query.storage = storage.clone();
        })
        .await
    }

    /// Asserts that each key that ever existed, and as many others, have the right row, or none.
    async fn check(&self, client: &QueryClient, ever: &[String]) {
        let keys: Vec<String> =
            ever.iter().flat_map(|key| [key.clone(), format!("{key}-absent")]).collect();
        for keys in keys.chunks(KEYS) {
            let (glosses, absent) = get(client, keys).await;
            let expected: Vec<_> = keys.iter().filter_map(|key| self.model.get(key)).collect();
            assert_eq!(glosses.iter().collect::<Vec<_>>(), expected);
            assert_eq!(absent, keys.len() - expected.len());
        }
    }
}

fn configure(query: &mut QueryConfig, key_index: ByteSize) {
    let metrics_listen: Option<SocketAddr> = Some(([127, 0, 0, 1], 0).into());
    query.telemetry = TelemetryConfig { metrics_listen, ..Default::default() };
    query.key_index = key_index;
    for table in query.tables.values_mut() {
        table.key = Some("synset".into());
    }
}

/// Returns the rows of the sample with keys that no other copy has.
fn renamed(sample: &RecordBatch, copy: usize) -> RecordBatch {
    let keys = texts(sample, "synset").into_iter().map(|key| format!("{key}-{copy}"));
    let keys = StringArray::from_iter_values(keys);
    let (at, _) = sample.schema().column_with_name("synset").unwrap();
    let mut columns = sample.columns().to_vec();
    columns[at] = Arc::new(keys);
    RecordBatch::try_new(sample.schema(), columns).unwrap()
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<String> {
    rows[column].as_string::<i32>().iter().map(|text| text.unwrap().to_owned()).collect()
}

/// Gets rows by key: their glosses, and the number of keys without a row.
async fn get(client: &QueryClient, keys: &[String]) -> (Vec<String>, usize) {
    let (table, columns) = ("words".to_owned(), vec!["gloss".to_owned()]);
    let request = GetRequest { table, keys: keys.to_vec(), columns, ..Default::default() };
    let answer = client.get(request).await.unwrap();
    let GottenRows::Arrow(rows) = answer.rows else { panic!("not Arrow") };
    (texts(&rows, "gloss"), answer.not_found.len())
}

/// Waits until the key index covers the version.
async fn covered(client: &QueryClient, version: u64) -> KeyIndex {
    let deadline = soon();
    loop {
        let described = client.describe("words", 0).await.unwrap().response;
        match described.key_index {
            Some(index) if described.version == version && index.missing_rows == 0 => return index,
            state => assert!(Instant::now() < deadline, "{}: {state:?}", described.version),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a counter of a query node.
async fn counter(node: &QueryNode, name: &str) -> u64 {
    let text = scrape(node.metrics_addr().unwrap(), "/metrics", "*/*").await.1;
    value(&String::from_utf8(text).unwrap(), name) as u64
}

const READ: &str = "bireme_query_key_index_pages_total{outcome=\"read\"}";
const DAMAGED: &str = "bireme_query_key_index_pages_total{outcome=\"damaged\"}";
const FAILED: &str = "bireme_query_key_index_pages_total{outcome=\"failed\"}";
const REFUSED: &str = "bireme_query_key_index_refused_total";
const IN_TABLE: &str = "bireme_query_keys_total{via=\"table\"}";
const USAGE: &str = "bireme_query_key_index_usage_bytes";

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_are_found_by_an_index_of_ten_times_its_memory_while_the_table_changes() {
    let Some(mut words) = Words::new(8).await else { return };
    let (_, file) = words.run_file();
    let key_index = ByteSize::b(file.len() as u64 / 10);
    println!("{} keys, a file of {} bytes, `key_index` {key_index}", words.model.len(), file.len());
    let cluster = words.serve(key_index).await;
    let version = words.dataset().await.version_id();
    let index = covered(&cluster.client, version).await;
    assert_eq!((index.runs, index.loaded_runs, index.paged_runs), (1, 0, 1));
    assert_eq!(index.paged_bytes / 4096 + 1, file.len() as u64 / 4096, "all pages but the head");
    warm_rows(&cluster).await;
    let mut ever: Vec<String> = words.model.keys().cloned().collect();
    words.check(&cluster.client, &ever).await;
    assert_eq!(counter(&cluster.query, IN_TABLE).await, 0);

    // Rows of a new file, changed rows, and deleted ones.
    let new = renamed(&read(&sample()), 8).slice(0, 100);
    let append = WriteParams { mode: WriteMode::Append, ..Default::default() };
    words.dataset_of(&new, Some(append)).await;
    let of_new: Vec<_> = texts(&new, "synset").into_iter().zip(texts(&new, "gloss")).collect();
    ever.extend(of_new.iter().map(|(key, _)| key.clone()));
    words.model.extend(of_new);
    let like = "synset LIKE '%1-3'";
    let update = UpdateBuilder::new(Arc::new(words.dataset().await)).update_where(like).unwrap();
    let update = update.set("gloss", "'changed'").unwrap().build().unwrap();
    update.execute().await.unwrap();
    for (key, gloss) in &mut words.model {
        if key.ends_with("1-3") {
            *gloss = "changed".into();
        }
    }
    words.dataset().await.delete("synset LIKE '%-7'").await.unwrap();
    words.model.retain(|key, _| !key.ends_with("-7"));
    assert!(words.model.len() < ever.len() && words.model.values().any(|gloss| gloss == "changed"));
    words.publish();
    let version = words.dataset().await.version_id();
    let index = covered(&cluster.client, version).await;
    assert_eq!((index.loaded_runs, index.paged_runs, index.runs > 1), (0, 1, true));
    words.check(&cluster.client, &ever).await;
    assert!(counter(&cluster.query, USAGE).await <= key_index.as_u64());
    assert_eq!(counter(&cluster.query, DAMAGED).await + counter(&cluster.query, FAILED).await, 0);
    cluster.stop().await;
}

/// Returns the number of reads that each I/O node has sent to the store.
async fn store_reads(cluster: &Cluster) -> Vec<u64> {
    let mut reads = Vec::new();
    for io in &cluster.io {
        reads.push(io.describe().await.store.unwrap().reads);
    }
    reads
}

/// Fills the files of all indexes.
async fn warm_indexes(cluster: &Cluster) -> WarmProgress {
    let request = WarmRequest {
        table: "words".into(),
        indexes: Some(IndexFiles::default()),
        ..Default::default()
    };
    let steps: Vec<_> = cluster.client.warm(request).await.unwrap().collect().await;
    steps.into_iter().last().unwrap().unwrap()
}

/// Returns the number of reads that the I/O nodes have sent to their drives.
async fn drive_reads(cluster: &Cluster) -> u64 {
    let mut reads = 0;
    for io in &cluster.io {
        reads += total(&io.describe().await, |core| core.drive_reads);
    }
    reads
}

#[tokio::test(flavor = "multi_thread")]
async fn after_warming_a_get_costs_two_drive_reads_and_no_request_to_the_store() {
    let Some(words) = Words::new(8).await else { return };
    let (_, file) = words.run_file();
    let key_index = ByteSize::b(file.len() as u64 / 10);
    let cluster = words.serve(key_index).await;
    let filled = warm_indexes(&cluster).await;
    let blocks = (file.len() as u64).div_ceil(512 << 10);
    assert_eq!((filled.extents_total, filled.extents_failed), (blocks, 0), "those of the run");
    warm_rows(&cluster).await;

    // Another query node, so that only its requests are counted.
    let table = TableConfig { uri: URI.into(), warm_indexes: true, ..TableConfig::default() };
    let mut config = QueryConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tables: [("words".to_owned(), table)].into(),
        io_nodes: cluster.io.iter().map(|io| member(&io.node)).collect(),
        refresh_interval: Duration::from_secs(3600),
        storage: words.s3.options(),
        ..QueryConfig::default()
    };
    configure(&mut config, key_index);
    let lake = Lake::new(config.lake_options());
    let node = QueryNode::start(config, lake.clone()).await.unwrap();
    node.ready().await;
    let endpoint = format!("http://{}", node.local_addr()).parse().unwrap();
    let client = QueryClient::connect(&endpoint).await.unwrap();
    let index = client.describe("words", 0).await.unwrap().response.key_index.unwrap();
    assert_eq!((index.paged_runs, index.missing_rows), (1, 0), "`warm_indexes` waits for it");
    let keys: Vec<&String> = words.model.keys().step_by(words.model.len() / 100).collect();
    let gets = 2 * keys.len() as u64;
    // A page that is late (`LATE` in `lake/src/store/cached.rs`) is read from the store too, so a slow machine gets
    // further attempts.
    for is_last in [false, false, true] {
        let (before, of_io) = (lake.store_use(), store_reads(&cluster).await);
        let of_drives = drive_reads(&cluster).await;
        let pages = counter(&node, READ).await;
        for &key in &keys {
            assert_eq!(
                get(&client, std::slice::from_ref(key)).await,
                (vec![words.model[key].clone()], 0)
            );
            assert_eq!(get(&client, &[format!("{key}-absent")]).await, (Vec::new(), 1));
        }
        let used = lake.store_use();
        let of_query = (used.reads - before.reads, used.writes - before.writes);
        let avoided = used.reads_avoided - before.reads_avoided;
        let of_io: Vec<_> =
            store_reads(&cluster).await.iter().zip(of_io).map(|(after, it)| after - it).collect();
        let pages = counter(&node, READ).await - pages;
        let of_drives = drive_reads(&cluster).await - of_drives;
        println!(
            "{gets} gets, half of them of absent keys: {pages} pages, {of_drives} drive reads"
        );
        // Each page is read by an I/O node.
        let is_exact = of_query == (0, 0) && of_io == [0, 0] && avoided == pages;
        // A page for each key, and one more if the key may be among the spilled entries of its bucket.
        let has_few_pages = (gets..=gets + gets / 50).contains(&pages);
        // A read for each page, and one for each row that is found.
        if is_exact && has_few_pages && of_drives == pages + gets / 2 {
            break;
        }
        assert!(
            !is_last,
            "{pages} pages, {avoided} of them by I/O nodes; {of_drives} drive reads; requests to the store: \
             {of_query:?} of the query node, {of_io:?} of the I/O nodes"
        );
    }
    assert_eq!(counter(&node, IN_TABLE).await, 0);
    node.shutdown(Duration::from_secs(10)).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_pages_and_truncated_files_in_a_store_give_no_wrong_answer() {
    let Some(words) = Words::new(2).await else { return };
    let ever: Vec<String> = words.model.keys().cloned().collect();
    let (path, good) = words.run_file();
    let version = words.dataset().await.version_id();
    let key_index = ByteSize::kib(40);
    let put = |bytes: &[u8]| {
        let answer = words.s3.request("PUT", &path, bytes).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    };
    let mut damaged = good.clone();
    damaged[5 * 4096 + 70] ^= 1;
    put(&damaged);
    let cluster = words.serve(key_index).await;
    assert_eq!(covered(&cluster.client, version).await.paged_runs, 1);
    words.check(&cluster.client, &ever).await;
    assert!(counter(&cluster.query, DAMAGED).await > 0);
    assert_eq!(counter(&cluster.query, REFUSED).await, 1);
    let in_table = counter(&cluster.query, IN_TABLE).await;
    assert!((1..ever.len() as u64 / 2).contains(&in_table), "only keys of one page: {in_table}");
    cluster.stop().await;

    // The file is replaced while the I/O nodes have its blocks, so reading it does not fail. Only the damaged page
    // makes the query node list the files, and notice that this one is gone.
    let cluster = words.serve(key_index).await;
    assert_eq!(covered(&cluster.client, version).await.paged_runs, 1);
    assert_eq!(warm_indexes(&cluster).await.extents_failed, 0);
    let other = format!("/lake/words/_bireme/keys/{:032x}.keys", 1);
    for (method, path, bytes) in [("PUT", &other, &good[..]), ("DELETE", &path, &[])] {
        assert!(words.s3.request(method, path, bytes).unwrap().contains(" 20"), "{method}");
    }
    words.check(&cluster.client, &ever).await;
    assert_eq!(covered(&cluster.client, version).await.paged_runs, 1);
    let damaged = counter(&cluster.query, DAMAGED).await;
    assert!(damaged > 0);
    words.check(&cluster.client, &ever).await;
    assert_eq!(counter(&cluster.query, DAMAGED).await, damaged, "the other file is right");
    cluster.stop().await;
    assert!(words.s3.request("DELETE", &other, b"").unwrap().contains(" 204 "));

    // A file that is shorter than its head says is refused as a whole.
    put(&good[..good.len() - 4096]);
    let cluster = words.serve(key_index).await;
    words.check(&cluster.client, &ever).await;
    let deadline = soon();
    while counter(&cluster.query, REFUSED).await == 0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    words.check(&cluster.client, &ever).await;
    assert_eq!(counter(&cluster.query, READ).await, 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_a_folder_is_searched_by_page_too() {
    let folder = folder();
    let uri = folder.path().join("words");
    let lake = Lake::new(LakeOptions::default());
    let options = IngestOptions { key: Some("synset".into()), ..Default::default() };
    let sample = sample();
    let rows = read(&sample);
    ingest(&lake, &[sample], uri.to_str().unwrap(), &options, |_| {}).await.unwrap();
    write_runs(&lake, uri.to_str().unwrap(), "synset", |_| ()).await.unwrap();
    let cluster = Cluster::start_with(2, &[("words", &uri)], |_, query| {
        configure(query, ByteSize::kib(33));
    })
    .await;
    let version = Dataset::open(uri.to_str().unwrap()).await.unwrap().version_id();
    assert_eq!(covered(&cluster.client, version).await.paged_runs, 1);
    let (keys, glosses) = (texts(&rows, "synset"), texts(&rows, "gloss"));
    for (keys, glosses) in keys.chunks(KEYS).zip(glosses.chunks(KEYS)) {
        assert_eq!(get(&cluster.client, keys).await, (glosses.to_vec(), 0));
    }
    let absent: Vec<String> = keys.iter().take(KEYS).map(|key| format!("{key}-absent")).collect();
    assert_eq!(get(&cluster.client, &absent).await, (Vec::new(), KEYS.min(keys.len())));
    assert!(counter(&cluster.query, READ).await > 0);
    assert_eq!(counter(&cluster.query, IN_TABLE).await, 0);
    cluster.stop().await;
}
