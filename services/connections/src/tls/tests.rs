//! Tests the connecting and the accepting side of TLS against each other, with certificates made for the tests.

use std::path::Path;
use std::time::{Duration, SystemTime};

use certificates::{Authority, Pair};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

/// Returns whether both sides accept each other and a message gets through.
async fn speaks(server: &ServerTlsConfig, client: &ClientTlsConfig, host: &str) -> bool {
    let (server, client) = (
        ServerTls::load(server, ClientCertificates::Required).unwrap(),
        ClientTls::load(client).unwrap(),
    );
    let (near, far) = duplex(1 << 16);
    let serving = async {
        let (mut stream, _) = server.accept(far).await?;
        let mut message = [0; 4];
        stream.read_exact(&mut message).await?;
        stream.write_all(&message).await?;
        stream.flush().await
    };
    let asking = async {
        let mut stream = client.connect(near, host).await?;
        stream.write_all(b"oars").await?;
        stream.flush().await?;
        let mut message = [0; 4];
        stream.read_exact(&mut message).await?;
        assert_eq!(&message, b"oars");
        std::io::Result::Ok(())
    };
    let (served, asked) = tokio::join!(serving, asking);
    served.is_ok() && asked.is_ok()
}

#[tokio::test]
async fn only_sides_with_trusted_certificates_connect() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, theirs) = (Authority::new(folder, "ours"), Authority::new(folder, "theirs"));
    let Pair { cert, key, .. } = ours.issue("io.bireme", DAY);
    let server = ServerTlsConfig { cert, key, client_ca: None, crl: None };
    let client = ClientTlsConfig { ca: Some(ours.ca.clone()), ..Default::default() };
    assert!(speaks(&server, &client, "io.bireme").await);
    assert!(!speaks(&server, &client, "another.bireme").await, "the name is checked");
    let named = ClientTlsConfig { server_name: Some("io.bireme".into()), ..client.clone() };
    assert!(speaks(&server, &named, "10.0.0.7").await);
    let mistaken = ClientTlsConfig { ca: Some(theirs.ca.clone()), ..named.clone() };
    assert!(!speaks(&server, &mistaken, "10.0.0.7").await, "the authority is checked");

    let mutual = ServerTlsConfig { client_ca: Some(ours.ca.clone()), ..server };
    assert!(!speaks(&mutual, &named, "x").await, "without a client certificate");
    let with = |pair: Pair| ClientTlsConfig {
        cert: Some(pair.cert),
        key: Some(pair.key),
        ..named.clone()
    };
    assert!(speaks(&mutual, &with(ours.issue("query.bireme", DAY)), "x").await);
    assert!(!speaks(&mutual, &with(theirs.issue("stranger", DAY)), "x").await);
}

#[tokio::test]
async fn a_certificate_that_is_revoked_after_it_expired_ends_the_connection_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    let crl = Some(ours.revoke(&[]));
    let own = ours.issue("io.bireme", Duration::from_secs(3));
    let (cert, key) = (own.cert.clone(), own.key.clone());
    let server = ServerTlsConfig { cert, key, client_ca: None, crl: None };
    let server = ServerTls::load(&server, ClientCertificates::Required).unwrap();
    let client = ClientTlsConfig { ca: Some(ours.ca.clone()), crl, ..Default::default() };
    let client = ClientTls::load(&client).unwrap();
    let (near, far) = duplex(1 << 16);
    let (mut stream, served) = tokio::join!(client.connect(near, "io.bireme"), server.accept(far));
    let (stream, _served) = (stream.as_mut().unwrap(), served.unwrap());
    let mut byte = [0];
    // The certificate expires and is checked after that, and the connection outlasts it.
    let idle = tokio::time::timeout(Duration::from_secs(6), stream.read_exact(&mut byte)).await;
    assert!(idle.is_err(), "{idle:?}");
    ours.revoke(&[&own]);
    let ended = tokio::time::timeout(Duration::from_secs(15), stream.read_exact(&mut byte)).await;
    let error = ended.expect("the connection goes on").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{error}");
}

#[tokio::test]
async fn failed_handshakes_are_counted_by_cause() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, theirs) = (Authority::new(folder, "ours"), Authority::new(folder, "theirs"));
    let Pair { cert, key, .. } = ours.issue("io.bireme", DAY);
    let config = ServerTlsConfig { cert, key, client_ca: Some(ours.ca.clone()), crl: None };
    let server = ServerTls::load(&config, ClientCertificates::Required).unwrap();
    let client = |pair: Option<Pair>, ca: &Path| {
        let (cert, key) = pair.map(|it| (it.cert, it.key)).unzip();
        ClientTlsConfig { ca: Some(ca.into()), cert, key, ..Default::default() }
    };
    let past = SystemTime::now() - DAY;
    let clients = [
        ("no_certificate", client(None, &ours.ca)),
        ("unknown_issuer", client(Some(theirs.issue("foreign.bireme", DAY)), &ours.ca)),
        ("out_of_date", client(Some(ours.issue_until(&["past.bireme"], past)), &ours.ca)),
        ("by_client", client(Some(ours.issue("query.bireme", DAY)), &theirs.ca)),
    ];
    for (cause, client) in clients {
        let client = ClientTls::load(&client).unwrap();
        let before: Vec<_> = server.refusals().collect();
        let (near, far) = tokio::io::duplex(1 << 16);
        let asking = async {
            // With TLS 1.3 a client learns only with its first read that it is refused.
            let mut stream = client.connect(near, "io.bireme").await?;
            stream.read_u8().await
        };
        let (accepted, _) = tokio::join!(async { server.accept(far).await.is_ok() }, asking);
        assert!(!accepted, "{cause}");
        let grown: Vec<_> =
            server.refusals().zip(before).filter(|(now, then)| now != then).collect();
        assert_eq!(grown.len(), 1, "{cause}: {grown:?}");
        assert_eq!((grown[0].0.0, grown[0].0.1), (cause, 1));
    }
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let asking = async move { near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await };
    let (accepted, _) = tokio::join!(async { server.accept(far).await.is_ok() }, asking);
    assert!(!accepted && server.refusals().any(|it| it == ("protocol", 1)));
}

#[test]
fn errors_name_the_unusable_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = Authority::new(folder, "ours");
    let Pair { cert, key, .. } = ours.issue("a", DAY);
    let other = ours.issue("b", DAY);
    let fault = |cert: &Path, key: &Path| {
        let config =
            ServerTlsConfig { cert: cert.into(), key: key.into(), client_ca: None, crl: None };
        ServerTls::load(&config, ClientCertificates::Required).err().unwrap().to_string()
    };
    let absent = folder.join("absent");
    assert!(fault(&absent, &key).contains("absent"), "{}", fault(&absent, &key));
    assert!(fault(&key, &key).contains("no certificate"), "{}", fault(&key, &key));
    assert!(fault(&cert, &cert).contains("a.crt"), "{}", fault(&cert, &cert));
    assert!(fault(&cert, &other.key).contains("can't be used"), "{}", fault(&cert, &other.key));
}

/// The beginnings of years, in seconds since 1970.
const YEAR_2050: u64 = 2_524_608_000;
const YEAR_2040: u64 = 2_208_988_800;
const YEAR_2030: u64 = 1_893_456_000;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

#[test]
fn the_reported_expiry_is_that_of_the_certificate_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = Authority::new(folder, "ours");
    let shown = folder.join("shown.crt");
    let shows = |pem: &str, second: u64| {
        std::fs::write(&shown, pem).unwrap();
        std::fs::File::open(&shown).unwrap().set_modified(at(second)).unwrap();
    };
    let Pair { cert, key, .. } = ours.issue_until(&["io.bireme"], at(YEAR_2040));
    shows(&std::fs::read_to_string(&cert).unwrap(), 10);
    let server =
        ServerTlsConfig { cert: shown.clone(), key: key.clone(), client_ca: None, crl: None };
    let server = ServerTls::load(&server, ClientCertificates::Required).unwrap();
    let client = ClientTlsConfig {
        ca: Some(ours.ca.clone()),
        cert: Some(shown.clone()),
        key: Some(key.clone()),
        server_name: None,
        crl: None,
    };
    let anonymous = ClientTls::load(&ClientTlsConfig { cert: None, key: None, ..client.clone() });
    let client = ClientTls::load(&client).unwrap();
    assert_eq!((server.expires(), client.expires()), (Some(YEAR_2040), Some(YEAR_2040)));
    assert_eq!(anonymous.unwrap().expires(), None, "it presents no certificate");

    let expiry = |pem: &str, second| {
        shows(pem, second);
        server.check_now();
        client.config.check_now();
        assert_eq!(server.expires(), client.expires());
        server.expires()
    };
    // The certificate is renewed with the same key. Then its chain contains a certificate that expires earlier. Then
    // the file is invalid.
    let text = |pair: Pair| std::fs::read_to_string(pair.cert).unwrap();
    let renewed = text(ours.renew(&["io.bireme"], at(YEAR_2050)));
    let between = text(ours.issue_until(&["between"], at(YEAR_2030)));
    assert_eq!(expiry(&renewed, 20), Some(YEAR_2050));
    assert_eq!(expiry(&format!("{renewed}{between}"), 30), Some(YEAR_2030));
    assert_eq!(expiry("nothing", 40), Some(YEAR_2030), "an invalid file is not used");
    assert_eq!(expiry(&renewed, 50), Some(YEAR_2050));
}
