//! Starts nodes with clients, and reads the rows of their answers.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use client::query::{
    By, QueryClient, SearchRequest, Text, TextKind, TextMatch, TextPhrase, TextQuery, Vector,
};
use lake::Metric;
use query_node::{IoNodeConfig, QueryConfig, QueryNode, TableConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::table::{TestTable, lake};

/// Endpoints on which nothing listens.
pub const NOBODY: [&str; 2] = ["http://127.0.0.1:1", "http://127.0.0.1:2"];

pub fn config(tables: &[(&str, &TestTable)]) -> QueryConfig {
    let table = |(name, table): &(&str, &TestTable)| {
        ((*name).to_owned(), TableConfig { uri: table.uri.clone(), ..Default::default() })
    };
    QueryConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        tables: tables.iter().map(table).collect(),
        io_nodes: NOBODY.map(IoNodeConfig::at).into(),
        // The tests refresh explicitly.
        refresh_interval: Duration::from_secs(3600),
        ..Default::default()
    }
}

/// Serves `tables`.
pub async fn serve(tables: &[(&str, &TestTable)]) -> (QueryNode, QueryClient) {
    serve_with(config(tables)).await
}

pub async fn serve_with(config: QueryConfig) -> (QueryNode, QueryClient) {
    let node = QueryNode::start(config, lake()).await.unwrap();
    let endpoint = node.local_addr().to_string().parse().unwrap();
    let client = QueryClient::connect(&endpoint).await.unwrap();
    (node, client)
}

/// Returns what the Prometheus endpoint shows.
pub async fn metrics(node: &QueryNode) -> String {
    let mut stream = TcpStream::connect(node.metrics_addr().unwrap()).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Serves a table `t` that has an IVF_RQ index on its vectors, and indexes on its texts and keys.
pub async fn served() -> (TestTable, QueryNode, QueryClient) {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let (node, client) = serve(&[("t", &table)]).await;
    (table, node, client)
}

pub fn near(vector: Vec<f32>, k: u32) -> SearchRequest {
    by(By::Vector(Vector { values: vector }), k)
}

pub fn words(words: &str, k: u32) -> SearchRequest {
    by(By::Text(Text { words: words.into(), ..Default::default() }), k)
}

/// A full-text query that has the form `kind`.
pub fn text_of(kind: TextKind) -> Text {
    Text { query: Some(of(kind)), ..Default::default() }
}

pub fn of(kind: TextKind) -> TextQuery {
    TextQuery { kind: Some(kind) }
}

pub fn any_of(words: &str) -> TextQuery {
    of(TextKind::Match(TextMatch { words: words.into(), ..Default::default() }))
}

pub fn phrase(words: &str) -> TextQuery {
    of(TextKind::Phrase(TextPhrase { words: words.into(), ..Default::default() }))
}

pub fn by(by: By, k: u32) -> SearchRequest {
    SearchRequest { table: "t".into(), by: Some(by), k, ..Default::default() }
}

pub fn names(rows: &RecordBatch) -> Vec<String> {
    rows.schema().fields().iter().map(|field| field.name().clone()).collect()
}

pub fn ids(rows: &RecordBatch) -> Vec<i64> {
    rows["id"].as_primitive::<Int64Type>().values().to_vec()
}

pub fn addresses(rows: &RecordBatch) -> Vec<u64> {
    rows["_rowaddr"].as_primitive::<UInt64Type>().values().to_vec()
}

pub fn numbers(rows: &RecordBatch, name: &str) -> Vec<f32> {
    rows[name].as_primitive::<Float32Type>().values().to_vec()
}

/// Asserts that every row has the values that belong to its id, and its address.
pub fn assert_true(rows: &RecordBatch) {
    let ids = ids(rows);
    let wanted: Vec<u64> = ids.iter().map(|&id| crate::table::address_of(id).to_u64()).collect();
    assert_eq!(addresses(rows), wanted);
    let truth = crate::table::rows(ids.iter().copied());
    for name in names(rows).iter().filter(|name| !name.starts_with('_')) {
        let (got, wanted) = (&rows[name.as_str()], &truth[name.as_str()]);
        assert_eq!(got.data_type(), wanted.data_type(), "{name}");
        // Dictionaries of equal rows may number their values differently.
        match got.data_type() {
            arrow_schema::DataType::Dictionary(_, value) => {
                let plain = |array| arrow_cast::cast(array, value).unwrap();
                assert_eq!(&plain(got), &plain(wanted), "{name}");
            }
            _ => assert_eq!(got, wanted, "{name}"),
        }
    }
    assert!(rows.columns().iter().all(|column| column.len() == ids.len()));
}
