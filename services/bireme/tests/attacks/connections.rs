//! Attacks with sockets, handshakes and streams.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tonic::body::Body;

use super::calls::{Unfinished, call, connect, of_query, runtime};
use super::cluster::{Cluster, Node, PATIENCE, Settings};
use super::good_caller::GoodCaller;
use super::report::held;

/// The first bytes of an HTTP/2 client: the preface and an empty SETTINGS frame.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The maximum resident memory of the query node, in MiB, which is also its setting `memory`. Callers may use 112 MiB
/// of it.
pub const QUERY_MEMORY_MIB: u64 = 640;

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
pub fn metric(node: &Node, name: &str) -> u64 {
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
