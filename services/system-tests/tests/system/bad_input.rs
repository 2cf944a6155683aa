//! Tests invalid input: each case returns one clear error, which names the cause.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
};
use arrow_schema::{DataType, Field};
use bytesize::ByteSize;
use client::fetch::{Metric, Rerank, TableVersion};
use io_node::{DriveConfig, IoNode, NodeError};
use lance::Dataset;
use wire::query::{
    GetRequest, OnMissing, SearchRequest, TakeRequest, Text, Vector, search_request::By,
};
use wire::{Fault, Reason};

use crate::cluster::{Cluster, Io, folder, io_config, joined, lake_of, soon, start_io, stop_io};

/// Writes a table of 20 rows with an id and a vector of two dimensions, and deletes row 3.
async fn write(uri: &Path) {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let values = Arc::new(Float32Array::from_iter_values((0..40).map(|x| x as f32)));
    let vectors = FixedSizeListArray::new(item, 2, values, None);
    let ids = Int64Array::from_iter_values(0..20);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("vector", Arc::new(vectors))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let mut dataset = Dataset::write(reader, uri.to_str().unwrap(), None).await.unwrap();
    dataset.delete("id = 3").await.unwrap();
}

fn named(fault: &Fault, reason: Reason, names: &str) {
    assert_eq!(fault.reason, reason, "{fault}");
    assert!(fault.message.contains(names), "`{fault}` does not name `{names}`");
}

fn near(values: &[f32]) -> SearchRequest {
    let by = By::Vector(Vector { values: values.to_vec() });
    SearchRequest { table: "t".into(), by: Some(by), k: 3, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_searches_name_the_cause() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let cluster = Cluster::start(1, &[("t", &uri)]).await;
    let fault = async |request| cluster.client.search(request).await.unwrap_err();
    let base = || near(&[1.0, 2.0]);
    let request = SearchRequest { table: "nope".into(), ..base() };
    named(&fault(request).await, Reason::TableNotFound, "nope");
    let request = SearchRequest { version: 99, ..base() };
    named(&fault(request).await, Reason::VersionNotFound, "99");
    let request = SearchRequest { columns: vec!["nope".into()], ..base() };
    named(&fault(request).await, Reason::ColumnNotFound, "nope");
    named(&fault(near(&[1.0])).await, Reason::BadVector, "vector");
    named(&fault(near(&[1.0, f32::NAN])).await, Reason::BadVector, "");
    named(&fault(SearchRequest { k: 0, ..base() }).await, Reason::BadArgument, "k");
    named(&fault(SearchRequest { k: 10_001, ..base() }).await, Reason::BadArgument, "10");
    let request = SearchRequest { filter: "id = = 3".into(), ..base() };
    named(&fault(request).await, Reason::BadFilter, "id = = 3");
    for left_over in [
        "id < 9 adn id > 4",
        "id < 5) or (1=1",
        "id < 5) garbage",
        "id < 5)))",
        "id = 5; drop table t",
    ] {
        let request = SearchRequest { filter: left_over.into(), ..base() };
        named(&fault(request).await, Reason::BadFilter, left_over);
    }
    let request = SearchRequest { filter: "nope > 3".into(), ..base() };
    named(&fault(request).await, Reason::BadFilter, "nope");
    let by = By::Text(Text { words: "x".into(), ..Default::default() });
    let request = SearchRequest { by: Some(by), ..base() };
    named(&fault(request).await, Reason::NoIndex, "");
    let request = SearchRequest { by: Some(By::Like("1".into())), ..base() };
    named(&fault(request).await, Reason::NoIndex, "key");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_takes_and_gets_name_the_cause() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let cluster = Cluster::start(1, &[("t", &uri)]).await;
    let take = async |row_addrs: Vec<u64>, on_missing: OnMissing| {
        let on_missing = on_missing as i32;
        let request =
            TakeRequest { table: "t".into(), row_addrs, on_missing, ..Default::default() };
        match cluster.client.take(request).await {
            Ok(stream) => stream.collect().await,
            Err(fault) => Err(fault),
        }
    };
    let error = OnMissing::Error;
    named(&take(vec![], error).await.unwrap_err(), Reason::BadArgument, "");
    named(&take(vec![3], error).await.unwrap_err(), Reason::RowNotFound, "3");
    named(&take(vec![1, 77], error).await.unwrap_err(), Reason::RowNotFound, "77");
    let elsewhere = RowAddr::new(9, 1).to_u64();
    named(&take(vec![elsewhere], error).await.unwrap_err(), Reason::RowNotFound, "");
    let skipped = take(vec![1, 3, 77, 2], OnMissing::Skip).await.unwrap();
    assert_eq!((joined(&skipped).num_rows(), skipped.missing), (2, vec![1, 2]));
    let get = |key_column: &str, key: &str| {
        let request = GetRequest {
            table: "t".into(),
            keys: vec![key.into()],
            key_column: key_column.into(),
            ..Default::default()
        };
        cluster.client.get(request)
    };
    named(&get("", "1").await.unwrap_err(), Reason::NoIndex, "key");
    named(&get("nope", "1").await.unwrap_err(), Reason::ColumnNotFound, "nope");
    named(&get("id", "one").await.unwrap_err(), Reason::BadArgument, "one");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_a_fetch_name_the_cause_and_the_stream_goes_on() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let uri = uri.to_str().unwrap();
    let io = Io::start(|_| {}).await;
    let open = async |uri: &str, version, column: &str| {
        let table = TableVersion { uri, branch: "", version, identity: "" };
        io.client.open(table, &[column.to_owned()], soon()).await
    };
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    named(&open(nowhere, 1, "id").await.unwrap_err(), Reason::TableNotFound, "nowhere");
    named(&open(uri, 9, "id").await.unwrap_err(), Reason::VersionNotFound, "9");
    named(&open(uri, 2, "nope").await.unwrap_err(), Reason::ColumnNotFound, "nope");
    let ids = open(uri, 2, "id").await.unwrap();
    let rerank = |values: &[f32], k| Some(Rerank::new(values, Metric::L2, k));
    let fetch = async |rerank| {
        io.client.fetch(&ids, vec![RowAddr::new(0, 1)], rerank, soon()).await.unwrap_err()
    };
    named(&fetch(rerank(&[1.0, 2.0], 1)).await, Reason::BadVector, "id");
    let empty = io.client.fetch(&ids, vec![], None, soon()).await.unwrap_err();
    named(&empty, Reason::BadArgument, "empty");
    let good = io.client.fetch(&ids, vec![RowAddr::new(0, 1)], None, soon()).await.unwrap();
    assert_eq!(good.into_rows().unwrap().num_rows(), 1);
    io.stop().await;
}

async fn start_error(change: impl FnOnce(&mut io_node::IoConfig)) -> NodeError {
    let folder = folder();
    let mut config = io_config(folder.path());
    change(&mut config);
    let started =
        tokio::task::spawn_blocking(move || IoNode::start(config.clone(), lake_of(&config)))
            .await
            .unwrap();
    started.err().expect("a node started that should not")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_start_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = start_error(|config| config.listen = address).await;
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let error = start_error(|config| config.drives[0].path = "/nowhere/slab".into()).await;
    assert!(error.to_string().contains("/nowhere/slab"), "{error}");
    let error = start_error(|config| config.drives[0].size = Some(ByteSize::pib(1))).await;
    assert!(error.to_string().contains("no space"), "{error}");
    let error = start_error(|config| config.drives[0].path = "/dev/null".into()).await;
    assert!(error.to_string().contains("/dev/null"), "{error}");

    let folder = folder();
    let config = io_config(folder.path());
    let node = start_io(config.clone()).await;
    let shared = vec![DriveConfig { path: folder.path().join("slab"), size: None }];
    let error = start_error(|config| config.drives = shared).await;
    assert!(error.to_string().contains("in use"), "{error}");
    stop_io(node).await;
    // Another node can use the slab of a stopped node.
    let again = start_io(config).await;
    again.stop(Duration::from_secs(5));
}
