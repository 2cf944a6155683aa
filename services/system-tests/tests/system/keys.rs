//! Tests look-ups by key through both tiers, in the key index, while the table changes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use client::fetch::Instant;
use client::query::{GottenRows, LookupOpen, keys_of};
use futures::future::try_join_all;
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
    /// Serves WordNet in several files, without a BTREE, from two I/O nodes.
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
        let address = self.cluster.query.metrics_addr().unwrap();
        let text = scrape(address, "/metrics", "*/*").await.1;
        let text = String::from_utf8(text).unwrap();
        let of = |via| value(&text, &format!("bireme_query_keys_total{{via=\"{via}\"}}")) as u64;
        (of("key_index"), of("table"))
    }

    /// Gets rows by key on a Lookup stream, with all batches under way at the same time.
    async fn looked_up_on_a_stream(&self, keys: &[String]) -> (Vec<String>, usize) {
        let columns = vec!["gloss".to_owned()];
        let open = LookupOpen { table: "words".into(), columns, ..Default::default() };
        let stream = self.cluster.client.lookups().await.unwrap();
        let lookup = stream.open(open).await.unwrap();
        let batches = keys.chunks(BATCH_KEYS).map(|keys| {
            let keys: ArrayRef = Arc::new(StringArray::from_iter_values(keys));
            lookup.get(keys_of(&keys).unwrap())
        });
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
