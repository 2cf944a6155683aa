//! Attacks with messages that do not end, answers that nobody reads, and deadlines.

use std::time::{Duration, Instant};

use bytes::Bytes;
use client::query::QueryClient;
use tonic::body::Body;
use tonic::transport::Endpoint;
use wire::query::lookup_batch::Keys;
use wire::query::{
    GetRequest, LookupBatch, LookupOpen, LookupRequest, OnMissing, Strings, TakeRequest,
};

use super::calls::{Unfinished, Whole, call, connect, framed, of_query, runtime, search};
use super::cluster::{Cluster, Node, PATIENCE};
use super::connections::{QUERY_MEMORY_MIB, assert_soon_answered, metric, settings};
use super::report::held;

/// The maximum resident memory of the I/O node, in MiB.
const IO_MEMORY_MIB: u64 = 768;

/// Sends unfinished messages of `bytes` on `count` streams of `calls`, ten per connection.
async fn send_unfinished(
    node: &Node,
    calls: &[&'static str],
    (count, bytes): (usize, usize),
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut sending = Vec::new();
    for at in 0..count.div_ceil(10) {
        let channel = connect(node).await;
        for stream in 0..10 {
            let (channel, path) = (channel.clone(), calls[(at + stream) % calls.len()]);
            let body = Body::new(Unfinished::new(bytes as u32 + 1, bytes));
            sending.push(tokio::spawn(async move {
                let _refused = call(channel, path, body, None).await;
            }));
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    sending
}

#[test]
fn unfinished_messages_are_held_within_the_memory_for_them() {
    let cluster = Cluster::start(&settings());
    let runtime = runtime();
    let attacks = [
        (&cluster.query, QUERY_MEMORY_MIB, ["Take", "GetStream", "Search", "Status"].map(of_query)),
        (
            &cluster.io,
            IO_MEMORY_MIB,
            [
                "/bireme.fetch.v1.FetchService/Fetch",
                "/bireme.fetch.v1.FetchService/Warm",
                "/grpc.health.v1.Health/Check",
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            ],
        ),
    ];
    let mut seen = Vec::new();
    for (node, memory_mib, calls) in attacks {
        let before = node.resident_mib();
        let sending = runtime.block_on(send_unfinished(node, &calls, (400, 7 << 20)));
        let grown = node.peak_mib().saturating_sub(before);
        assert!(node.peak_mib() <= memory_mib, "{} MiB of {memory_mib}", node.peak_mib());
        seen.push(grown);
        // Stalled messages are dropped to make room for others.
        node.assert_answers_probes();
        assert_soon_answered(&cluster);
        sending.iter().for_each(|it| it.abort());
    }
    cluster.assert_healthy();
    let seen = format!("{} MiB more at a query node, {} at an I/O node", seen[0], seen[1]);
    held(12, "2.8 GB of unfinished messages on 400 streams", &seen);
}

#[test]
fn slow_readers_hold_no_more_than_the_memory_for_them() {
    let cluster = Cluster::start(&settings());
    let runtime = runtime();
    let before = cluster.query.resident_mib();
    let readers = runtime.block_on(async {
        let mut readers = Vec::new();
        for _ in 0..40 {
            let channel = connect(&cluster.query).await;
            let calls = (0..10).map(|_| {
                let body = Body::new(Whole(Some(search(1000))));
                call(channel.clone(), of_query("Search"), body, None)
            });
            // Answers are kept and never read.
            readers.extend(futures::future::join_all(calls).await);
        }
        readers
    });
    let grown = cluster.query.peak_mib().saturating_sub(before);
    let peak = cluster.query.peak_mib();
    assert!(peak <= QUERY_MEMORY_MIB, "{peak} MiB");
    cluster.query.assert_answers_probes();
    assert_soon_answered(&cluster);
    let answered = readers.iter().filter(|it| it.is_ok()).count();
    drop(readers);
    cluster.assert_healthy();
    let seen = format!("{grown} MiB more; {answered} of 400 answered");
    held(12, "400 searches whose answers nobody reads", &seen);
}

/// The key whose rows the attack below asks for and does not read.
const KEY: &str = "n02503517";

/// The number of keys of a large request: as many as fit into one frame of HTTP/2.
const LARGE_KEYS: usize = 1400;

/// Returns a Get for the vector of [`KEY`], `count` times.
fn vectors(count: usize) -> GetRequest {
    GetRequest {
        table: "words".into(),
        keys: vec![KEY.into(); count],
        columns: vec!["vector".into()],
        ..Default::default()
    }
}

/// Returns a request of a Lookup that opens a projection and asks for many vectors.
fn vectors_looked_up() -> LookupRequest {
    let columns = vec!["vector".into()];
    let open = LookupOpen { handle: 1, table: "words".into(), columns, ..Default::default() };
    let data = KEY.repeat(LARGE_KEYS).into();
    let keys = Strings { data, lengths: vec![KEY.len() as u32; LARGE_KEYS] };
    let batch = LookupBatch { id: 1, handle: 1, keys: Some(Keys::Strings(keys)) };
    LookupRequest { open: vec![open], batches: vec![batch], ..Default::default() }
}

/// Returns a Take of many vectors whose first piece has no row.
fn vectors_after_missing_rows() -> TakeRequest {
    let missing = u64::from(u32::MAX) << 32;
    TakeRequest {
        table: "words".into(),
        row_addrs: std::iter::repeat_n(missing, 6000).chain(0..6000).collect(),
        columns: vec!["vector".into()],
        on_missing: OnMissing::Skip.into(),
        ..Default::default()
    }
}

/// Calls `path` on `count` streams of each of 8 connections, whose streams have a window of `window` bytes for answers.
/// Returns the answers, of which nothing is read, and the most memory that the query node used for callers after the
/// calls of a connection.
async fn call_unread(
    node: &Node,
    path: &'static str,
    body: &Bytes,
    window: u32,
    count: usize,
) -> (Vec<Result<http::Response<Body>, String>>, u64) {
    let (mut answers, mut peak) = (Vec::new(), 0);
    for _ in 0..8 {
        let endpoint = Endpoint::from_shared(node.endpoint.clone()).unwrap();
        let channel = endpoint.initial_stream_window_size(window).connect().await.unwrap();
        // One after the other, so that the connection's window does not divide their frames.
        for _ in 0..count {
            let body = Body::new(Whole(Some(body.clone())));
            answers.push(call(channel.clone(), path, body, None).await);
        }
        // Later calls may make the node end this connection, which gives its memory back.
        peak = peak.max(metric(node, "bireme_query_traffic_memory_usage_bytes"));
    }
    (answers, peak)
}

/// Waits until callers have used two fifths of the query node's memory for them, and the use no longer changes. The
/// node has two cores, and one grant may take seven eighths of a core's memory, so one full core is enough. Callers
/// have used `peak` before.
fn wait_until_filled(node: &Node, mut peak: u64) {
    let limit = metric(node, "bireme_query_traffic_memory_limit_bytes");
    let until = Instant::now() + PATIENCE;
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let used = metric(node, "bireme_query_traffic_memory_usage_bytes");
        peak = peak.max(used);
        if used == before && peak >= limit / 5 * 2 {
            return;
        }
        assert!(Instant::now() < until, "at most {peak} of {limit}");
        before = used;
    }
}

/// Asserts that callers on new connections are soon answered, though their rows need memory that the attack has taken.
async fn assert_large_gets_are_soon_answered(node: &Node) {
    let endpoint = node.endpoint.parse().unwrap();
    // A new connection goes to the core that serves the fewest, so these reach both cores.
    let mut clients = Vec::new();
    for _ in 0..4 {
        let client = QueryClient::connect(&endpoint).await.unwrap().with_timeout(PATIENCE);
        let until = Instant::now() + PATIENCE;
        while let Err(fault) = client.get(vectors(6000)).await {
            assert!(Instant::now() < until, "{fault}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        clients.push(client);
    }
}

#[test]
fn answers_behind_a_small_frame_that_nobody_reads_keep_no_memory() {
    let cluster = Cluster::start(&settings());
    let runtime = runtime();
    // A Get without keys has a small answer.
    let gets = framed(&[vectors(0), vectors(LARGE_KEYS)]);
    assert!(gets.len() < 16 << 10, "the Gets must arrive together");
    let attacks = [
        ("GetStream", gets, 0, 16),
        // After the welcome, the schema has no room.
        ("Lookup", framed(&[vectors_looked_up()]), 1, 16),
        ("Take", framed(&[vectors_after_missing_rows()]), 0, 4),
    ];
    for (name, body, window, count) in attacks {
        let attack = call_unread(&cluster.query, of_query(name), &body, window, count);
        let (answers, peak) = runtime.block_on(attack);
        wait_until_filled(&cluster.query, peak);
        runtime.block_on(assert_large_gets_are_soon_answered(&cluster.query));
        drop(answers);
    }
    let peak = cluster.query.peak_mib();
    assert!(peak <= QUERY_MEMORY_MIB, "{peak} MiB");
    cluster.assert_healthy();
    held(12, "large answers behind a small frame that nobody reads", "others are answered");
}

#[test]
fn deadlines_of_centuries_are_answered_like_others() {
    let cluster = Cluster::start(&settings());
    runtime().block_on(async {
        for timeout in ["99999999H", "99999999M", "99999999S", "999999999H", "x", "-1S"] {
            let channel = connect(&cluster.query).await;
            let body = Body::new(Whole(Some(search(3))));
            let answer = call(channel, of_query("Search"), body, Some(timeout)).await;
            assert!(answer.is_ok(), "{timeout}: {answer:?}");
        }
    });
    cluster.assert_healthy();
    held(14, "grpc-timeout: 99999999H", "answered; no deadline is later than 5 minutes");
}
