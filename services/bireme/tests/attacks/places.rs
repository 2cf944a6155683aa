//! Attempts to make a node read tables and files other than its own.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::{Int32Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, Schema};
use client::fetch::{FetchClient, FetchOptions, Instant, TableVersion};
use client::query::QueryClient;
use futures::StreamExt;
use lance::Dataset;
use lance::blob::{BlobArrayBuilder, blob_field};
use lance::dataset::WriteParams;
use lance_file::version::LanceFileVersion;
use tokio::runtime::Runtime;
use wire::fetch::{DescribeResponse, WarmRequest};
use wire::{Fault, Reason};

use super::cluster::{Cluster, Node, PATIENCE, Settings};
use super::report::held;
use super::{binary, folder, run, text, words_table};

/// The content of a file, and the key of a store. No node may expose it.
const SECRET: &str = "5ecret-of-the-node";

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn connected(node: &Node) -> FetchClient {
    FetchClient::new(node.endpoint.parse().unwrap(), FetchOptions::default()).unwrap()
}

/// Opens a table at `uri` on a node.
async fn open(client: &FetchClient, uri: &str) -> Result<(), Fault> {
    let table = TableVersion { uri, branch: "", version: 1, identity: "" };
    client.open(table, &["synset".into()], soon()).await.map(drop)
}

/// Warms a table at `uri` on a node.
async fn warm(client: &FetchClient, uri: &str) -> Result<(), Fault> {
    let request = WarmRequest { table_uri: uri.into(), version: 1, ..Default::default() };
    let mut steps = client.warm(request).await?;
    while let Some(step) = steps.next().await {
        step?;
    }
    Ok(())
}

async fn described(client: &FetchClient) -> DescribeResponse {
    client.describe(Duration::from_secs(30)).await.unwrap()
}

/// Starts a listener on loopback. Returns its port and the count of connections to it.
fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, seen) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    std::thread::spawn(move || {
        while listener.accept().is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, seen)
}

/// Returns the settings of a cluster whose nodes have credentials for object stores at `port` of loopback.
fn with_stores(port: u16) -> Settings {
    let endpoint = format!("http://127.0.0.1:{port}");
    let options = [
        format!("aws_endpoint={endpoint}"),
        "aws_region=us-east-1".into(),
        "aws_access_key_id=key".into(),
        format!("aws_secret_access_key={SECRET}"),
        "azure_storage_account_name=account".into(),
        format!("azure_storage_endpoint={endpoint}"),
    ];
    let arguments: Vec<_> =
        options.into_iter().flat_map(|option| ["--storage".to_owned(), option]).collect();
    Settings { io_arguments: arguments.clone(), query_arguments: arguments, ..Settings::default() }
}

#[test]
fn only_configured_tables_are_opened_and_all_others_are_refused_alike() {
    let (port, seen) = listener();
    let folder = folder();
    let table = words_table(folder.path());
    let another = folder.path().join("another");
    std::fs::create_dir(&another).unwrap();
    // Make a second table beside the one that is served.
    let another = words_table(&another);
    std::fs::write(folder.path().join("file"), SECRET).unwrap();
    symlink(&another, folder.path().join("link")).unwrap();
    let cluster = Cluster::start_over(&with_stores(port), folder, table.clone());
    let base = text(cluster.folder()).to_owned();
    let attacks = [
        text(&another).to_owned(),
        format!("{base}/link"),
        format!("{base}/absent"),
        format!("{base}/file"),
        base.clone(),
        format!("{base}/words2"),
        format!("{}/data", text(&table)),
        "/".into(),
        "/etc".into(),
        "/etc/shadow".into(),
        "/root".into(),
        "/proc/self".into(),
        "/proc/1/root".into(),
        "s3://any-bucket/table".into(),
        "s3://127.0.0.1/table".into(),
        "gs://any-bucket/table".into(),
        "az://container/table".into(),
        format!("http://127.0.0.1:{port}/table"),
        format!("https://127.0.0.1:{port}/table"),
        "memory://table".into(),
        "hf://owner/table".into(),
        "".into(),
        "x".repeat(100_000),
    ];
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(async { connected(&cluster.io) });
    let mut refusals = BTreeMap::new();
    for uri in &attacks {
        for refused in
            runtime.block_on(async { [open(&client, uri).await, warm(&client, uri).await] })
        {
            let fault = refused.expect_err(uri);
            assert_eq!(fault.reason, Reason::TableNotServed, "{uri}: {fault}");
            *refusals.entry(format!("{} {:?}", fault.message, fault.metadata)).or_insert(0) += 1;
        }
    }
    assert_eq!(refusals.len(), 1, "refusals differ by whether a table exists: {refusals:#?}");
    assert_eq!(seen.load(Ordering::SeqCst), 0, "the node asked a store");
    let now = runtime.block_on(described(&client));
    assert!(now.extents == 0 && now.tables.is_empty(), "{:?}", now.tables);
    runtime.block_on(open(&client, text(&cluster.table))).unwrap();
    cluster.assert_healthy();
    let count = attacks.len();
    held(1, "tables that nobody configured", &format!("{count} URIs refused with one message"));
    held(3, "other buckets and schemes", "no request left the node");
    held(14, "probing of paths", "existing, absent and forbidden paths have one refusal");
}

/// Creates a table at `uri` with a row for each URI in `blobs`. A row has an id (0, 1, …) and an external blob at the
/// row's URI.
fn external_blobs(uri: &Path, blobs: &[String]) {
    let mut array = BlobArrayBuilder::new(blobs.len());
    blobs.iter().for_each(|blob| array.push_uri(blob).unwrap());
    let ids = Int32Array::from_iter_values(0..blobs.len() as i32);
    let fields = vec![Field::new("id", DataType::Int32, false), blob_field("blob", true)];
    let schema = Arc::new(Schema::new(fields));
    let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(ids), array.finish().unwrap()];
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let params = WriteParams {
        data_storage_version: Some(LanceFileVersion::V2_2),
        allow_external_blob_outside_bases: true,
        ..Default::default()
    };
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let write = Dataset::write(reader, text(uri), Some(params));
    Runtime::new().unwrap().block_on(write).unwrap();
}

#[test]
fn external_blobs_bring_nothing_out_that_is_not_the_tables() {
    let (port, seen) = listener();
    let folder = folder();
    let table = folder.path().join("words");
    let secret = folder.path().join("token");
    std::fs::write(&secret, SECRET).unwrap();
    std::fs::create_dir(&table).unwrap();
    std::fs::write(table.join("own"), "the table's own").unwrap();
    symlink(&secret, table.join("link")).unwrap();
    let tenant = folder.path().join("tenant");
    std::fs::create_dir(&tenant).unwrap();
    let tenant = words_table(&tenant);
    let manifests = std::fs::read_dir(tenant.join("_versions")).unwrap();
    let of_tenant = manifests.map(|entry| entry.unwrap().path()).next().unwrap();
    let blobs = [
        format!("file://{}", text(&table.join("own"))),
        format!("file://{}", text(&secret)),
        "file:///proc/self/environ".into(),
        format!("file://{}/../token", text(&table)),
        format!("file://{}", text(&table.join("link"))),
        format!("file://{}", text(&of_tenant)),
        format!("file+uring://{}", text(&secret)),
        format!("file-object-store://{}", text(&secret)),
        "s3://another-bucket/key".into(),
        "gs://another-bucket/key".into(),
    ];
    external_blobs(&table, &blobs);
    let cluster = Cluster::start_over(&with_stores(port), folder, table.clone());
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(async { connected(&cluster.io) });
    let fetch = |column: &str, row: u32| {
        let (client, uri, column) = (client.clone(), text(&table).to_owned(), column.to_owned());
        runtime.block_on(async move {
            let version = TableVersion { uri: &uri, branch: "", version: 1, identity: "" };
            let projection = client.open(version, &[column], soon()).await?;
            client.fetch(&projection, vec![RowAddr::new(0, row)], None, soon()).await
        })
    };
    let own = fetch("blob", 0).unwrap().into_rows().unwrap();
    assert_eq!(own["blob"].as_binary::<i64>().value(0), b"the table's own");
    for (row, blob) in blobs.iter().enumerate().skip(1) {
        let Err(fault) = fetch("blob", row as u32) else { panic!("{blob} was answered") };
        assert!(!fault.message.contains(SECRET), "{blob}: {fault}");
        // The rest of the row is answered.
        let id = fetch("id", row as u32).unwrap().into_rows().unwrap();
        assert_eq!(id.num_rows(), 1);
    }
    // Fills read the blobs as well, and so do requests to the query node.
    let _ = runtime.block_on(warm(&client, text(&table)));
    let queried = runtime.block_on(async {
        let query = QueryClient::connect(&cluster.query.endpoint.parse().unwrap()).await.unwrap();
        let rows: Vec<_> = (1..blobs.len()).map(|row| RowAddr::new(0, row as u32)).collect();
        let mut answers = Vec::new();
        for row in rows {
            let take = client::query::TakeRequest {
                table: "words".into(),
                row_addrs: vec![row.to_u64()],
                columns: vec!["blob".into()],
                ..Default::default()
            };
            answers.push(query.take(take).await.map(drop));
        }
        answers
    });
    assert!(queried.iter().all(Result::is_err), "{queried:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 0, "the node asked a store");
    let slab = std::fs::read(cluster.folder().join("slab")).unwrap();
    for needle in [SECRET.as_bytes(), b"BIREME_IO_MEMORY="] {
        let is_there = slab.windows(needle.len()).any(|window| window == needle);
        assert!(!is_there, "{:?} is on the slab", String::from_utf8_lossy(needle));
    }
    for node in [&cluster.io, &cluster.query] {
        node.assert_alive();
        node.assert_answers_probes();
        assert!(!node.log().contains(SECRET), "a secret is in the log");
    }
    let count = blobs.len() - 1;
    held(
        2,
        "external blobs",
        &format!("{count} files and objects elsewhere refused; none of their bytes on the slab"),
    );
}

#[test]
fn every_spelling_of_a_table_has_its_quota_or_none() {
    let folder = folder();
    let table = words_table(folder.path());
    let config = folder.path().join("io.toml");
    let uri = text(&table).to_owned();
    let shares = format!("[[shares]]\nuri = \"{uri}/\"\nmaximum = \"16MiB\"\n");
    std::fs::write(&config, shares).unwrap();
    let io_arguments = vec!["--config".into(), text(&config).into()];
    let settings = Settings { io_arguments, ..Settings::default() };
    let cluster = Cluster::start_over(&settings, folder, table.clone());
    let base = text(cluster.folder()).to_owned();
    let spellings = [
        format!("{base}/x1/../words"),
        format!("{base}/./words"),
        format!("{base}//words"),
        format!("/{uri}"),
        format!("{uri}/"),
        format!("{uri}//"),
        format!("{uri}/."),
        format!("{uri}/data/.."),
        format!("file://{uri}"),
        format!("file://localhost{uri}"),
        format!("file+uring://{uri}"),
        format!("{base}/%77ords"),
        format!("{uri}?x"),
        format!("{uri}#x"),
        format!(" {uri}"),
        format!("{uri}\n"),
    ];
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(async { connected(&cluster.io) });
    for spelling in &spellings {
        let fault = runtime.block_on(warm(&client, spelling)).expect_err(spelling);
        assert_eq!(fault.reason, Reason::TableNotServed, "{spelling}: {fault}");
    }
    runtime.block_on(warm(&client, &uri)).unwrap();
    let now = runtime.block_on(described(&client));
    assert_eq!(now.tables.len(), 1, "{:?}", now.tables);
    let used = &now.tables[0];
    assert!(used.extents > 0 && used.bytes <= used.maximum_bytes, "{used:?}");
    assert_eq!(used.maximum_bytes, 16 << 20);
    cluster.assert_healthy();
    let count = spellings.len();
    held(
        11,
        "spellings of one table",
        &format!("{count} refused; the canonical one keeps to its quota"),
    );
}

#[test]
fn paths_of_tables_are_not_exposed_and_no_name_forges_a_log_line() {
    let folder = folder();
    let table = words_table(folder.path());
    let cluster = Cluster::start_over(&with_stores(9), folder, table.clone());
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(async { connected(&cluster.io) });
    runtime.block_on(warm(&client, text(&table))).unwrap();
    for uri in ["/x\nERROR forged", "/x\u{1b}[2Jforged", "s3://b/\r\nforged"] {
        let fault = runtime.block_on(open(&client, uri)).unwrap_err();
        assert!(!fault.message.contains("forged"), "{fault}");
    }
    let query = cluster.query.endpoint.as_str();
    let said = [
        run(&["tables", "--endpoint", query, "--json"]),
        run(&["describe", "words", "--endpoint", query, "--json"]),
        run(&["status", "--endpoint", query, "--json"]),
        cluster.io.scrape(),
        cluster.query.scrape(),
        format!("{:?}", runtime.block_on(described(&client)).tables),
    ];
    let base = text(cluster.folder());
    for (at, said) in said.iter().enumerate() {
        for secret in [&format!("{base}/words"), SECRET] {
            assert!(!said.contains(secret), "answer {at} has {secret}: {said}");
        }
    }
    assert!(said[5].contains("words-"), "{}", said[5]);
    for node in [&cluster.io, &cluster.query] {
        let log = node.log();
        assert!(!log.contains(SECRET) && !log.contains("forged"), "{log}");
    }
    // A URI with a secret in it is refused at the start, and the error does not repeat it.
    for uri in ["s3://key:5ecret-of-the-node@b/t", "az://c/t?sig=5ecret-of-the-node"] {
        let named = format!("words={uri}");
        for command in [
            &["io", "--drive", "/nowhere/slab:96MiB", "--serve", uri][..],
            &["query", "--io-node", "127.0.0.1:9", "--table", &named],
            &["up", "--table", &named, "--cache-dir", base],
        ] {
            let output = std::process::Command::new(binary()).args(command).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{command:?}");
            assert!(!said.contains(SECRET), "{command:?}: {said}");
        }
    }
    cluster.assert_healthy();
    held(
        14,
        "where tables are; secrets in URIs",
        "shown by name or label alone; refused at the start",
    );
}
