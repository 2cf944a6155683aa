//! Tests connections over real sockets: how they are accepted, bounded and ended.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::{Audit, HandshakeAudit};
use certificates::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use traffic::TrafficMemory;

use super::*;
use crate::tls::{ClientCertificates, ClientTls, ClientTlsConfig, ServerTls, ServerTlsConfig};

/// The time after which a test fails. Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A node of one core that serves only health checks.
pub struct Node {
    pub address: SocketAddr,
    pub slots: Arc<ConnectionSlots>,
    memory: Arc<TrafficMemory>,
    acceptor: Option<Acceptor>,
    stop: Option<oneshot::Sender<()>>,
    core: tokio::task::JoinHandle<()>,
}

impl Node {
    pub fn start(caps: Caps, lifetimes: Lifetimes, tls: Option<Arc<ServerTls>>) -> Self {
        Self::start_audited(caps, lifetimes, tls, None)
    }

    /// Starts a node whose refused handshakes are written into a log.
    fn start_audited(
        caps: Caps,
        lifetimes: Lifetimes,
        tls: Option<Arc<ServerTls>>,
        audit: Option<HandshakeAudit>,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (dealt, mut taken) = mpsc::unbounded_channel::<Accepted>();
        let (served, connections) = mpsc::unbounded_channel();
        let slots = ConnectionSlots::new(caps, 1);
        let options = AcceptOptions { tls, audit, slots: Arc::clone(&slots), lifetimes };
        let give = move |_, accepted| drop(dealt.send(accepted));
        let acceptor = accept(listener, options, give).unwrap();
        let memory = TrafficMemory::new(32 << 20);
        let options = ServeOptions {
            memory: Arc::clone(&memory),
            rules: Arc::new(CallRule::for_path),
            plain: None,
            frame_bytes: None,
            streams_max: 4096,
            give_back: None,
            keep_alive: None,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let core = tokio::spawn(async move {
            let (_reporter, health) = tonic_health::server::health_reporter();
            let adopt = async move {
                while let Some(accepted) = taken.recv().await {
                    served
                        .send(accepted.adopt().unwrap())
                        .unwrap_or_else(|_| panic!("the core is gone"));
                }
                std::future::pending::<()>().await;
            };
            let stopping = async move { drop(stopped.await) };
            tokio::select! {
                () = serve(connections, Routes::new(health), options, stopping) => {}
                () = adopt => {}
            }
        });
        let (acceptor, stop) = (Some(acceptor), Some(stop));
        Self { address, slots, memory, acceptor, stop, core }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap()
    }

    async fn channel(&self) -> Channel {
        self.endpoint().connect().await.unwrap()
    }

    /// Connects a client that sends its preface and settings, and nothing more.
    async fn idle(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        stream.write_all(&hello).await.unwrap();
        stream
    }

    /// Stops the node and waits until all connections have ended.
    pub async fn stop(mut self) {
        drop(self.acceptor.take());
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, &mut self.core).await.unwrap().unwrap();
        assert_eq!((self.slots.counts().open, self.memory.used()), (0, 0), "nothing is held");
    }
}

pub fn caps(total: usize, per_peer: usize, waiting: usize) -> Caps {
    Caps { total, per_peer, waiting }
}

async fn check(channel: Channel) -> Result<(), tonic::Status> {
    let request = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel).check(request).await.map(drop)
}

pub async fn until(mut is_so: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns whether the other side closes the connection.
pub async fn is_closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> bool {
    let mut bytes = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_block_others_and_are_closed() {
    let lifetimes = Lifetimes { establish: Duration::from_secs(2), ..Default::default() };
    let node = Node::start(caps(8, 8, 4), lifetimes, None);
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(node.address).await.unwrap());
    }
    // A partial preface does not establish a connection.
    silent[39].write_all(b"PRI * HTTP").await.unwrap();
    let channel = node.channel().await;
    check(channel.clone()).await.unwrap();
    assert_eq!(node.memory.used() / connection_bytes(32 << 20), 1, "they take no memory");
    drop(channel);
    for stream in &mut silent {
        assert!(is_closed(stream).await);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connections_evict_idle_ones() {
    let node = Node::start(caps(8, 4, 64), Lifetimes::default(), None);
    let mut watching = HealthClient::new(node.channel().await);
    let request = HealthCheckRequest { service: String::new() };
    // A watch does not protect the connection from eviction.
    let watched = watching.watch(request).await.unwrap();
    let mut idle = Vec::new();
    for number in 0..20 {
        idle.push(node.idle().await);
        let evicted = move |node: &Node| node.slots.counts().evicted + 3 >= number;
        until(|| evicted(&node)).await;
    }
    check(node.channel().await).await.unwrap();
    let counts = node.slots.counts();
    assert!(counts.open <= 4 && counts.evicted >= 17 && counts.refused == 0, "{counts:?}");
    assert!(is_closed(&mut idle[0]).await);
    drop((watched, watching, idle));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_by_age_and_a_call_that_is_repeated_succeeds() {
    let age = Duration::from_millis(100);
    let lifetimes = Lifetimes { age, grace: Duration::from_secs(2), ..Default::default() };
    let node = Node::start(caps(8, 8, 8), lifetimes, None);
    let channel = node.channel().await;
    let began = tokio::time::Instant::now();
    let mut calls = 0;
    while began.elapsed() < age * 10 {
        // hyper's client fails a call that it has not sent yet when it receives a GOAWAY, or that is made just after
        // one. On a busy machine, the connection of a repeated call may be as old before the call is sent.
        let mut repeated = 0;
        while let Err(error) = check(channel.clone()).await {
            let text = error.to_string();
            let unsent = ["connection closed", "NO_ERROR", "connection was not ready"];
            assert!(unsent.iter().any(|it| text.contains(it)), "{text}");
            repeated += 1;
            assert!(repeated < 5, "call {calls}: {text}");
        }
        calls += 1;
    }
    assert!(node.slots.next_number() > 5, "several connections were made");
    // An idle connection is closed too.
    assert!(is_closed(&mut node.idle().await).await);
    drop(channel);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_http2_gets_settings_and_holds_nothing() {
    let node = Node::start(caps(8, 8, 8), Lifetimes::default(), None);
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.unwrap();
    // A frame of type 4 is HTTP/2's SETTINGS. It shows clients that the server speaks neither HTTP/1 nor TLS.
    assert_eq!(answer[3], 4);
    until(|| node.slots.counts().open == 0).await;
    node.stop().await;
}

/// Makes an authority and a certificate that expires after `lasts`. Returns both sides' settings.
fn certificates(folder: &Path, lasts: Duration) -> (ServerTlsConfig, ClientTlsConfig) {
    let authority = Authority::new(folder, "authority");
    let until = std::time::SystemTime::now() + lasts;
    let own = authority.issue_until(&["localhost", "spiffe://prod/ns/search"], until);
    let server = ServerTlsConfig {
        cert: own.cert.clone(),
        key: own.key.clone(),
        client_ca: Some(authority.ca.clone()),
        crl: None,
    };
    let client = ClientTlsConfig {
        ca: Some(authority.ca),
        cert: Some(own.cert),
        key: Some(own.key),
        server_name: Some("localhost".into()),
        crl: None,
    };
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_ends_its_connection_and_silent_clients_delay_no_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = certificates(folder.path(), Duration::from_secs(20));
    let (server, client) = (
        ServerTls::load(&server, ClientCertificates::Required).unwrap(),
        ClientTls::load(&client).unwrap(),
    );
    let lifetimes = Lifetimes { grace: Duration::ZERO, ..Default::default() };
    let node = Node::start(caps(8, 8, 16), lifetimes, Some(server));
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(node.address).await.unwrap());
    }
    let stream = TcpStream::connect(node.address).await.unwrap();
    let mut stream = client.connect(stream, "localhost").await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    until(|| node.slots.counts().open == 1).await;
    assert!(is_closed(&mut stream).await, "before it reaches its maximum age");
    until(|| node.slots.counts().open == 0).await;
    node.stop().await;
}

#[tokio::test]
async fn a_connection_has_the_names_and_the_address_of_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = certificates(folder.path(), Duration::from_secs(600));
    let client = ClientTls::load(&client).unwrap();
    let without = ServerTlsConfig { client_ca: None, ..server.clone() };
    let localhost = ["localhost", "spiffe://prod/ns/search"].as_slice();
    for (tls, names) in [(Some(server), localhost), (Some(without), &[]), (None, &[])] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_tls, slots) = (tls.is_some(), ConnectionSlots::new(caps(8, 8, 8), 1));
        let tls = tls.map(|tls| ServerTls::load(&tls, ClientCertificates::Required).unwrap());
        let options = AcceptOptions { tls, audit: None, slots, lifetimes: Lifetimes::default() };
        let (dealt, mut taken) = mpsc::unbounded_channel::<Accepted>();
        let _acceptor = accept(listener, options, move |_, it| drop(dealt.send(it))).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let ours = stream.local_addr().unwrap();
        let mut stream: Box<dyn Carrier> = match is_tls {
            true => Box::new(client.connect(stream, "localhost").await.unwrap()),
            false => Box::new(stream),
        };
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        let accepted = taken.recv().await.unwrap();
        let peer = accepted.connection.peer();
        assert_eq!(peer.address, Some(ours));
        assert_eq!(peer.names, names);
    }
}

/// Opens a stream to `path`, sends no message, and waits for the answer. Returns the status in the answer's headers.
async fn silent_stream(mut channel: Channel, path: &'static str) -> Option<tonic::Status> {
    use tonic::codegen::Service;
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<tonic::codegen::Bytes>, tonic::Status>,
    >());
    let mut request = http::Request::new(tonic::body::Body::new(body));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static(path);
    let grpc = http::HeaderValue::from_static("application/grpc");
    request.headers_mut().insert("content-type", grpc);
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.ok()?;
    let answer = channel.call(request).await.ok()?;
    tonic::Status::from_header_map(answer.headers())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_send_nothing_do_not_block_others() {
    let node = Node::start(caps(8, 8, 4), Lifetimes::default(), None);
    // This connection was there before the flood. It has few streams, and keeps them.
    let before = node.channel().await;
    let kept = tokio::spawn(silent_stream(before.clone(), "/grpc.health.v1.Health/Check"));
    let flooding = node.channel().await;
    let flood: Vec<_> = (0..2000)
        .map(|_| tokio::spawn(silent_stream(flooding.clone(), "/grpc.health.v1.Health/Check")))
        .collect();
    until(|| node.memory.used() > (16 << 20) - REQUEST_BYTES).await;
    for _ in 0..20 {
        check(node.channel().await).await.unwrap();
        check(before.clone()).await.unwrap();
    }
    until(|| flood.iter().filter(|it| it.is_finished()).count() >= 900).await;
    assert!(!kept.is_finished());
    let (mut ended, mut statuses) = (0, Vec::new());
    for stream in flood {
        if stream.is_finished() {
            ended += 1;
            statuses.extend(stream.await.unwrap());
        } else {
            stream.abort();
        }
    }
    let is_overloaded = |it: &tonic::Status| it.code() == tonic::Code::ResourceExhausted;
    assert!(ended >= 900 && statuses.iter().all(is_overloaded), "{statuses:?}");
    assert!(!statuses.is_empty());
    kept.abort();
    drop((before, flooding, kept));
    // The tasks of streams end after their connection.
    until(|| node.memory.used() == 0).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watches_of_a_connection_are_bounded() {
    let node = Node::start(caps(8, 8, 4), Lifetimes::default(), None);
    let mut client = HealthClient::new(node.channel().await);
    let mut watched = Vec::new();
    for _ in 0..WATCHES_MAX {
        let request = HealthCheckRequest { service: String::new() };
        watched.push(client.watch(request).await.unwrap());
    }
    let request = HealthCheckRequest { service: String::new() };
    let refused = client.watch(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    check(node.channel().await).await.unwrap();
    drop((client, watched));
    until(|| node.memory.used() == 0).await;
    node.stop().await;
}

/// Returns how many lines the log at `path` has for handshakes with each address.
fn refused_by_address(path: &Path) -> HashMap<SocketAddr, usize> {
    let mut count = HashMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        assert!(line.contains("\"event\":\"handshake\",\"verdict\":\"denied\""), "{line}");
        let (_, rest) = line.split_once("\"peer\":\"").unwrap();
        let (peer, _) = rest.split_once('"').unwrap();
        *count.entry(peer.parse().unwrap()).or_default() += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refused_handshake_has_a_line_and_a_flood_of_them_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (server, ours) = certificates(folder.path(), Duration::from_secs(600));
    let nobody = ClientTlsConfig { cert: None, key: None, ..ours.clone() };
    let [ours, nobody] = [ours, nobody].map(|it| ClientTls::load(&it).unwrap());
    let server = ServerTls::load(&server, ClientCertificates::Required).unwrap();
    let path = folder.path().join("audit");
    let audit = Audit::open(&path).unwrap();
    let log = Some(HandshakeAudit::new(&audit, "n"));
    let node = Node::start_audited(caps(8, 8, 16), Lifetimes::default(), Some(server), log);
    let mut refused = Vec::new();
    let mut good = Vec::new();
    for round in 0..60 {
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        refused.push(stream.local_addr().unwrap());
        match round % 3 {
            // With TLS 1.3, a client without a certificate learns that it is refused only when it reads.
            0 => {
                if let Ok(mut stream) = nobody.connect(stream, "localhost").await {
                    assert!(is_closed(&mut stream).await);
                }
            }
            1 => {
                stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
                assert!(is_closed(&mut stream).await);
            }
            // Silent connections are closed when too many of them wait.
            _ => {
                for _ in 0..16 {
                    let silent = TcpStream::connect(node.address).await.unwrap();
                    refused.push(silent.local_addr().unwrap());
                    good.push(silent);
                }
                assert!(is_closed(&mut stream).await);
            }
        }
        if round % 20 == 0 {
            let stream = TcpStream::connect(node.address).await.unwrap();
            let mut stream = ours.connect(stream, "localhost").await.unwrap();
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        }
    }
    drop(good);
    until(|| {
        audit.flush(PATIENCE);
        refused_by_address(&path).len() == refused.len()
    })
    .await;
    let counted = refused_by_address(&path);
    assert!(refused.iter().all(|peer| counted.get(peer) == Some(&1)), "{counted:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    for reason in ["peer sent no certificates", "another connection needed its place"] {
        assert!(text.contains(reason), "{text}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_wait_for_a_log_without_room_and_are_bounded_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (server, ours) = certificates(folder.path(), Duration::from_secs(600));
    let ours = ClientTls::load(&ours).unwrap();
    let server = ServerTls::load(&server, ClientCertificates::Required).unwrap();
    let path = folder.path().join("audit");
    let audit = Audit::open_with(&path, 1).unwrap();
    let lifetimes = Lifetimes { establish: PATIENCE, ..Lifetimes::default() };
    let log = Some(HandshakeAudit::new(&audit, "n"));
    let node = Node::start_audited(caps(8, 8, 16), lifetimes, Some(server), log);
    // Take the only place, as if the file could not be written.
    let place = audit.reserve().await.unwrap();
    let mut flood = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        flood.push(stream);
    }
    for stream in &mut flood[..184] {
        // Connections beyond the number that may wait were closed before a handshake began.
        let _ = is_closed(stream).await;
    }
    assert_eq!(node.memory.used(), 0, "the flood takes no memory of the core");
    audit.flush(PATIENCE);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "", "no handshake began");
    drop(place);
    let stream = TcpStream::connect(node.address).await.unwrap();
    let mut stream = ours.connect(stream, "localhost").await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    until(|| node.slots.counts().open == 1).await;
    drop(stream);
    let waited: Vec<_> = flood[184..].iter().map(|it| it.local_addr().unwrap()).collect();
    until(|| {
        audit.flush(PATIENCE);
        let counted = refused_by_address(&path);
        waited[1..].iter().all(|peer| counted.get(peer) == Some(&1))
    })
    .await;
    node.stop().await;
}
