//! Tests the fetch client over real TCP with a small I/O node, which records what it receives. The value of each row is
//! its address. The rows of fragment 9 are missing.

mod node;

use std::time::Duration;

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use client::fetch::{
    FetchClient, FetchOptions, Instant, Metric, OPENING, Outcome, Predicate, Projection, Rerank,
    TableVersion, UNANSWERED,
};
use node::{Node, Settings};
use wire::fetch::PredicateStep;
use wire::{Fault, Reason};

fn addrs(offsets: std::ops::Range<u32>) -> Vec<RowAddr> {
    offsets.map(|offset| RowAddr::new(0, offset)).collect()
}

fn values(rows: &RecordBatch) -> Vec<u64> {
    rows.column(0).as_primitive::<UInt64Type>().values().to_vec()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

async fn client(node: &Node, streams: usize) -> (FetchClient, Projection) {
    let options = FetchOptions {
        streams,
        connect_timeout: Duration::from_secs(10),
        backoff_max: Duration::from_millis(100),
        ..Default::default()
    };
    let client = FetchClient::new(node.endpoint().parse().unwrap(), options).unwrap();
    let projection = client.open(version_of("t"), &["x".into()], soon()).await.unwrap();
    (client, projection)
}

async fn fetch(
    client: &FetchClient,
    projection: &Projection,
    offsets: std::ops::Range<u32>,
) -> Result<Vec<u64>, Fault> {
    let reply = client.fetch(projection, addrs(offsets), None, soon()).await?;
    reply.into_rows().map(|rows| values(&rows))
}

/// Waits until `what` returns true. The node runs on a thread of its own, so effects on it take time.
async fn until(what: impl Fn() -> bool) {
    let deadline = soon();
    while !what() {
        assert!(Instant::now() < deadline, "it did not come about");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn version_of(uri: &str) -> TableVersion<'_> {
    TableVersion { uri, branch: "", version: 1, identity: "" }
}

#[tokio::test]
async fn a_large_fetch_is_split_and_joined_and_missing_rows_keep_their_place() {
    let node = Node::start(Settings { batch_rows_max: 4, ..Default::default() });
    let (client, projection) = client(&node, 2).await;
    let mut wanted = addrs(0..10);
    wanted[1] = RowAddr::new(9, 0);
    wanted[7] = RowAddr::new(9, 1);
    let reply = client.fetch(&projection, wanted, None, soon()).await.unwrap();
    assert_eq!(reply.missing, [1, 7]);
    assert_eq!(values(&reply.into_rows().unwrap()), [0, 2, 3, 4, 5, 6, 8, 9]);
    assert_eq!(node.seen().batch_rows, [3, 3, 4].into_iter().collect());
}

#[tokio::test]
async fn neighbours_of_all_parts_are_merged() {
    let node = Node::start(Settings { batch_rows_max: 4, ..Default::default() });
    let (client, projection) = client(&node, 2).await;
    let rerank = Rerank::new(&[6.0], Metric::L2, 3);
    let reply = client.fetch(&projection, addrs(0..10), Some(rerank), soon()).await.unwrap();
    let near = [(6, 0.0), (5, 1.0), (7, 1.0)].map(|(at, d)| (RowAddr::new(0, at), d));
    assert_eq!(reply.outcome, Outcome::Neighbors(near.to_vec()));
}

#[tokio::test]
async fn a_node_that_does_not_know_predicates_answers_with_the_rows() {
    let node = Node::start(Settings { batch_rows_max: 4, ..Default::default() });
    let (client, projection) = client(&node, 1).await;
    let predicate = Predicate { steps: vec![PredicateStep::default()] };
    let reply = client.check(&projection, &addrs(0..6), &predicate, soon()).await.unwrap();
    assert_eq!(values(&reply.into_rows().unwrap()), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn credit_is_never_exceeded_and_always_comes_back() {
    let node = Node::start(Settings { credit_rows: 20, batch_rows_max: 8, ..Default::default() });
    let (client, projection) = client(&node, 1).await;
    let fetches = (0..100u32).map(|i| fetch(&client, &projection, i..i + 1 + i % 8));
    let all = futures::future::join_all(fetches).await;
    for (i, rows) in (0..100u64).zip(all) {
        assert_eq!(rows.unwrap(), (i..i + 1 + i % 8).collect::<Vec<_>>());
    }
    let most = node.seen().outstanding_rows_max;
    assert!((9..=20).contains(&most), "{most} rows were outstanding");
    assert_eq!(client.counters().outstanding_rows, 0);
}

#[tokio::test]
async fn what_waits_at_the_same_moment_leaves_in_one_message() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 1).await;
    let fetches = (0..16u32).map(|i| fetch(&client, &projection, i..i + 2));
    futures::future::try_join_all(fetches).await.unwrap();
    assert_eq!(node.seen().batches_of_messages, [16]);
    let counters = client.counters();
    assert_eq!((counters.messages, counters.batches), (1, 16));
}

#[tokio::test]
async fn a_batch_waits_for_those_of_other_tasks_only_while_the_node_has_some_to_answer() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 1).await;
    // The second fetch begins after all tasks that are ready have run.
    let fetch_two = async || {
        let second = async {
            tokio::task::yield_now().await;
            fetch(&client, &projection, 1..2).await
        };
        let fetched = tokio::join!(fetch(&client, &projection, 0..1), second);
        assert_eq!((fetched.0.unwrap(), fetched.1.unwrap()), (vec![0], vec![1]));
    };
    fetch_two().await;
    assert_eq!(node.seen().batches_of_messages, [1, 1]);
    node.hold(true);
    let messages =
        async |count: usize| until(|| node.seen().batches_of_messages.len() == count).await;
    let others = async {
        messages(3).await;
        let release = async {
            messages(4).await;
            node.hold(false);
        };
        tokio::join!(fetch_two(), release)
    };
    let (first, _) = tokio::join!(fetch(&client, &projection, 5..6), others);
    assert_eq!(first.unwrap(), [5]);
    assert_eq!(node.seen().batches_of_messages, [1, 1, 1, 2]);
}

#[tokio::test]
async fn a_dropped_fetch_is_cancelled_on_the_node() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 1).await;
    node.hold(true);
    let dropped =
        tokio::time::timeout(Duration::from_millis(50), fetch(&client, &projection, 0..5));
    assert!(dropped.await.is_err());
    until(|| node.seen().cancelled == 1).await;
    until(|| client.counters().outstanding_rows == 0).await;
    node.hold(false);
    assert_eq!(fetch(&client, &projection, 0..2).await.unwrap(), [0, 1]);
}

#[tokio::test]
async fn a_deadline_travels_and_is_kept() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 1).await;
    node.hold(true);
    let began = Instant::now();
    let deadline = began + Duration::from_secs(1);
    let fault = client.fetch(&projection, addrs(0..5), None, deadline).await.unwrap_err();
    assert_eq!(fault.reason, Reason::DeadlineExceeded);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    until(|| node.seen().cancelled == 1).await;
    let timeout_us = node.seen().timeout_us_max;
    assert!((1..=1_000_000).contains(&timeout_us), "{timeout_us}");
}

#[tokio::test]
async fn a_late_answer_to_an_open_differs_from_a_late_reply() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 1).await;
    node.hold(true);
    let open = client.open(version_of("hangs"), &["x".into()], Instant::now()).await;
    let fetched = client.fetch(&projection, addrs(0..5), None, Instant::now()).await;
    for (fault, is_opening) in [(open.unwrap_err(), true), (fetched.unwrap_err(), false)] {
        assert_eq!(fault.reason, Reason::DeadlineExceeded);
        let has = |key: &str| fault.metadata.contains_key(key);
        assert_eq!((has(UNANSWERED), has(OPENING)), (true, is_opening));
    }
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let node = Node::start(Settings { credit_rows: 8, batch_rows_max: 8, ..Default::default() });
    let options = FetchOptions { streams: 1, queue_batches_max: 2, ..Default::default() };
    let client = FetchClient::new(node.endpoint().parse().unwrap(), options).unwrap();
    let projection = client.open(version_of("t"), &["x".into()], soon()).await.unwrap();
    node.hold(true);
    let fetch = |deadline: Instant| client.fetch(&projection, addrs(0..8), None, deadline);
    let running = tokio::spawn({
        let (client, projection) = (client.clone(), projection.clone());
        async move { client.fetch(&projection, addrs(0..8), None, soon()).await }
    });
    until(|| client.counters().outstanding_rows == 8).await;
    let late = Instant::now() + Duration::from_secs(1);
    let (a, b, c) = tokio::join!(fetch(late), fetch(late), fetch(soon()));
    assert_eq!(a.unwrap_err().reason, Reason::DeadlineExceeded);
    assert_eq!(b.unwrap_err().reason, Reason::DeadlineExceeded);
    assert_eq!(c.unwrap_err().reason, Reason::Overloaded);
    node.hold(false);
    assert!(running.await.unwrap().is_ok());
    until(|| client.counters().waiting_batches == 0).await;
}

#[tokio::test]
async fn a_broken_stream_is_tried_once_more_and_comes_back() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 2).await;
    node.break_next(1);
    assert_eq!(fetch(&client, &projection, 0..3).await.unwrap(), [0, 1, 2]);
    assert_eq!(client.counters().retries, 1);
    until(|| client.counters().streams_up == 2).await;
    assert_eq!(client.counters().connections, 3);
    node.break_next(2);
    let fault = fetch(&client, &projection, 0..3).await.unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable);
}

#[tokio::test]
async fn an_open_whose_stream_breaks_is_sent_once_more() {
    let node = Node::start(Settings::default());
    let (client, _) = client(&node, 2).await;
    node.break_next(1);
    let fault = client.open(version_of("absent"), &["x".into()], soon()).await.unwrap_err();
    assert_eq!(fault.reason, Reason::TableNotFound, "{fault}");
    assert_eq!((node.seen().opens, client.counters().retries), (3, 1));
}

#[tokio::test]
async fn a_node_that_restarts_is_found_again_and_meanwhile_callers_fail_at_once() {
    // While the node is down, no other test takes its port of this address, and no connection to the port comes from
    // the port itself, as can happen on 127.0.0.1.
    let node = Node::start_at(([127, 0, 0, 2], 0).into(), Settings::default());
    let address = node.address();
    let (client, projection) = client(&node, 2).await;
    assert_eq!(fetch(&client, &projection, 0..1).await.unwrap(), [0]);
    drop(node);
    until(|| client.counters().streams_up == 0).await;
    let began = Instant::now();
    let fault = fetch(&client, &projection, 0..1).await.unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable);
    assert!(fault.message.contains(&address.to_string()), "{fault}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let fault = client.describe(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable);

    let node = Node::start_at(address, Settings::default());
    until(|| client.counters().streams_up == 2).await;
    assert_eq!(fetch(&client, &projection, 4..6).await.unwrap(), [4, 5]);
    assert_eq!(node.seen().opens, 1);
    let described = client.describe(Duration::from_secs(1)).await.unwrap();
    assert_eq!(described.node, "small");
}

#[tokio::test]
async fn a_batch_whose_answer_would_be_too_large_is_halved() {
    let node = Node::start(Settings { reply_rows_max: 3, ..Default::default() });
    let (client, projection) = client(&node, 1).await;
    assert_eq!(fetch(&client, &projection, 0..10).await.unwrap(), (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_the_node_says_of_a_table_reaches_the_caller() {
    let node = Node::start(Settings::default());
    let (client, projection) = client(&node, 1).await;
    let fault = client.open(version_of("absent"), &["x".into()], soon()).await.unwrap_err();
    assert_eq!(
        (fault.reason, fault.message.as_str()),
        (Reason::TableNotFound, "no table `absent`")
    );
    let fault = client.fetch(&projection, vec![], None, soon()).await.unwrap_err();
    assert_eq!(fault.reason, Reason::BadArgument);
    assert_eq!(fetch(&client, &projection, 0..1).await.unwrap(), [0]);
}
