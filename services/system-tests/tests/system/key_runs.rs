//! Tests key indexes that are persisted beside a table in an S3 server and loaded by query nodes.

use std::net::SocketAddr;
use std::time::Duration;

use arrow_array::cast::AsArray;
use client::fetch::Instant;
use client::query::GottenRows;
use key_runs::{RunFiles, write_runs};
use lake::{IngestOptions, Lake, LakeOptions, ingest};
use telemetry::TelemetryConfig;
use wire::query::{GetRequest, KeyIndex};

use crate::cluster::{Cluster, sample, soon};
use crate::store::S3;
use crate::telemetry::{scrape, value};
use crate::words::read;

const URI: &str = "s3://lake/words";

/// The number of keys of one request.
const KEYS: usize = 1000;

/// Serves the table from one I/O node.
async fn serve(s3: &S3) -> Cluster {
    Cluster::start_with(1, &[("words", URI.as_ref())], |io, query| {
        let metrics_listen: Option<SocketAddr> = Some(([127, 0, 0, 1], 0).into());
        query.telemetry = TelemetryConfig { metrics_listen, ..Default::default() };
        io.storage = s3.options();
        query.storage = s3.options();
    })
    .await
}

/// Looks up a key until the key index covers the table.
async fn covered(cluster: &Cluster, keys: &[String]) -> KeyIndex {
    let deadline = soon();
    loop {
        assert_eq!(glosses(cluster, &keys[..1]).await.len(), 1);
        let described = cluster.client.describe("words", 0).await.unwrap().response;
        match described.key_index {
            Some(index) if index.missing_rows == 0 => return index,
            state => assert!(Instant::now() < deadline, "{state:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn glosses(cluster: &Cluster, keys: &[String]) -> Vec<String> {
    let mut glosses = Vec::new();
    for keys in keys.chunks(KEYS) {
        let (table, columns) = ("words".to_owned(), vec!["gloss".to_owned()]);
        let request = GetRequest { table, keys: keys.to_vec(), columns, ..Default::default() };
        let answer = cluster.client.get(request).await.unwrap();
        let GottenRows::Arrow(rows) = answer.rows else { panic!("not Arrow") };
        glosses.extend(rows["gloss"].as_string::<i32>().iter().map(|it| it.unwrap().to_owned()));
    }
    glosses
}

/// Returns the numbers of runs that were loaded and built, and of files that were refused.
async fn sources(cluster: &Cluster) -> [f64; 3] {
    let address = cluster.query.metrics_addr().unwrap();
    let text = String::from_utf8(scrape(address, "/metrics", "*/*").await.1).unwrap();
    [
        value(&text, "bireme_query_key_index_runs_total{source=\"file\"}"),
        value(&text, "bireme_query_key_index_runs_total{source=\"column\"}"),
        value(&text, "bireme_query_key_index_refused_total"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_beside_a_table_in_s3_are_loaded_with_one_listing_and_one_read_each() {
    let Some(s3) = S3::start(false).await else { return };
    let rows = read(&sample());
    let of = |column: &str| -> Vec<String> {
        rows[column].as_string::<i32>().iter().map(|it| it.unwrap().to_owned()).collect()
    };
    let (keys, all) = (of("synset"), of("gloss"));
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let options = IngestOptions {
        key: Some("synset".into()),
        max_rows_per_file: 2_000,
        ..Default::default()
    };
    ingest(&lake, &[sample()], URI, &options, |_| {}).await.unwrap();
    let written = write_runs(&lake, URI, "synset", |_| ()).await.unwrap();
    assert_eq!((written.runs, written.written), (1, 1), "small files have a run together");

    let table = lake.open(URI).await.unwrap();
    let files = RunFiles::of(&table).await.unwrap();
    let before = lake.store_use();
    let [file] = files.list().await.unwrap().try_into().unwrap();
    let reader = files.open(&file.name).await.unwrap().unwrap();
    let run = reader.head().await.unwrap().load().await.unwrap();
    let after = lake.store_use();
    assert_eq!(run.rows() as usize, keys.len());
    assert_eq!((after.reads - before.reads, after.writes - before.writes), (1, 1));
    assert_eq!(after.bytes_read - before.bytes_read, written.bytes);

    let cluster = serve(&s3).await;
    let index = covered(&cluster, &keys).await;
    assert_eq!((index.runs, index.loaded_runs), (1, 1));
    assert_eq!(glosses(&cluster, &keys).await, all);
    assert_eq!(sources(&cluster).await, [1.0, 0.0, 0.0]);
    cluster.stop().await;

    // A damaged file is refused, and replaced when runs are written again.
    files.delete(&file.name).await.unwrap();
    let path = format!("/lake/words/_bireme/keys/{}", file.name);
    let mut bytes = run.to_bytes();
    bytes[9_000] ^= 1;
    let answer = s3.request("PUT", &path, &bytes).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    let cluster = serve(&s3).await;
    assert_eq!(covered(&cluster, &keys).await.loaded_runs, 0);
    assert_eq!(glosses(&cluster, &keys).await, all);
    assert_eq!(sources(&cluster).await, [0.0, 1.0, 1.0]);
    cluster.stop().await;
    let replaced = write_runs(&lake, URI, "synset", |_| ()).await.unwrap();
    assert_eq!((replaced.written, replaced.deleted, replaced.warnings.len()), (1, 1, 1));
    let [replacement] = files.list().await.unwrap().try_into().unwrap();
    assert_ne!(replacement.name, file.name);
}
