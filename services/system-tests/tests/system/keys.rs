//! Tests look-ups by key through both tiers, in the key index, while the table changes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use client::fetch::Instant;
use client::query::{GottenRows, Keys, Lookup, LookupOpen, keys_of};
use futures::future::{join_all, try_join_all};
use lake::{IngestOptions, Lake, LakeOptions, ingest};
use lance::Dataset;
use telemetry::TelemetryConfig;
use wire::query::GetRequest;

use crate::cluster::{Cluster, folder, sample, soon};
use crate::telemetry::{scrape, value};
use crate::words::read;

/// The number of keys of one request.
const KEYS: usize = 1000;

/// The number of keys of one batch of a stream.
const BATCH_KEYS: usize = 64;

struct Keyed {
    _folder: tempfile::TempDir,
    uri: PathBuf,
    cluster: Cluster,
}

impl Keyed {
    /// Serves WordNet in several files, without a BTREE, from two I/O nodes. The query node has one core.
    async fn serve(source: &Path) -> Self {
        let folder = folder();
        let uri = folder.path().join("words");
        let rows = read(source).num_rows() as u64;
        let options = IngestOptions {
            key: Some("synset".into()),
            max_rows_per_file: (rows / 5).max(1) as usize,
            ..Default::default()
        };
        let lake = Lake::new(LakeOptions::default());
        let summary =
            ingest(&lake, &[source.to_owned()], uri.to_str().unwrap(), &options, |_| {}).await;
        assert_eq!(summary.unwrap().rows, rows);
        let metrics_listen: Option<SocketAddr> = Some(([127, 0, 0, 1], 0).into());
        let cluster = Cluster::start_with(2, &[("words", &uri)], |_, query| {
            query.telemetry = TelemetryConfig { metrics_listen, ..Default::default() };
            query.cores = 1;
        })
        .await;
        Self { _folder: folder, uri, cluster }
    }

    /// Waits until this version is served and the key index covers it.
    async fn covered(&self, version: u64) {
        let deadline = soon();
        loop {
            let described = self.cluster.client.describe("words", 0).await.unwrap().response;
            let missing = described.key_index.map(|index| (index.missing_rows, index.error));
            match (described.version, missing) {
                (found, Some((0, _))) if found == version => return,
                state => assert!(Instant::now() < deadline, "{state:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the number of keys that were looked up in the key index alone, and in the table.
    async fn looked_up(&self) -> (u64, u64) {
        let text = self.metrics().await;
        let of = |via| value(&text, &format!("bireme_query_keys_total{{via=\"{via}\"}}")) as u64;
        (of("key_index"), of("table"))
    }

    /// Returns the number of fetches that I/O nodes have answered, and of their rows.
    async fn fetched(&self) -> (u64, u64) {
        let text = self.metrics().await;
        let of = |part| value(&text, &format!("bireme_query_fetch_rows_{part}")) as u64;
        (of("count"), of("sum"))
    }

    async fn metrics(&self) -> String {
        let address = self.cluster.query.metrics_addr().unwrap();
        String::from_utf8(scrape(address, "/metrics", "*/*").await.1).unwrap()
    }

    /// Opens a Lookup stream for glosses.
    async fn stream(&self) -> Lookup {
        let columns = vec!["gloss".to_owned()];
        let open = LookupOpen { table: "words".into(), columns, ..Default::default() };
        self.cluster.client.lookups().await.unwrap().open(open).await.unwrap()
    }

    /// Gets rows by key on a Lookup stream, with all batches under way at the same time.
    async fn looked_up_on_a_stream(&self, keys: &[String]) -> (Vec<String>, usize) {
        let lookup = self.stream().await;
        let batches = keys.chunks(BATCH_KEYS).map(|keys| lookup.get(text_keys(keys)));
        let (mut glosses, mut absent) = (Vec::new(), 0);
        for answer in try_join_all(batches).await.unwrap() {
            let Some(GottenRows::Arrow(rows)) = answer.rows else { panic!("not Arrow") };
            glosses.extend(texts(&rows, "gloss"));
            absent += answer.not_found.len();
        }
        (glosses, absent)
    }

    /// Gets rows by key, by single calls and on a stream. Returns the glosses, and the number of keys without a row.
    async fn get(&self, keys: &[String]) -> (Vec<String>, usize) {
        let (mut glosses, mut absent) = (Vec::new(), 0);
        for keys in keys.chunks(KEYS) {
            let (table, columns) = ("words".to_owned(), vec!["gloss".to_owned()]);
            let request = GetRequest { table, keys: keys.to_vec(), columns, ..Default::default() };
            let answer = self.cluster.client.get(request).await.unwrap();
            let GottenRows::Arrow(rows) = answer.rows else { panic!("not Arrow") };
            let schema = rows.schema();
            let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
            assert_eq!(names, ["gloss", "_rowaddr"], "the key column was not asked for");
            glosses.extend(texts(&rows, "gloss"));
            absent += answer.not_found.len();
        }
        assert_eq!(self.looked_up_on_a_stream(keys).await, (glosses.clone(), absent));
        (glosses, absent)
    }
}

fn text_keys<S: AsRef<str>>(keys: &[S]) -> Keys {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(keys));
    keys_of(&keys).unwrap()
}

/// Returns the only gloss of an answer.
async fn gloss_of(stream: &Lookup, key: &str) -> String {
    let Some(GottenRows::Arrow(rows)) = stream.get(text_keys(&[key])).await.unwrap().rows else {
        panic!("not Arrow")
    };
    let mut glosses = texts(&rows, "gloss");
    assert_eq!(glosses.len(), 1, "{key}");
    glosses.remove(0)
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<String> {
    rows[column].as_string::<i32>().iter().map(|text| text.unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_of_wordnet_are_found_in_the_key_index_before_and_after_changes() {
    let source = std::env::var_os("BIREME_WORDNET").filter(|file| !file.is_empty());
    let source = source.map_or_else(sample, PathBuf::from);
    let rows = read(&source);
    let keyed = Box::pin(Keyed::serve(&source)).await;
    let mut dataset = Dataset::open(keyed.uri.to_str().unwrap()).await.unwrap();
    let keys = texts(&rows, "synset");
    let glosses = texts(&rows, "gloss");
    let absent: Vec<String> = keys.iter().map(|key| format!("{key}-absent")).collect();
    // The first look-up starts the build of the index, but does not wait for it.
    assert_eq!(keyed.get(&keys[..1]).await, (glosses[..1].to_vec(), 0));
    keyed.covered(dataset.version_id()).await;
    let before = keyed.looked_up().await;
    assert_eq!(keyed.get(&keys).await, (glosses.clone(), 0));
    assert_eq!(keyed.get(&absent).await, (Vec::new(), absent.len()));
    let after = keyed.looked_up().await;
    assert_eq!((after.0 - before.0, after.1), (4 * keys.len() as u64, before.1));

    // Delete some rows, and append half of them again.
    let moved: Vec<String> = keys.iter().step_by(97).cloned().collect();
    let list = moved.iter().map(|key| format!("'{key}'")).collect::<Vec<_>>().join(", ");
    dataset.delete(&format!("synset IN ({list})")).await.unwrap();
    let is_back = |row: usize| row.is_multiple_of(194);
    let back: Vec<u32> =
        (0..keys.len()).filter(|&row| is_back(row)).map(|row| row as u32).collect();
    let back = arrow_array::UInt32Array::from(back);
    let batch = arrow_select::take::take_record_batch(&rows, &back).unwrap();
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    dataset.append(reader, None).await.unwrap();
    keyed.covered(dataset.version_id()).await;
    let before = keyed.looked_up().await;
    let live = |row: &usize| !row.is_multiple_of(97) || is_back(*row);
    let expected: Vec<String> =
        (0..keys.len()).filter(live).map(|row| glosses[row].clone()).collect();
    let gone = keys.len() - expected.len();
    assert_eq!(keyed.get(&keys).await, (expected, gone));
    let after = keyed.looked_up().await;
    assert_eq!((after.0 - before.0, after.1), (2 * keys.len() as u64, before.1));
    keyed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_core_share_fetches_and_a_row_is_fetched_once() {
    const STREAMS: usize = 64;
    const ROUNDS: usize = 20;
    let rows = read(&sample());
    let (keys, glosses) = (texts(&rows, "synset"), texts(&rows, "gloss"));
    let keyed = Box::pin(Keyed::serve(&sample())).await;
    let dataset = Dataset::open(keyed.uri.to_str().unwrap()).await.unwrap();
    keyed.get(&keys[..1]).await;
    keyed.covered(dataset.version_id()).await;
    keyed.get(&keys).await;

    let streams = join_all((0..STREAMS).map(|_| keyed.stream())).await;
    let look_up = async |row_of: &dyn Fn(usize, usize) -> usize| {
        let before = keyed.fetched().await;
        for round in 0..ROUNDS {
            let got = (0..).zip(&streams).map(|(number, stream)| {
                let row = row_of(round, number) % keys.len();
                let (key, gloss) = (&keys[row], &glosses[row]);
                async move { assert_eq!(&gloss_of(stream, key).await, gloss) }
            });
            join_all(got).await;
        }
        let after = keyed.fetched().await;
        (after.0 - before.0, after.1 - before.1)
    };
    // Each batch has one key, so without sharing there would be a fetch for each row. How many batches are ready at the
    // same time depends on the machine.
    let (fetches, fetched) = look_up(&|round, number| round * STREAMS + number).await;
    assert_eq!(fetched as usize, STREAMS * ROUNDS);
    assert!(fetches < fetched, "no batches shared a fetch: {fetches} for {fetched} rows");
    println!("{STREAMS} streams with one key each: {fetched} rows in {fetches} fetches");
    // All streams ask for the same key.
    let (fetches, fetched) = look_up(&|round, _| round).await;
    assert_eq!(fetches, fetched);
    let asked = STREAMS * ROUNDS;
    assert!((fetched as usize) < asked, "{fetched} rows are fetched for {asked} equal keys");
    println!("{asked} keys, equal in each round: {fetched} rows in {fetches} fetches");

    // One batch in which two keys alternate.
    let before = keyed.fetched().await;
    let repeated: Vec<&String> = (0..KEYS).map(|at| &keys[at % 2]).collect();
    let answer = streams[0].get(text_keys(&repeated)).await.unwrap();
    let Some(GottenRows::Arrow(rows)) = answer.rows else { panic!("not Arrow") };
    let expected: Vec<&String> = (0..KEYS).map(|at| &glosses[at % 2]).collect();
    assert!(texts(&rows, "gloss").iter().eq(expected));
    let after = keyed.fetched().await;
    assert_eq!(after.1 - before.1, 2);
    keyed.cluster.stop().await;
}
