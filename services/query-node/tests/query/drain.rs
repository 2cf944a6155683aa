//! A node that stops ends the streams of its clients once it has answered what it has received.

use client::query::{GetRequest, LookupOpen, RowFormat};
use futures::StreamExt;
use futures::channel::mpsc;
use lake::Metric;
use query_node::QueryConfig;
use wire::Reason;

use crate::keys::with_metrics;
use crate::lookups::{of_rows, text_keys};
use crate::node::{config, ids, serve_with};
use crate::operate::{metric, while_soon_over};
use crate::overload::{PATIENCE, Withheld};
use crate::table::{TestTable, key};

const UNDER_WAY: &str = "bireme_query_requests_under_way";

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_once_what_the_node_has_received_is_answered() {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let config = with_metrics(config(&[("t", &table)]));
    let (node, client) = serve_with(QueryConfig { timeout: 10 * PATIENCE, ..config }).await;
    let client = client.with_timeout(10 * PATIENCE);
    let columns = vec!["id".into()];
    let open = LookupOpen { table: "t".into(), columns: columns.clone(), ..Default::default() };
    let idle = client.lookups().await.unwrap().open(open.clone()).await.unwrap();
    let by_key = client.lookups().await.unwrap().open(open).await.unwrap();
    let (send, requests) = mpsc::unbounded();
    let mut gotten = client.get_stream(requests, RowFormat::Arrow).await.unwrap();

    let withheld = Withheld::of(&table);
    let looked_up = tokio::spawn({
        let by_key = by_key.clone();
        async move { by_key.get(text_keys(&[key(1)])).await }
    });
    let get = GetRequest { table: "t".into(), keys: vec![key(2)], columns, ..Default::default() };
    send.unbounded_send(get).unwrap();
    while_soon_over(async || metric(&node, UNDER_WAY).await < 2.0).await;
    let answered = async {
        // No request delays the end of a stream that has none.
        while_soon_over(async || !idle.has_ended()).await;
        drop(withheld);
        assert_eq!(ids(&of_rows(looked_up.await.unwrap().unwrap().rows)), [1]);
        let first = gotten.next().await.unwrap().unwrap();
        assert_eq!(ids(&of_rows(Some(first.rows))), [2]);
    };
    let stops = node.shutdown(10 * PATIENCE);
    let both = tokio::time::timeout(PATIENCE, async { tokio::join!(stops, answered) });
    both.await.expect("no stream delays the node's end").0.unwrap();

    // The clients do not take the end of a stream for the end of their requests.
    let fault = gotten.next().await.unwrap().unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
    assert!(gotten.next().await.is_none());
    let fault = by_key.get(text_keys(&[key(1)])).await.unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
}
