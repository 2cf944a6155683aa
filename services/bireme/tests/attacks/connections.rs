//! Attacks with sockets, handshakes, messages, slow readers and headers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use client::query::QueryClient;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};
use wire::query::lookup_batch::Keys;
use wire::query::{
    GetRequest, LookupBatch, LookupOpen, LookupRequest, OnMissing, Strings, TakeRequest,
};

use super::cluster::{Cluster, Node, PATIENCE, Settings};
use super::good_caller::GoodCaller;
use super::report::held;

/// The first bytes of an HTTP/2 client: the preface and an empty SETTINGS frame.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The maximum resident memory of the query node, in MiB, which is also its setting `memory`. Callers may use 112 MiB
/// of it.
pub const QUERY_MEMORY_MIB: u64 = 640;

/// The maximum resident memory of the I/O node, in MiB.
const IO_MEMORY_MIB: u64 = 768;

/// Returns the default settings with [`QUERY_MEMORY_MIB`] as the query node's `memory`.
pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.query.push(("MEMORY", format!("{QUERY_MEMORY_MIB}MiB")));
    settings
}

/// Connects `count` times and sends `first` each time. Returns the connections that were accepted.
pub fn connections(to: SocketAddr, count: usize, first: &[u8]) -> Vec<TcpStream> {
    process::raise_descriptors();
    let connect = |_| {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
        stream.write_all(first).ok()?;
        Some(stream)
    };
    (0..count).filter_map(connect).collect()
}

/// Returns the value of a metric without labels.
fn metric(node: &Node, name: &str) -> u64 {
    let scraped = node.scrape();
    let line = scraped.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name} in {scraped}"));
    value.split(' ').next().unwrap().parse::<f64>().unwrap() as u64
}

/// Asserts that a new caller is answered.
pub fn assert_newcomer_is_answered(cluster: &Cluster) {
    let found = super::run(&["get", "words", "n02503517", "--endpoint", &cluster.query.endpoint]);
    assert!(found.contains("elephant"), "{found}");
}

#[test]
fn idle_connections_keep_no_newcomer_out() {
    let cluster = Cluster::start(&settings());
    let caller = GoodCaller::start(&cluster);
    let before = metric(&cluster.io, "bireme_io_traffic_memory_usage_bytes");
    let silent = connections(cluster.io.address(), 2043, b"");
    let after = metric(&cluster.io, "bireme_io_traffic_memory_usage_bytes");
    assert!(after < before + (4 << 20), "silent connections hold {} bytes", after - before);
    cluster.io.assert_answers_probes();
    let idle = connections(cluster.io.address(), 2043, HELLO);
    cluster.io.assert_answers_probes();
    let limit = metric(&cluster.io, "bireme_io_traffic_memory_limit_bytes");
    let used = metric(&cluster.io, "bireme_io_traffic_memory_usage_bytes");
    assert!(used < limit / 2, "{used} of {limit}");
    let of_query = connections(cluster.query.address(), 2043, HELLO);
    cluster.query.assert_answers_probes();
    assert_newcomer_is_answered(&cluster);
    let seen = caller.stop();
    assert!(seen.answered > 0, "{seen:?}");
    drop((silent, idle, of_query));
    cluster.assert_healthy();
    held(7, "2,043 silent and 2,043 idle connections", "newcomers and probes are answered");
}

#[test]
fn probes_are_answered_beside_keep_alive_clients_and_scrapers() {
    let cluster = Cluster::start(&settings());
    for node in [&cluster.io, &cluster.query] {
        let request = b"GET /live HTTP/1.1\r\nHost: node\r\n\r\n";
        let ports = [node.metrics, node.probes];
        let kept = ports.map(|port| connections(port, 200, request));
        let until = Instant::now() + Duration::from_secs(3);
        let metrics = node.metrics;
        let scrapers: Vec<_> = (0..64)
            .map(|_| {
                std::thread::spawn(move || {
                    while Instant::now() < until {
                        let Ok(mut stream) = TcpStream::connect_timeout(&metrics, PATIENCE) else {
                            continue;
                        };
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
                        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n");
                        let mut answer = [0; 4096];
                        while Instant::now() < until
                            && stream.read(&mut answer).is_ok_and(|it| it > 0)
                        {
                            let again = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n";
                            let _ = stream.write_all(again);
                        }
                    }
                })
            })
            .collect();
        let answers: Vec<_> =
            (0..5).flat_map(|_| ports.map(|port| (port, node.live(port)))).collect();
        let is_live = |it: &Option<String>| it.as_deref().is_some_and(|it| it.contains("200"));
        assert!(answers.iter().all(|(_, answer)| is_live(answer)), "{ports:?}: {answers:?}");
        scrapers.into_iter().for_each(|it| it.join().unwrap());
        for port in ports {
            let live = node.live(port);
            assert!(is_live(&live), "200 keep their connections to {port}: {live:?}");
        }
        drop(kept);
    }
    cluster.assert_healthy();
    held(8, "200 keep-alive clients and 64 scrapers", "/live is answered");
}

#[test]
fn idle_connections_leave_descriptors_for_others() {
    let cluster = Cluster::start(&Settings { descriptors: Some(1024), ..settings() });
    for node in [&cluster.io, &cluster.query] {
        let caller = GoodCaller::start(&cluster);
        let idle = connections(node.address(), 1100, HELLO);
        let open = node.descriptors();
        assert!(open < 1000, "{open} descriptors of 1024");
        node.assert_answers_probes();
        assert_newcomer_is_answered(&cluster);
        assert!(caller.stop().answered > 0);
        assert!(node.log().contains("few file descriptors"), "{}", node.log());
        drop(idle);
    }
    cluster.assert_healthy();
    held(14, "1,100 idle connections on 1,024 descriptors", "newcomers and probes are answered");
}

/// A message that announces `announced` bytes, of which only `sent` are sent.
struct Unfinished {
    prefix: Option<Bytes>,
    left: usize,
}

impl Unfinished {
    fn new(announced: u32, sent: usize) -> Self {
        let mut prefix = BytesMut::new();
        prefix.put_u8(0);
        prefix.put_u32(announced);
        Self { prefix: Some(prefix.freeze()), left: sent }
    }
}

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(prefix) = self.prefix.take() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        let chunk = self.left.min(64 << 10);
        if chunk == 0 {
            return Poll::Pending;
        }
        self.left -= chunk;
        // Bytes with the continuation bit set: a varint that never ends.
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0xff; chunk])))))
    }
}

async fn call(
    mut channel: Channel,
    path: &'static str,
    body: Body,
    timeout: Option<&'static str>,
) -> Result<http::Response<Body>, String> {
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.map_err(|error| error.to_string())?;
    let mut request = http::Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = http::Uri::from_static(path);
    let headers = request.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static("application/grpc"));
    headers.insert("te", http::HeaderValue::from_static("trailers"));
    if let Some(timeout) = timeout {
        headers.insert("grpc-timeout", http::HeaderValue::from_static(timeout));
    }
    channel.call(request).await.map_err(|error| format!("{error:?}"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn connect(node: &Node) -> Channel {
    let endpoint = Endpoint::from_shared(node.endpoint.clone()).unwrap();
    endpoint.initial_stream_window_size(64 << 10).connect().await.unwrap()
}

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

fn of_query(call: &str) -> &'static str {
    match call {
        "Take" => "/bireme.query.v1.QueryService/Take",
        "Get" => "/bireme.query.v1.QueryService/Get",
        "GetStream" => "/bireme.query.v1.QueryService/GetStream",
        "Lookup" => "/bireme.query.v1.QueryService/Lookup",
        "Search" => "/bireme.query.v1.QueryService/Search",
        _ => "/bireme.query.v1.QueryService/Status",
    }
}

/// Asserts that a caller that retries is answered.
pub fn assert_soon_answered(cluster: &Cluster) {
    let until = Instant::now() + PATIENCE;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        cluster.query.assert_alive();
        cluster.io.assert_alive();
        let probe = std::process::Command::new(super::binary())
            .args(["get", "words", "n02503517", "--endpoint", &cluster.query.endpoint])
            .output()
            .unwrap();
        if String::from_utf8_lossy(&probe.stdout).contains("elephant") {
            break;
        }
        assert!(Instant::now() < until, "{}", String::from_utf8_lossy(&probe.stderr));
    }
    let caller = GoodCaller::start(cluster);
    std::thread::sleep(Duration::from_secs(5));
    let seen = caller.stop();
    assert!(seen.answered > 0, "{seen:?}");
}

/// Returns a Search for `k` rows with three columns, encoded for the wire.
fn search(k: u32) -> Bytes {
    use wire::query::{SearchRequest, Text, search_request::By};
    let words = Text { words: "a of the or".into(), ..Text::default() };
    let request = SearchRequest {
        table: "words".into(),
        by: Some(By::Text(words)),
        columns: ["synset", "gloss", "vector"].map(str::to_owned).into(),
        k,
        ..Default::default()
    };
    framed(&[request])
}

/// Returns messages as the body of a request has them.
fn framed(messages: &[impl prost::Message]) -> Bytes {
    let mut framed = BytesMut::new();
    for message in messages {
        let message = message.encode_to_vec();
        framed.put_u8(0);
        framed.put_u32(message.len() as u32);
        framed.put_slice(&message);
    }
    framed.freeze()
}

/// A body of one chunk.
struct Whole(Option<Bytes>);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
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

#[test]
fn a_flood_of_streams_and_resets_leaves_others_answered() {
    let cluster = Cluster::start(&settings());
    let caller = GoodCaller::start(&cluster);
    runtime().block_on(async {
        for node in [&cluster.io, &cluster.query] {
            let channel = connect(node).await;
            for _ in 0..20 {
                let calls = (0..100).map(|_| {
                    let body = Body::new(Unfinished::new(8, 4));
                    let path = "/grpc.health.v1.Health/Check";
                    // A dropped call resets its stream.
                    tokio::time::timeout(
                        Duration::from_millis(1),
                        call(channel.clone(), path, body, None),
                    )
                });
                futures::future::join_all(calls).await;
            }
        }
    });
    let seen = caller.stop();
    assert!(seen.answered > 0, "{seen:?}");
    cluster.assert_healthy();
}

/// Makes `connections` connections and opens `count` streams on each. The streams send only their headers.
async fn open_silent(
    node: &Node,
    calls: &[&'static str],
    [connections, count]: [usize; 2],
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        let channel = connect(node).await;
        for stream in 0..count {
            let (channel, path) = (channel.clone(), calls[stream % calls.len()]);
            let body = Body::new(Unfinished { prefix: None, left: 0 });
            opened.push(tokio::spawn(async move {
                // Answers are kept until the test ends.
                let _answer = call(channel, path, body, None).await;
                std::future::pending::<()>().await;
            }));
        }
    }
    opened
}

#[test]
fn streams_that_send_nothing_close_no_core_to_others() {
    let cluster = Cluster::start(&settings());
    let runtime = runtime();
    let caller = GoodCaller::start(&cluster);
    let fetch = "/bireme.fetch.v1.FetchService/Fetch";
    let (warm, check) = ("/bireme.fetch.v1.FetchService/Warm", "/grpc.health.v1.Health/Check");
    // Enough streams to fill the part of the cores' memory that streams may take. Each core has 56 MiB for callers at
    // the query node, and 98 MiB at the I/O node.
    let attacks = [
        (
            &cluster.query,
            "query",
            [64, 128],
            ["Get", "GetStream", "Search", "Status"].map(of_query),
        ),
        (&cluster.io, "io", [8, 1024], [fetch, fetch, warm, check]),
    ];
    for (node, tier, counts, calls) in attacks {
        let opened = runtime.block_on(open_silent(node, &calls, counts));
        let name = |of: &str| format!("bireme_{tier}_traffic_memory_{of}_bytes");
        let limit = metric(node, &name("limit"));
        let until = Instant::now() + PATIENCE;
        while metric(node, &name("usage")) < limit / 5 * 2 {
            assert!(Instant::now() < until, "{} of {limit}", metric(node, &name("usage")));
            std::thread::sleep(Duration::from_millis(100));
        }
        // A new connection goes to the core that serves the fewest, so these probes reach both cores.
        for probe in 0..20 {
            let health = runtime.block_on(node.health());
            assert!(health.is_ok(), "probe {probe} of the {tier} node: {health:?}");
            assert_newcomer_is_answered(&cluster);
        }
        assert!(metric(node, &name("usage")) <= limit / 5 * 3);
        opened.iter().for_each(|it| it.abort());
    }
    let seen = caller.stop();
    assert!(seen.answered > 0 && seen.refused.is_empty(), "{seen:?}");
    cluster.assert_healthy();
    held(7, "8,192 streams that send nothing, on 64 or 8 connections", "all are answered");
}

/// Writes PEM files of a self-signed certificate for `localhost`. Returns the paths of the certificate and its key.
fn certificate(folder: &std::path::Path) -> [String; 2] {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    [("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem())].map(|(name, pem)| {
        let path = folder.join(name);
        std::fs::write(&path, pem).unwrap();
        super::text(&path).to_owned()
    })
}

#[test]
fn silent_tls_connections_keep_no_handshake_waiting() {
    let folder = super::folder();
    let [cert, key] = certificate(folder.path());
    let mut settings = settings();
    settings.io.extend([("TLS_CERT", cert.clone()), ("TLS_KEY", key)]);
    let name = ("IO_TLS_SERVER_NAME", "localhost".to_owned());
    settings.query.extend([("IO_TLS_CA", cert.clone()), name]);
    let cluster = Cluster::start(&settings);
    let caller = GoodCaller::start(&cluster);
    let port = cluster.io.endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    process::raise_descriptors();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let count = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&count);
    // Open up to 700 connections per second, and at most 20,000 in all, while the test makes handshakes.
    let silent = std::thread::spawn(move || {
        let mut all = std::collections::VecDeque::new();
        while !stopped.load(Ordering::Relaxed) && opened.load(Ordering::Relaxed) < 20_000 {
            all.extend((0..70).filter_map(|_| TcpStream::connect_timeout(&to, PATIENCE).ok()));
            opened.fetch_add(70, Ordering::Relaxed);
            // The node closes older connections, so this side need not keep more.
            all.drain(..all.len().saturating_sub(4000));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let config = connections::tls::ClientTlsConfig {
        ca: Some(cert.into()),
        server_name: Some("localhost".into()),
        ..Default::default()
    };
    let client = connections::tls::ClientTls::load(&config).unwrap();
    let until = Instant::now() + PATIENCE;
    while count.load(Ordering::Relaxed) < 2000 {
        assert!(Instant::now() < until, "too few connections: {count:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    runtime().block_on(async {
        for number in 0..20 {
            // On a busy machine, the node may close a connection before its handshake is done, because 1,024 newer
            // ones wait by then.
            for tries_left in (0..3).rev() {
                let shaken = async {
                    let stream = tokio::net::TcpStream::connect(to).await?;
                    client.connect(stream, "localhost").await
                };
                let shaken = tokio::time::timeout(PATIENCE, shaken).await;
                if matches!(shaken, Ok(Ok(_))) {
                    break;
                }
                assert!(tries_left > 0, "handshake {number}: {shaken:?}");
            }
        }
    });
    stop.store(true, Ordering::Relaxed);
    silent.join().unwrap();
    let seen = caller.stop();
    assert!(seen.answered > 0, "{seen:?}");
    assert_newcomer_is_answered(&cluster);
    held(9, "700 silent TLS connections a second", "20 of 20 handshakes succeed meanwhile");
}
