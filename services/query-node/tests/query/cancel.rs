//! Requests that their callers cancel.

use std::time::Duration;

use arrow_schema::{DataType, Field, Schema};
use client::query::TakeRequest;
use query_node::QueryConfig;
use tokio::sync::mpsc;
use wire::fetch::Opened;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::schema_to_bytes;

use crate::fake_io;
use crate::node::{config, serve_with};
use crate::table::{TestTable, address_of};

/// The maximum time of each wait: longer than the test takes on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_take_that_nobody_waits_for_is_cancelled_while_its_rows_are_read() {
    let (events, mut received) = mpsc::unbounded_channel();
    let io = fake_io::serve(move |asked| match asked {
        RequestKind::Open(open) => {
            let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
            let schema = schema_to_bytes(&schema).unwrap();
            vec![ResponseKind::Opened(Opened { handle: open.handle, schema, error: None })]
        }
        // Batches are not answered.
        RequestKind::Batches(_) => {
            events.send("asked").unwrap();
            Vec::new()
        }
        RequestKind::Cancel(_) => {
            events.send("cancelled").unwrap();
            Vec::new()
        }
        RequestKind::Close(_) => Vec::new(),
    })
    .await;
    let table = TestTable::plain().await;
    let (_node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        // The deadline must not end the Take.
        timeout: 20 * PATIENCE,
        ..config(&[("t", &table)])
    })
    .await;
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
