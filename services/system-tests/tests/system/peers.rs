//! Tests that an I/O node answers only its peers, and that a query node accepts rows only from I/O nodes. Both
//! recognise each other by the names in certificates, and by a secret that both tiers share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use certificates::{Authority, Pair};
use client::fetch::{FetchClient, FetchOptions, Instant, TableVersion};
use client::{ClientTls, ClientTlsConfig, Network};
use connections::tls::ServerTlsConfig;
use futures::StreamExt;
use io_node::IoAccess;
use peers::{Prover, SecretFile};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wire::fetch::WarmRequest;
use wire::{Fault, Reason};

use crate::cluster::{Cluster, Io, endpoint, folder, soon, total};
use crate::members::{ROWS, check, write};
use crate::telemetry::scrape;

const DAY: Duration = Duration::from_secs(86_400);

fn client_of(io: &Io, tls: &ClientTlsConfig) -> FetchClient {
    let network = Network::Tls(ClientTls::load(tls).unwrap());
    client_with(io, FetchOptions { network, ..Default::default() })
}

fn client_with(io: &Io, options: FetchOptions) -> FetchClient {
    FetchClient::new(endpoint(io.node.local_addr()), options).unwrap()
}

/// Returns the options of a client that knows the secrets in a file.
fn knowing(secret: &Path) -> FetchOptions {
    let prover = Some(Arc::new(Prover::new(SecretFile::load(secret).unwrap())));
    FetchOptions { prover, ..Default::default() }
}

const OLD: &str = "the-old-secret-of-both-tiers-0123456789";
const NEW: &str = "the-new-secret-of-both-tiers-0123456789";

/// Replaces a file of secrets by renaming a new file over it, as tools do.
fn write_secrets(path: &Path, secrets: &[&str]) {
    let next = path.with_extension("next");
    std::fs::write(&next, secrets.join("\n")).unwrap();
    std::fs::rename(&next, path).unwrap();
}

/// Makes each of the calls of an I/O node.
async fn each_call(client: &FetchClient, uri: &str) -> [Result<(), Fault>; 3] {
    let fetched = async {
        let table = TableVersion { uri, branch: "", version: 1, identity: "" };
        client.ready(soon()).await?;
        client.open(table, &["id".to_owned()], soon()).await.map(drop)
    };
    let warmed = async {
        let request = WarmRequest { table_uri: uri.into(), version: 1, ..Default::default() };
        let mut progress = client.warm(request).await?;
        while let Some(step) = progress.next().await {
            step?;
        }
        Ok(())
    };
    let described = async { client.describe(Duration::from_secs(30)).await.map(drop) };
    [fetched.await, warmed.await, described.await]
}

/// Returns the settings of a server that has this certificate, and asks clients for a certificate of `authority`.
fn server(authority: &Authority, pair: &Pair) -> ServerTlsConfig {
    let (cert, key) = (pair.cert.clone(), pair.key.clone());
    ServerTlsConfig { cert, key, client_ca: Some(authority.ca.clone()), crl: None }
}

/// Returns the settings of a client with this certificate. Servers' certificates must have the name `server_name`.
fn client(authority: &Authority, pair: &Pair, server_name: &str) -> ClientTlsConfig {
    ClientTlsConfig {
        ca: Some(authority.ca.clone()),
        cert: Some(pair.cert.clone()),
        key: Some(pair.key.clone()),
        server_name: Some(server_name.to_owned()),
        crl: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_named_peers_of_the_authority_are_answered() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let authority = Authority::new(folder.path(), "ours");
    let own = authority.issue("io.example", DAY);
    let query = client(&authority, &authority.issue("query-1.example", DAY), "io.example");
    let other = client(&authority, &authority.issue("another.example", DAY), "io.example");
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
        io.tls = Some(server(&authority, &own));
        io.peers = vec!["query-*.example".into()];
        io.telemetry.metrics_listen = Some("127.0.0.1:0".parse().unwrap());
        config.io_tls = Some(query.clone());
    })
    .await;
    check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
    let status = cluster.client.status().await.unwrap();
    assert!(status.io_nodes[0].reachable && !status.io_nodes[0].open_access, "{status:?}");
    assert_eq!(status.fallback_rows, 0, "the I/O node answered");

    let (io, uri) = (&cluster.io[0], uri.to_str().unwrap());
    for answer in each_call(&client_of(io, &query), uri).await {
        answer.unwrap();
    }
    let refusals = each_call(&client_of(io, &other), uri).await.map(Result::unwrap_err);
    let [fetch, rest @ ..] = &refusals;
    assert_eq!(fetch.reason, Reason::NodeUnavailable, "{fetch}");
    assert!(rest.iter().all(|it| it.reason == Reason::Unauthenticated), "{rest:?}");
    for fault in &refusals {
        assert!(fault.message.contains("answers only its peers"), "{fault}");
    }
    assert!(refused(io, "other_name").await >= 3);

    // Health checks are answered for everyone who can connect.
    let read = |file: &Option<PathBuf>| std::fs::read(file.as_ref().unwrap()).unwrap();
    let tls = tonic::transport::ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(&other.ca)))
        .identity(Identity::from_pem(read(&other.cert), read(&other.key)))
        .domain_name("io.example");
    let channel =
        tonic::transport::Endpoint::from_shared(format!("https://{}", io.node.local_addr()));
    let channel = channel.unwrap().tls_config(tls).unwrap().connect().await.unwrap();
    let request = HealthCheckRequest { service: "bireme.fetch.v1.FetchService".into() };
    let health = HealthClient::new(channel).check(request).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    cluster.stop().await;
}

/// Takes rows until `stop` is cancelled, and returns the number of Takes that were answered.
async fn load(cluster: &Cluster, stop: &CancellationToken) -> u64 {
    let mut answered = 0;
    while !stop.is_cancelled() {
        let ids: Vec<i64> = (0..50).map(|id| (id * 7919 + answered as i64) % ROWS).collect();
        check(&cluster.client, &ids).await;
        answered += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_under_load_and_a_revoked_node_is_left() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let authority = Authority::new(folder.path(), "ours");
    let crl = authority.revoke(&[]);
    // The first certificates expire soon. They are renewed before that.
    let soon = Duration::from_secs(20);
    let own = authority.issue("io.example", soon);
    let query = authority.issue("query.example", soon);
    let tls = ClientTlsConfig { crl: Some(crl), ..client(&authority, &query, "io.example") };
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
        io.tls = Some(server(&authority, &own));
        io.peers = vec!["query.example".into()];
        config.io_tls = Some(tls.clone());
    })
    .await;
    let stop = CancellationToken::new();
    let renewed = async {
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (own, _) = (authority.issue("io.example", DAY), authority.issue("query.example", DAY));
        // Wait until the first certificates have expired (after 20 s), so that the connections that were made with them
        // have ended.
        tokio::time::sleep_until(began + Duration::from_secs(26)).await;
        stop.cancel();
        own
    };
    let (answered, own) = tokio::join!(load(&cluster, &stop), renewed);
    let status = cluster.client.status().await.unwrap();
    assert!(answered > 100 && status.io_nodes[0].reachable, "{answered} {status:?}");
    assert_eq!(status.fallback_rows, 0, "each row came from the I/O node");
    assert_eq!(status.errors, 0);

    // The I/O node's certificate is revoked. The query node ends its open streams, and reads the table.
    authority.revoke(&[&own]);
    let until = crate::cluster::soon();
    loop {
        assert!(Instant::now() < until, "the query node still asks a revoked I/O node");
        check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
        let status = cluster.client.status().await.unwrap();
        let node = &status.io_nodes[0];
        if status.fallback_rows > 0 && !node.reachable {
            assert!(node.error.ends_with("invalid peer certificate: Revoked"), "{node:?}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.stop().await;
}

/// Asserts that each call of a client is refused, with a message that contains `said`.
async fn assert_refused(client: &FetchClient, uri: &str, said: &str) {
    let refusals = each_call(client, uri).await.map(Result::unwrap_err);
    let [fetch, rest @ ..] = &refusals;
    assert_eq!(fetch.reason, Reason::NodeUnavailable, "{fetch}");
    assert!(rest.iter().all(|it| it.reason == Reason::Unauthenticated), "{rest:?}");
    for fault in &refusals {
        assert!(fault.message.contains(said), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_only_callers_that_know_the_secret_are_answered() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let [ours, both, other] = ["ours", "both", "other"].map(|name| folder.path().join(name));
    write_secrets(&ours, &[OLD]);
    write_secrets(&both, &[NEW, OLD]);
    write_secrets(&other, &[NEW]);
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
        io.peer_secret = Some(both.clone());
        io.telemetry.metrics_listen = Some("127.0.0.1:0".parse().unwrap());
        config.peer_secret = Some(ours.clone());
    })
    .await;
    check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
    let status = cluster.client.status().await.unwrap();
    assert!(status.io_nodes[0].reachable && !status.io_nodes[0].open_access, "{status:?}");
    assert_eq!(status.fallback_rows, 0, "the I/O node answered");

    let (io, uri) = (&cluster.io[0], uri.to_str().unwrap());
    for secret in [&ours, &both, &other] {
        for answer in each_call(&client_with(io, knowing(secret)), uri).await {
            answer.unwrap();
        }
    }
    let said = "answers only its peers; query nodes need the secret of its setting `peer_secret`";
    assert_refused(&client_with(io, FetchOptions::default()), uri, said).await;
    write_secrets(&other, &["a-secret-that-no-node-of-these-has-got"]);
    assert_refused(&client_with(io, knowing(&other)), uri, said).await;
    assert!(refused(io, "no_proof").await >= 3);
    assert!(refused(io, "other_secret").await >= 3);
    cluster.stop().await;
}

/// Returns the number of calls that an I/O node refused for `cause`.
async fn refused(io: &Io, cause: &str) -> u64 {
    let metrics = scrape(io.node.metrics_addr().unwrap(), "/metrics", "*/*").await.1;
    let metrics = String::from_utf8(metrics).unwrap();
    let series = format!("bireme_io_calls_refused_total{{error_type=\"{cause}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
    count.unwrap_or_else(|| panic!("{series} is not in\n{metrics}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_io_node_that_does_not_know_the_secret_is_not_believed() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let [ours, other] = ["ours", "other"].map(|name| folder.path().join(name));
    write_secrets(&ours, &[OLD]);
    write_secrets(&other, &[NEW]);
    for secret in [None, Some(other)] {
        // The node answers anyone, like an impostor in place of an I/O node.
        let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
            io.peer_secret = secret.clone();
            io.access = Some(IoAccess::Open);
            config.peer_secret = Some(ours.clone());
        })
        .await;
        check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
        let status = cluster.client.status().await.unwrap();
        let node = &status.io_nodes[0];
        assert!(!node.reachable, "{node:?}");
        let said = "it does not prove that it knows the secret of `peer_secret`";
        assert!(node.error.contains(said), "{node:?}");
        assert_eq!(status.fallback_rows, 100, "the table answered");
        let described = cluster.io[0].describe().await;
        assert_eq!(total(&described, |core| core.batches), 0, "it was asked for no row");
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_gets_a_secret_node_by_node() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let secret = folder.path().join("secret");
    write_secrets(&secret, &[OLD]);
    // I/O nodes get the secret first. They answer anyone until all query nodes have it.
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, _| {
        io.peer_secret = Some(secret.clone());
        io.access = Some(IoAccess::Open);
    })
    .await;
    check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
    let (io, uri) = (&cluster.io[0], uri.to_str().unwrap());
    for answer in each_call(&client_with(io, knowing(&secret)), uri).await {
        answer.unwrap();
    }
    let status = cluster.client.status().await.unwrap();
    assert_eq!(status.fallback_rows, 0, "the I/O node answered");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_and_a_secret_callers_need_both() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let secret = folder.path().join("secret");
    write_secrets(&secret, &[OLD]);
    let authority = Authority::new(folder.path(), "ours");
    let own = authority.issue("io.example", DAY);
    let query = client(&authority, &authority.issue("query.example", DAY), "io.example");
    let other = client(&authority, &authority.issue("another.example", DAY), "io.example");
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
        io.tls = Some(server(&authority, &own));
        io.peers = vec!["query.example".into()];
        io.peer_secret = Some(secret.clone());
        config.io_tls = Some(query.clone());
        config.peer_secret = Some(secret.clone());
    })
    .await;
    check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
    assert_eq!(cluster.client.status().await.unwrap().fallback_rows, 0);
    let (io, uri) = (&cluster.io[0], uri.to_str().unwrap());
    let said = "its setting `peers` names the certificates of query nodes, and query nodes need the secret";
    assert_refused(&client_of(io, &query), uri, said).await;
    let network = Network::Tls(ClientTls::load(&other).unwrap());
    let options = FetchOptions { network, ..knowing(&secret) };
    assert_refused(&client_with(io, options), uri, said).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_is_changed_under_load_and_the_old_one_ends() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let [io_file, query_file, old_file] =
        ["io", "query", "old"].map(|name| folder.path().join(name));
    for file in [&io_file, &query_file, &old_file] {
        write_secrets(file, &[OLD]);
    }
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
        io.peer_secret = Some(io_file.clone());
        config.peer_secret = Some(query_file.clone());
    })
    .await;
    let old = client_with(&cluster.io[0], knowing(&old_file));
    old.ready(soon()).await.unwrap();
    let stop = CancellationToken::new();
    let changed = async {
        // In this order, no node ever uses a secret that the other side does not have yet.
        for step in [[OLD, NEW].as_slice(), &[NEW, OLD], &[NEW]] {
            for file in [&io_file, &query_file] {
                tokio::time::sleep(Duration::from_secs(1)).await;
                write_secrets(file, step);
            }
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
        // Wait until the connections that were made with the old secret have ended.
        let until = crate::cluster::soon();
        while old.is_connected() {
            assert!(Instant::now() < until, "a caller with the old secret is still connected");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.cancel();
    };
    let (answered, ()) = tokio::join!(load(&cluster, &stop), changed);
    let status = cluster.client.status().await.unwrap();
    assert!(answered > 100 && status.io_nodes[0].reachable, "{answered} {status:?}");
    assert_eq!(status.fallback_rows, 0, "each row came from the I/O node");
    assert_eq!(status.errors, 0);
    assert_refused(&old, uri.to_str().unwrap(), "answers only its peers").await;
    cluster.stop().await;
}
