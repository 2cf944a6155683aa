//! Requests that their callers cancel.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::Schema;
use client::query::{QueryClient, TakeRequest};
use query_node::{QueryConfig, QueryNode};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use wire::fetch::Opened;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::schema_to_bytes;

use crate::fake_io;
use crate::node::{config, serve_with};
use crate::table::{TestTable, address_of, lake, vector};

/// The maximum time of each wait: longer than the test takes on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves a table `t` whose I/O node answers no batch. Also returns what the I/O node receives: `asked` for batches,
/// `cancelled` for a cancellation.
async fn never_answered()
-> (TestTable, QueryNode, QueryClient, mpsc::UnboundedReceiver<&'static str>) {
    let (events, received) = mpsc::unbounded_channel();
    let table = TestTable::plain().await;
    let columns = Arc::clone(lake().open(&table.uri).await.unwrap().schema());
    let io = fake_io::serve(move |asked| match asked {
        RequestKind::Open(open) => {
            let fields = open.columns.iter().map(|name| columns.field_with_name(name));
            let fields: Vec<_> = fields.map(|field| field.unwrap().clone()).collect();
            let schema = schema_to_bytes(&pack::wire_schema(&Schema::new(fields))).unwrap();
            vec![ResponseKind::Opened(Opened { handle: open.handle, schema, error: None })]
        }
        // Batches are not answered.
        RequestKind::Batches(asked) => {
            for _ in asked.batches {
                events.send("asked").unwrap();
            }
            Vec::new()
        }
        RequestKind::Cancel(_) => {
            events.send("cancelled").unwrap();
            Vec::new()
        }
        RequestKind::Close(_) => Vec::new(),
    })
    .await;
    let (node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        // The deadline must not end the requests.
        timeout: 20 * PATIENCE,
        ..config(&[("t", &table)])
    })
    .await;
    (table, node, client, received)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_that_nobody_waits_for_is_cancelled_while_its_rows_are_read() {
    let (_table, _node, client, mut received) = never_answered().await;
    let request = TakeRequest {
        table: "t".into(),
        row_addrs: vec![address_of(1).to_u64(), address_of(2).to_u64()],
        columns: vec!["id".into()],
        ..Default::default()
    };
    let client = client.with_timeout(10 * PATIENCE);
    let taking = tokio::spawn(async move { client.take(request).await.map(drop) });
    let next = tokio::time::timeout(PATIENCE, received.recv()).await;
    assert_eq!(next.expect("it asks the I/O node"), Some("asked"));
    taking.abort();
    let next = tokio::time::timeout(PATIENCE, received.recv()).await;
    assert_eq!(next.expect("it cancels what it asked for"), Some("cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_over_http_is_cancelled_when_its_client_hangs_up() {
    let (_table, node, _client, mut received) = never_answered().await;
    let mut stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let body = r#"{"k": 2, "filter": "_rowid IN (1, 2)", "columns": ["id"]}"#;
    let length = body.len();
    let head = format!("POST /v1/table/t/query/ HTTP/1.1\r\nhost: x\r\ncontent-length: {length}");
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let next = tokio::time::timeout(PATIENCE, received.recv()).await;
    assert_eq!(next.expect("it asks the I/O node"), Some("asked"));
    drop(stream);
    let next = tokio::time::timeout(PATIENCE, received.recv()).await;
    assert_eq!(next.expect("it cancels what it asked for"), Some("cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_of_several_vectors_run_at_the_same_time_and_are_cancelled_together() {
    let (_table, node, _client, mut received) = never_answered().await;
    let vectors = [vector(1), vector(2), vector(3)];
    // Few rows, so that the credits of one stream are enough for all.
    let query = json!({"k": 1, "vector": vectors, "columns": ["id"], "filter": "id < 9"});
    let body = query.to_string();
    let length = body.len();
    let head = format!("POST /v1/table/t/query/ HTTP/1.1\r\nhost: x\r\ncontent-length: {length}");
    let mut stream = TcpStream::connect(node.local_addr()).await.unwrap();
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    // No vector is answered, and each is asked for.
    for _ in vectors {
        let next = tokio::time::timeout(PATIENCE, received.recv()).await;
        assert_eq!(next.expect("it asks the I/O node"), Some("asked"));
    }
    drop(stream);
    let next = tokio::time::timeout(PATIENCE, received.recv()).await;
    assert_eq!(next.expect("it cancels what it asked for"), Some("cancelled"));
}
