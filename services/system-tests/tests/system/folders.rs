//! Tests both tiers with folders of tables in the file system and in an S3 server: tables that appear are served,
//! tables that have gone are not, and an outage of the store changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchIterator, StringArray};
use client::query::QueryClient;
use lake::{IngestOptions, Lake, LakeError, LakeOptions, TableFolder, UriPrefix, ingest};
use lance::Dataset;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::Reason;
use wire::query::{GetRequest, WarmRequest};

use crate::cluster::{Cluster, Io, folder, sample, soon, total};
use crate::store::S3;

fn table_folder(uri: &str) -> TableFolder {
    TableFolder::of_config(uri).unwrap()
}

/// Writes the sample as a table with a key.
async fn write(lake: &Lake, uri: &str) {
    let options = IngestOptions { key: Some("synset".into()), ..Default::default() };
    ingest(lake, &[sample()], uri, &options, |_| {}).await.unwrap();
}

/// Waits until the query node lists these tables, by gRPC and by HTTP.
async fn until(cluster: &Cluster, names: &[&str]) {
    let deadline = soon();
    loop {
        let listed: Vec<_> =
            cluster.client.tables().await.unwrap().into_iter().map(|it| it.name).collect();
        let wanted = format!("\"tables\":{names:?}").replace(", ", ",");
        let shown = http(cluster, "GET", "/v1/table/", "").await;
        if listed == names && shown.contains(&wanted) {
            return;
        }
        assert!(
            client::fetch::Instant::now() < deadline,
            "{listed:?} in place of {names:?}: {shown}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sends a plain HTTP request to the query node, and returns the answer. Each of `headers` ends with a line break.
pub async fn http(cluster: &Cluster, method: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(cluster.query.local_addr()).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Looks up two keys, one of which no row has. Returns the number of rows that were found.
async fn get(client: &QueryClient, table: &str) -> Result<usize, wire::Fault> {
    let keys = vec!["n02503517".into(), "n00000000".into()];
    let request = GetRequest { table: table.into(), keys, ..Default::default() };
    client.get(request).await.map(|answer| 2 - answer.not_found.len())
}

/// Fills the drives with a table through the query node.
async fn warm(client: &QueryClient, table: &str) {
    use futures::StreamExt;
    let request = WarmRequest { table: table.into(), ..Default::default() };
    let mut progress = client.warm(request).await.unwrap();
    let mut last = None;
    while let Some(step) = progress.next().await {
        last = Some(step.unwrap());
    }
    let last = last.unwrap();
    assert!(last.extents_failed == 0 && last.extents_done == last.extents_total, "{last:?}");
}

async fn from_table(io: &Io) -> u64 {
    total(&io.describe().await, |core| core.table_rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_written_into_a_folder_is_served_by_both_tiers() {
    let root = folder();
    let lake_folder = root.path().canonicalize().unwrap().join("lake");
    std::fs::create_dir(&lake_folder).unwrap();
    let uri = lake_folder.to_str().unwrap();
    let cluster = Cluster::start_with(1, &[], |io, query| {
        query.folders = vec![table_folder(uri)];
        query.folder_refresh = Duration::from_millis(100);
        io.serve = vec![UriPrefix::of_config(&format!("{uri}/")).unwrap()];
    })
    .await;
    cluster.query.ready().await;
    until(&cluster, &[]).await;
    let lake = Lake::new(LakeOptions::default());
    write(&lake, &format!("{uri}/words.lance")).await;
    until(&cluster, &["words"]).await;
    warm(&cluster.client, "words").await;
    assert_eq!(get(&cluster.client, "words").await.unwrap(), 1);
    assert_eq!((from_table(&cluster.io[0]).await, cluster.query.fallback_rows()), (0, 0));
    let counted = http(&cluster, "POST", "/v1/table/words/count_rows/", "").await;
    assert!(counted.starts_with("HTTP/1.1 200") && counted.ends_with("6927"), "{counted}");

    // The I/O node serves no table outside the folder.
    write(&lake, root.path().join("outside.lance").to_str().unwrap()).await;
    let outside = root.path().canonicalize().unwrap().join("outside.lance");
    let refused = cluster.io[0].client.open(version_of(&outside), &[], soon()).await.unwrap_err();
    assert_eq!(refused.reason, Reason::TableNotServed, "{refused}");

    std::fs::remove_dir_all(lake_folder.join("words.lance")).unwrap();
    until(&cluster, &[]).await;
    let gone = get(&cluster.client, "words").await.unwrap_err();
    assert_eq!(gone.message, "no table `words` is served here; there is none");
    cluster.stop().await;
}

fn version_of(path: &Path) -> client::fetch::TableVersion<'_> {
    client::fetch::TableVersion {
        uri: path.to_str().unwrap(),
        branch: "",
        version: 1,
        identity: "",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_s3_is_followed_and_an_outage_changes_nothing() {
    let Some(mut s3) = S3::start(false).await else { return };
    let root = folder();
    let words = root.path().join("words");
    write(&Lake::new(LakeOptions::default()), words.to_str().unwrap()).await;
    // The folder's tables include neither an object directly in the folder nor a table in a folder below it.
    let stray = root.path().join("stray");
    std::fs::create_dir(&stray).unwrap();
    std::fs::write(stray.join("object.lance"), "x").unwrap();
    s3.put_folder(&stray, "/lake/tables");
    s3.put_folder(&stray, "/lake/tables/below/inner.lance");
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let absent = lake.list_folder(&table_folder("s3://absent/tables"), None).await.unwrap_err();
    assert!(matches!(absent, LakeError::FolderNotFound { .. }), "{absent}");
    let bucket = lake.list_folder(&table_folder("s3://lake"), None).await.unwrap();
    assert_eq!((bucket.tables.len(), bucket.is_cut), (0, false));

    let cluster = Cluster::start_with(1, &[], |io, query| {
        query.folders = vec![table_folder("s3://lake/tables")];
        query.folder_refresh = Duration::from_millis(100);
        (io.storage, query.storage) = (s3.options(), s3.options());
        query.store.breaker_pause = Duration::from_millis(100);
    })
    .await;
    cluster.query.ready().await;
    until(&cluster, &[]).await;
    s3.put_folder(&words, "/lake/tables/words.lance");
    until(&cluster, &["words"]).await;
    assert_eq!(get(&cluster.client, "words").await.unwrap(), 1);
    s3.put_folder(&words, "/lake/tables/other.lance");
    until(&cluster, &["other", "words"]).await;
    s3.delete_folder(&words, "/lake/tables/other.lance");
    until(&cluster, &["words"]).await;

    let says = async |is_failing: bool| {
        let deadline = soon();
        loop {
            let folder = cluster.client.status().await.unwrap().folders.remove(0);
            if folder.error.is_empty() != is_failing {
                return folder;
            }
            assert!(client::fetch::Instant::now() < deadline, "{folder:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(says(false).await.tables, 1);
    s3.stop();
    let failed = says(true).await;
    assert_eq!((failed.uri.as_str(), failed.tables), ("s3://lake/tables/", 1));
    assert!(failed.error.contains("s3://lake/tables"), "{}", failed.error);
    until(&cluster, &["words"]).await;
    // The server comes back without its objects.
    let _s3 = s3.emptied().await;
    assert_eq!(says(false).await.tables, 0);
    until(&cluster, &[]).await;
    cluster.stop().await;
}

/// Writes a manifest with the table `eu$words` at `location`.
async fn record(manifest: &Path, location: &str) {
    let columns = ["eu$words", "table", location, "{}"].map(|text| StringArray::from(vec![text]));
    let names = ["object_id", "object_type", "location", "metadata"];
    let columns = names.into_iter().zip(columns.map(|column| Arc::new(column) as _));
    let entry = RecordBatch::try_from_iter(columns).unwrap();
    let entries = RecordBatchIterator::new([Ok(entry.clone())], entry.schema());
    Dataset::write(entries, manifest.to_str().unwrap(), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_a_namespace_in_s3_is_served_by_both_tiers() {
    let Some(s3) = S3::start(false).await else { return };
    let root = folder();
    let (words, manifest) = (root.path().join("words"), root.path().join("__manifest"));
    write(&Lake::new(LakeOptions::default()), words.to_str().unwrap()).await;
    record(&manifest, "1_eu$words").await;
    s3.put_folder(&words, "/lake/tables/1_eu$words");
    s3.put_folder(&manifest, "/lake/tables/__manifest");

    // A manifest that has not changed costs one request more than the listing.
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let tables = table_folder("s3://lake/tables");
    let first = lake.list_folder(&tables, None).await.unwrap();
    let uri = first.tables["eu$words"].as_str();
    assert_eq!(uri, "s3://lake/tables/1_eu$words");
    let requests = || lake.store_use().reads + lake.store_use().writes;
    let before = requests();
    let second = lake.list_folder(&tables, first.namespaces.as_ref()).await.unwrap();
    assert_eq!(second, first);
    assert_eq!(requests() - before, 2);

    let cluster = Cluster::start_with(1, &[], |io, query| {
        query.folders = vec![table_folder("s3://lake/tables")];
        (io.storage, query.storage) = (s3.options(), s3.options());
    })
    .await;
    cluster.query.ready().await;
    warm(&cluster.client, "eu$words").await;
    assert_eq!(get(&cluster.client, "eu$words").await.unwrap(), 1);
    assert_eq!((from_table(&cluster.io[0]).await, cluster.query.fallback_rows()), (0, 0));
    let described = http(&cluster, "POST", "/v1/table/eu$words/describe/", "").await;
    assert!(described.contains(r#""namespace":["eu"]"#), "{described}");
    cluster.stop().await;
}
