//! Tests both tiers with TLS and client certificates.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use certificates::{Authority, Pair};
use client::fetch::{FetchClient, FetchOptions};
use client::query::QueryClient;
use client::{ClientTls, ClientTlsConfig, Endpoint, Network};
use connections::tls::ServerTlsConfig;
use wire::Reason;

use crate::cluster::{Cluster, folder, soon};
use crate::members::{check, write};
use crate::telemetry::scrape;

/// The beginning of 2040, in seconds since 1970.
const YEAR_2040: u64 = 2_208_988_800;

/// The files of an authority, of a certificate that it issued, and of the certificate's key.
struct Files {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

fn files(folder: &Path, name: &str) -> Files {
    let authority = Authority::new(folder, &format!("{name}-authority"));
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(YEAR_2040);
    let Pair { cert, key, .. } = authority.issue_until(&[name], until);
    Files { ca: authority.ca, cert, key }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_tiers_use_tls_and_check_clients() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let ours = files(folder.path(), "bireme");
    let theirs = files(folder.path(), "stranger");
    let client = ClientTlsConfig {
        ca: Some(ours.ca.clone()),
        cert: Some(ours.cert.clone()),
        key: Some(ours.key.clone()),
        // Nodes are listed by address, and the certificate has no address.
        server_name: Some("bireme".into()),
        crl: None,
    };
    let server = ServerTlsConfig {
        cert: ours.cert.clone(),
        key: ours.key.clone(),
        client_ca: Some(ours.ca.clone()),
        crl: None,
    };
    let cluster = Cluster::start_secured(2, &[("t", &uri)], &client, |io, query| {
        io.tls = Some(server.clone());
        query.tls = Some(server.clone());
        query.io_tls = Some(client.clone());
        for telemetry in [&mut io.telemetry, &mut query.telemetry] {
            telemetry.metrics_listen = Some("127.0.0.1:0".parse().unwrap());
        }
    })
    .await;
    let ids: Vec<i64> = (0..500).map(|i| i * 7919 % 200_000).collect();
    check(&cluster.client, &ids).await;
    let status = cluster.client.status().await.unwrap();
    assert!(status.io_nodes.iter().all(|node| node.reachable), "{status:?}");
    assert_eq!(status.fallback_rows, 0, "the I/O nodes answered");

    let expires = |role| {
        format!(
            "bireme_tls_certificate_expiration_timestamp_seconds{{role=\"{role}\"}} {YEAR_2040}\n"
        )
    };
    let io = cluster.io[0].node.metrics_addr().unwrap();
    for (node, shows) in [(io, false), (cluster.query.metrics_addr().unwrap(), true)] {
        let (_, text) = scrape(node, "/metrics", "*/*").await;
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(&expires("server")), "{text}");
        assert_eq!(text.contains(&expires("client")), shows, "{text}");
    }

    // A client cannot connect if it does not trust the authority, has no certificate or one from another authority, or
    // does not use TLS.
    let query = format!("https://{}", cluster.query.local_addr()).parse::<Endpoint>().unwrap();
    let unknown = ClientTlsConfig { ca: Some(theirs.ca.clone()), ..client.clone() };
    let nobody = ClientTlsConfig { cert: None, key: None, ..client.clone() };
    let stranger = ClientTlsConfig {
        cert: Some(theirs.cert.clone()),
        key: Some(theirs.key.clone()),
        ..client.clone()
    };
    for refused in [unknown, nobody, stranger] {
        let fault = match QueryClient::connect_with(&query, &refused).await {
            Ok(client) => client.status().await.unwrap_err(),
            Err(fault) => fault,
        };
        assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
    }
    let plain = cluster.query.local_addr().to_string().parse::<Endpoint>().unwrap();
    assert!(QueryClient::connect_with(&plain, &client).await.is_err(), "it says https");
    let clear = match QueryClient::connect(&plain).await {
        Ok(client) => client.status().await.unwrap_err(),
        Err(fault) => fault,
    };
    assert_eq!(clear.reason, Reason::NodeUnavailable, "{clear}");
    let said = format!("the node at {plain} speaks TLS; write its endpoint with https://");
    assert_eq!(clear.message, said);
    let io = cluster.io[0].node.local_addr().to_string().parse::<Endpoint>().unwrap();
    let in_the_clear = FetchClient::new(io.clone(), FetchOptions::default()).unwrap();
    assert!(in_the_clear.ready(soon()).await.is_err());
    let network = Network::Tls(ClientTls::load(&client).unwrap());
    let secured = FetchClient::new(io, FetchOptions { network, ..Default::default() }).unwrap();
    secured.ready(soon()).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_node_with_io_tls_reports_io_nodes_without_tls() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let ca = files(folder.path(), "bireme").ca;
    let tls = ClientTlsConfig { ca: Some(ca), ..ClientTlsConfig::default() };
    let cluster = Cluster::start_with(1, &[("t", &uri)], |_, query| {
        query.io_tls = Some(tls.clone());
    })
    .await;
    let status = cluster.client.status().await.unwrap();
    let node = &status.io_nodes[0];
    assert!(!node.reachable, "{node:?}");
    // `io_tls` decides whether TLS is used, whatever the endpoint's scheme.
    let said = format!("the I/O node at {} can't be reached: it speaks no TLS", node.endpoint);
    assert_eq!(node.error, said);
    cluster.stop().await;
}
