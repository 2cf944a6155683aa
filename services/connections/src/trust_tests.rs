//! Tests that connections end when they are no longer trusted, with real certificates.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use certificates::{Authority, Pair};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::tests::{Node, caps, is_closed, until};
use crate::tls::{
    ClientCertificates, ClientTls, ClientTlsConfig, ServerTls, ServerTlsConfig, VerifiedStream,
};
use crate::{Connection, Lifetimes, Peer};

const DAY: Duration = Duration::from_secs(86_400);

fn server(authority: &Authority, pair: &Pair) -> ServerTlsConfig {
    let (cert, key) = (pair.cert.clone(), pair.key.clone());
    ServerTlsConfig { cert, key, client_ca: Some(authority.ca.clone()), crl: None }
}

fn client(authority: &Authority, pair: Option<&Pair>) -> ClientTlsConfig {
    ClientTlsConfig {
        ca: Some(authority.ca.clone()),
        cert: pair.map(|pair| pair.cert.clone()),
        key: pair.map(|pair| pair.key.clone()),
        server_name: Some("node".into()),
        crl: None,
    }
}

fn load(config: &ServerTlsConfig) -> Arc<ServerTls> {
    ServerTls::load(config, ClientCertificates::Required).unwrap()
}

type Stream = VerifiedStream<TcpStream>;

/// The type of HTTP/2's GOAWAY frame, which asks a client to reconnect.
const GO_AWAY: u8 = 7;

/// Connects to a node, and opens a stream that the node does not answer: only the headers of the request are sent.
async fn connect(node: &Node, client: &ClientTlsConfig) -> std::io::Result<Stream> {
    let open = node.slots.counts().open;
    let stream = TcpStream::connect(node.address).await?;
    let mut stream = ClientTls::load(client).unwrap().connect(stream, "node").await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await?;
    // The headers in HPACK: `:method: POST` and `:scheme: http` by their index, `:path` and `content-type` with their
    // values. The stream is not ended.
    let (path, grpc) = (b"/grpc.health.v1.Health/Check", b"application/grpc");
    let head =
        [&[0x83, 0x86, 0x04, path.len() as u8][..], path, &[0x0f, 0x10, grpc.len() as u8], grpc]
            .concat();
    stream.write_all(&[0, 0, head.len() as u8, 1, 4, 0, 0, 0, 1]).await?;
    stream.write_all(&head).await?;
    stream.flush().await?;
    frame(&mut stream).await?;
    until(|| node.slots.counts().open > open).await;
    Ok(stream)
}

/// Reads an HTTP/2 frame, and returns its type.
async fn frame(stream: &mut Stream) -> std::io::Result<u8> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let [a, b, c, kind, ..] = head;
    let mut rest = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut rest).await?;
    Ok(kind)
}

/// A node with a short grace, the files of its authority, and the certificates of two clients.
struct Scene {
    _folder: tempfile::TempDir,
    authority: Authority,
    tls: Arc<ServerTls>,
    node: Node,
    one: Pair,
    other: Pair,
}

impl Scene {
    fn new(own_lasts: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ours");
        let own = authority.issue("node", own_lasts);
        let (one, other) = (authority.issue("one", DAY), authority.issue("other", DAY));
        let crl = Some(authority.revoke(&[]));
        let tls = load(&ServerTlsConfig { crl, ..server(&authority, &own) });
        let grace = Duration::from_millis(300);
        let lifetimes = Lifetimes { untrusted_grace: grace, ..Default::default() };
        let node = Node::start(caps(8, 8, 8), lifetimes, Some(Arc::clone(&tls)));
        Self { _folder: folder, authority, tls, node, one, other }
    }

    async fn connect(&self, pair: &Pair) -> std::io::Result<Stream> {
        connect(&self.node, &client(&self.authority, Some(pair))).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_its_open_connections_and_no_others() {
    let scene = Scene::new(DAY);
    let mut one = scene.connect(&scene.one).await.unwrap();
    let mut other = scene.connect(&scene.other).await.unwrap();
    scene.authority.revoke(&[&scene.one]);
    scene.tls.check_now();
    assert!(is_closed(&mut one).await);
    until(|| scene.node.slots.counts().open == 1).await;
    assert!(scene.connect(&scene.one).await.is_err(), "it can't connect again");
    let mut byte = [0];
    let silent = tokio::time::timeout(Duration::from_millis(700), async {
        while other.read_exact(&mut byte).await.is_ok() {}
    });
    assert!(silent.await.is_err(), "the other connection stays open");
    drop((one, other));
    scene.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_authority_ends_the_connections_of_its_certificates() {
    let scene = Scene::new(DAY);
    let mut one = scene.connect(&scene.one).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let theirs = Authority::new(folder.path(), "theirs");
    // Both authorities are trusted for a while, as when one authority replaces another.
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let both = read(&scene.authority.ca) + &read(&theirs.ca);
    std::fs::write(&scene.authority.ca, both).unwrap();
    scene.tls.check_now();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut again = scene.connect(&scene.one).await.unwrap();
    std::fs::copy(&theirs.ca, &scene.authority.ca).unwrap();
    scene.tls.check_now();
    assert!(is_closed(&mut one).await && is_closed(&mut again).await);
    until(|| scene.node.slots.counts().open == 0).await;
    scene.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expiry_of_the_nodes_own_certificate_ends_its_connections() {
    let scene = Scene::new(Duration::from_secs(4));
    let mut one = scene.connect(&scene.one).await.unwrap();
    assert!(is_closed(&mut one).await);
    scene.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_certificate_of_the_node_ends_connections_once_their_streams_have_ended() {
    let scene = Scene::new(DAY);
    let mut one = scene.connect(&scene.one).await.unwrap();
    // A revocation list changes the TLS files, but not the node's certificate.
    scene.authority.revoke(&[&scene.other]);
    scene.tls.check_now();
    let asked = async { while frame(&mut one).await.unwrap() != GO_AWAY {} };
    let asked = tokio::time::timeout(Duration::from_secs(7), asked).await;
    assert!(asked.is_err(), "the connection goes on");
    scene.authority.issue("node", DAY);
    scene.tls.check_now();
    // The client is asked to reconnect. Its stream continues, although the grace period of distrusted connections is
    // short.
    while frame(&mut one).await.unwrap() != GO_AWAY {}
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.node.slots.counts().open, 1);
    drop(one);
    scene.node.stop().await;
}

#[test]
fn a_list_without_an_authority_or_content_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let own = authority.issue("node", DAY);
    let fault = |config: ServerTlsConfig| {
        ServerTls::load(&config, ClientCertificates::Required).err().unwrap().to_string()
    };
    let crl = Some(authority.revoke(&[]));
    let said = fault(ServerTlsConfig { client_ca: None, crl, ..server(&authority, &own) });
    assert!(said.contains("`crl` needs `client_ca`"), "{said}");
    let crl = Some(authority.ca.clone());
    let said = fault(ServerTlsConfig { crl, ..server(&authority, &own) });
    assert!(said.contains("ours.pem: has no list of revoked certificates"), "{said}");
}

/// Does a handshake in memory. Returns the client's side, whether the server got names of the client, and the server's
/// side, which must be kept.
async fn handshake(
    server: &Arc<ServerTls>,
    client: &Arc<ClientTls>,
) -> (std::io::Result<VerifiedStream<tokio::io::DuplexStream>>, bool, impl Sized) {
    let (near, far) = duplex(1 << 16);
    let accepting = async {
        let (mut stream, presented) = server.accept(far).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        std::io::Result::Ok((stream, presented))
    };
    let connecting = async {
        let mut stream = client.connect(near, "node").await?;
        // With TLS 1.3, the client learns only now whether its certificate is accepted.
        stream.read_exact(&mut [0]).await?;
        Ok(stream)
    };
    let (accepted, connected) = tokio::join!(accepting, connecting);
    let is_named = accepted.as_ref().is_ok_and(|(_, presented)| !presented.names().is_empty());
    (connected, is_named, accepted)
}

#[tokio::test]
async fn optional_certificates_may_be_absent_but_not_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) =
        (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "theirs"));
    let own = ours.issue("node", DAY);
    let (valid, revoked) = (ours.issue("valid", DAY), ours.issue("revoked", DAY));
    let foreign = theirs.issue("foreign", DAY);
    let config = ServerTlsConfig { crl: Some(ours.revoke(&[&revoked])), ..server(&ours, &own) };
    for (clients, without) in
        [(ClientCertificates::Optional, true), (ClientCertificates::Required, false)]
    {
        let server = ServerTls::load(&config, clients).unwrap();
        for (pair, expected) in [
            (None, without),
            (Some(&valid), true),
            (Some(&revoked), false),
            (Some(&foreign), false),
        ] {
            let client = ClientTls::load(&client(&ours, pair)).unwrap();
            let (connected, is_named, _server) = handshake(&server, &client).await;
            assert_eq!(connected.is_ok(), expected, "{clients:?}");
            assert_eq!(is_named, expected && pair.is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_leaves_a_server_whose_certificate_is_revoked_or_expired() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    let (own, other) = (ours.issue("node", DAY), ours.issue("other", DAY));
    let server = load(&server(&ours, &own));
    let crl = Some(ours.revoke(&[&other]));
    let client = ClientTls::load(&ClientTlsConfig { crl, ..client(&ours, Some(&other)) }).unwrap();
    let (connected, _, kept) = handshake(&server, &client).await;
    let mut stream = connected.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(3600), stream.read_u8()).await;
    assert!(waited.is_err(), "the server's certificate is not the revoked one");
    ours.revoke(&[&own]);
    client.check_now();
    let asked = Instant::now();
    let error = stream.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{error}");
    assert!(asked.elapsed() <= Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(handshake(&server, &client).await.0.is_err(), "it can't connect again");
    drop(kept);

    ours.revoke(&[]);
    client.check_now();
    let began = Instant::now();
    let (connected, _, _kept) = handshake(&server, &client).await;
    connected.unwrap().read_u8().await.unwrap_err();
    let lasted = began.elapsed();
    assert!(DAY <= lasted && lasted < DAY + Duration::from_secs(60), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_distrusted_once_what_admitted_a_stream_is_withdrawn() {
    let connection = Connection::new(&Lifetimes::default(), 1, Peer::default(), None);
    let [kept, withdrawn] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    for _ in 0..3 {
        connection.depend_on(&kept);
        connection.depend_on(&withdrawn);
    }
    assert!(!connection.has_to_be_checked() && connection.is_trusted());
    assert_eq!(connection.grace(), wire::DEADLINE_MAX);
    withdrawn.store(true, Ordering::Relaxed);
    assert!(connection.has_to_be_checked());
    connection.check();
    connection.signalled().await;
    assert!(!connection.is_trusted() && !connection.has_to_be_checked());
    assert_eq!(connection.grace(), Duration::from_secs(30));
}
