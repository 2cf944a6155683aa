//! A node that stops ends the streams of its clients once it has answered what it has received, and look-ups go on with
//! the node that takes its place.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use client::query::{
    Append, GetRequest, Lookup, LookupOpen, QueryClient, RowFormat, append_columns, presence_of,
};
use futures::channel::mpsc;
use futures::{StreamExt, TryStreamExt, stream};
use lake::Metric;
use query_node::{QueryConfig, QueryNode};
use wire::Reason;

use crate::keys::with_metrics;
use crate::lookups::{of_rows, text_keys};
use crate::node::{config, ids, serve_with};
use crate::operate::{metric, while_soon_over};
use crate::overload::{PATIENCE, Withheld};
use crate::table::{TestTable, is_live, key, lake, live};

const UNDER_WAY: &str = "bireme_query_requests_under_way";

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_once_what_the_node_has_received_is_answered() {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let config = with_metrics(config(&[("t", &table)]));
    let (node, client) = serve_with(QueryConfig { timeout: 10 * PATIENCE, ..config }).await;
    let client = client.with_timeout(10 * PATIENCE);
    let columns = vec!["id".to_owned()];
    let open = LookupOpen { table: "t".into(), columns: columns.clone(), ..Default::default() };
    let idle = opened(&client, open.clone()).await;
    let by_key = opened(&client, open).await;
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
        while_soon_over(async || idle.end().is_none()).await;
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

/// All streams break, with batches under way.
#[tokio::test(flavor = "multi_thread")]
async fn look_ups_of_many_keys_go_on_after_their_node_has_restarted() {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let config = QueryConfig { timeout: 10 * PATIENCE, ..with_metrics(config(&[("t", &table)])) };
    let (node, client) = serve_with(config.clone()).await;
    let config = QueryConfig { listen: node.local_addr(), ..config };
    let open =
        LookupOpen { table: "t".into(), columns: vec!["id".to_owned()], ..Default::default() };
    let lookup = opened(&client, open.clone()).await;
    let only_presence = LookupOpen { only_presence: true, columns: Vec::new(), ..open };
    let presence = opened(&client, only_presence).await;
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..200).map(key)));
    let input = RecordBatch::try_from_iter([("k", Arc::clone(&keys))]).unwrap();
    let append = Append { lookup, on: "k".into(), counts: Arc::default() };

    let withheld = Withheld::of(&table);
    let joined = append_columns(stream::iter([Ok(input)]), Arc::from([append]));
    let restarted = async {
        while_soon_over(async || metric(&node, UNDER_WAY).await < 1.0).await;
        node.shutdown(Duration::ZERO).await.unwrap();
        drop(withheld);
        QueryNode::start(config.clone(), lake()).await.unwrap()
    };
    let (joined, node) = tokio::join!(joined.try_collect::<Vec<_>>(), restarted);
    let joined = joined.unwrap();
    let found = joined.iter().flat_map(|rows| rows["id"].as_primitive::<Int64Type>().iter());
    assert!(found.eq((0..200).map(|id| is_live(id).then_some(id))));
    while_soon_over(async || presence.end().is_none()).await;
    let absent = presence_of(&presence, &keys).await.unwrap().not_found;
    assert!(absent.into_iter().eq((0..200_u32).filter(|at| !is_live(i64::from(*at)))));

    // More batches than are looked up at the same time begin while the node is away.
    node.shutdown(Duration::ZERO).await.unwrap();
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..70_000).map(key)));
    let restarted = async { QueryNode::start(config.clone(), lake()).await.unwrap() };
    let (presence, _node) = tokio::join!(presence_of(&presence, &keys), restarted);
    assert_eq!(presence.unwrap().not_found.len(), 70_000 - live().count());
}

async fn opened(client: &QueryClient, open: LookupOpen) -> Lookup {
    client.lookups().await.unwrap().open(open).await.unwrap()
}
