//! Tests the audit logs of both tiers: calls and streams of I/O nodes, and refused handshakes.

use std::path::Path;
use std::time::Duration;

use address::RowAddr;
use certificates::Authority;
use client::fetch::{FetchClient, FetchOptions, Instant, Metric, Rerank};
use client::{ClientTls, ClientTlsConfig};
use connections::tls::ServerTlsConfig;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::cluster::{Cluster, Io, endpoint, folder, soon};
use crate::members::{check, write};
use crate::telemetry::scrape;

const DAY: Duration = Duration::from_secs(86_400);

/// Returns the lines of a log.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the log has a line that `is_it` accepts, and returns all such lines.
async fn lines_with(path: &Path, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
    let until = soon();
    loop {
        let found: Vec<_> = lines(path).into_iter().filter(|line| is_it(line)).collect();
        if !found.is_empty() {
            return found;
        }
        assert!(Instant::now() < until, "{:#?}", lines(path));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn sum(lines: &[Value], field: &str) -> u64 {
    lines.iter().map(|line| line[field].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_projection_of_a_stream_has_a_line_however_it_ends() {
    let folder = folder();
    let (uri, log) = (folder.path().join("table"), folder.path().join("audit.jsonl"));
    write(&uri).await;
    let io = Io::start(|config| config.audit = Some(log.clone())).await;
    let uri = uri.to_str().unwrap();
    let label = io_node::table_label(&lake::TableUri::of_config(uri).unwrap());
    let is_fetch = |line: &Value| line["rpc"] == "bireme.fetch.v1.FetchService/Fetch";

    // Each projection's rows are counted separately, and its line is written when the client is gone.
    let options = FetchOptions { streams: 1, ..Default::default() };
    let client = FetchClient::new(endpoint(io.node.local_addr()), options.clone()).unwrap();
    let table = client::fetch::TableVersion { uri, branch: "", version: 1, identity: "" };
    let ids = client.open(table, &["id".to_owned()], soon()).await.unwrap();
    let texts = client.open(table, &["text".to_owned()], soon()).await.unwrap();
    let addrs = |count: u32| (0..count).map(|at| RowAddr::new(0, at)).collect::<Vec<_>>();
    client.fetch(&ids, addrs(300), None, soon()).await.unwrap();
    client.fetch(&ids, addrs(200), None, soon()).await.unwrap();
    client.fetch(&texts, addrs(7), None, soon()).await.unwrap();
    assert!(lines(&log).iter().all(|line| line["rows"] == 0), "they are still open");
    drop(client);
    let closed = |line: &Value| is_fetch(line) && line["rows"] != 0;
    let until = soon();
    let mut found = lines_with(&log, closed).await;
    while found.len() < 2 {
        assert!(Instant::now() < until, "{found:?}");
        found = lines_with(&log, closed).await;
    }
    found.sort_by_key(|line| line["rows"].as_u64());
    let [few, many] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((few["rows"].as_u64(), many["rows"].as_u64()), (Some(7), Some(500)));
    // 500 rows of 8 bytes were sent.
    assert!((4000..5000).contains(&many["bytes"].as_u64().unwrap()), "{many}");
    for line in [few, many] {
        assert_eq!(line["table"], label.as_str(), "{line}");
        assert_eq!((&line["version"], &line["verdict"]), (&1.into(), &"allowed".into()));
        assert_eq!((&line["code"], &line["node"]), (&"OK".into(), &"io-0".into()));
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line.get("caller").is_none(), "the node is open: {line}");
    }

    // Request a table that is not served.
    let client = FetchClient::new(endpoint(io.node.local_addr()), options).unwrap();
    client.ready(soon()).await.unwrap();
    let foreign = client::fetch::TableVersion { uri: "/etc", branch: "", version: 1, identity: "" };
    client.open(foreign, &["id".to_owned()], soon()).await.unwrap_err();
    let denied = lines_with(&log, |line| line["reason"] == "TABLE_NOT_SERVED").await;
    assert_eq!(denied.len(), 1);
    assert_eq!((&denied[0]["verdict"], &denied[0]["rows"]), (&"denied".into(), &0.into()));
    assert!(denied[0]["table"].as_str().unwrap().starts_with("etc-"), "{denied:?}");

    io.warm(uri, 1).await;
    let warmed = lines_with(&log, |line| line["rpc"] == "bireme.fetch.v1.FetchService/Warm").await;
    assert_eq!((&warmed[0]["table"], &warmed[0]["code"]), (&label.as_str().into(), &"OK".into()));
    io.describe().await;
    lines_with(&log, |line| line["rpc"] == "bireme.fetch.v1.FetchService/Describe").await;

    // Some streams are open when the node stops.
    let projection = io.open(uri, 1, &["id"]).await;
    io.client.fetch(&projection, addrs(11), None, soon()).await.unwrap();
    io.stop().await;
    let last: Vec<_> = lines(&log).into_iter().filter(|line| line["rows"] == 11).collect();
    assert_eq!(last.len(), 1, "{:#?}", lines(&log));
    let unused =
        lines(&log).into_iter().filter(|line| is_fetch(line) && line.get("table").is_none());
    assert!(unused.count() > 0, "streams that opened nothing have a line too");
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_and_refused_callers_are_written_too() {
    let folder = folder();
    let [uri, log, secret] = ["table", "audit.jsonl", "secret"].map(|it| folder.path().join(it));
    write(&uri).await;
    std::fs::write(&secret, "the-secret-of-both-tiers-0123456789abcdef").unwrap();
    let cluster = Cluster::start_with(1, &[("t", &uri)], |io, config| {
        io.audit = Some(log.clone());
        io.peer_secret = Some(secret.clone());
        config.peer_secret = Some(secret.clone());
    })
    .await;
    check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
    cluster.client.status().await.unwrap();
    let stranger = FetchClient::new(
        endpoint(cluster.io[0].node.local_addr()),
        FetchOptions { streams: 1, ..Default::default() },
    );
    stranger.unwrap().describe(Duration::from_secs(30)).await.unwrap_err();
    cluster.stop().await;
    let of = |rpc: &str, verdict: &str| -> Vec<Value> {
        let rpc = format!("bireme.fetch.v1.FetchService/{rpc}");
        let is_it = |line: &Value| line["rpc"] == rpc.as_str() && line["verdict"] == verdict;
        lines(&log).into_iter().filter(is_it).collect()
    };
    let fetched = of("Fetch", "allowed");
    assert_eq!(sum(&fetched, "rows"), 100, "{fetched:#?}");
    let described = of("Describe", "allowed");
    assert!(!described.is_empty());
    for line in fetched.iter().chain(&described) {
        assert_eq!(line["caller"], "secret", "{line}");
    }
    for rpc in ["Fetch", "Describe"] {
        let denied = of(rpc, "denied");
        assert!(!denied.is_empty());
        for line in denied {
            assert_eq!(
                (&line["reason"], &line["code"]),
                (&"no_proof".into(), &"UNAUTHENTICATED".into())
            );
            assert!(line.get("caller").is_none() && line.get("table").is_none(), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_handshakes_have_a_line_on_both_tiers() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let logs = ["io.jsonl", "query.jsonl"].map(|name| folder.path().join(name));
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(folder.path(), name));
    let own = ours.issue("io.example", DAY);
    let foreign = theirs.issue("foreign.example", DAY);
    let server = ServerTlsConfig {
        cert: own.cert.clone(),
        key: own.key.clone(),
        client_ca: Some(ours.ca.clone()),
        crl: None,
    };
    let query = ours.issue("query.example", DAY);
    let tls = |pair: Option<&certificates::Pair>| ClientTlsConfig {
        ca: Some(ours.ca.clone()),
        cert: pair.map(|pair| pair.cert.clone()),
        key: pair.map(|pair| pair.key.clone()),
        server_name: Some("io.example".into()),
        crl: None,
    };
    let cluster = Cluster::start_secured(1, &[("t", &uri)], &tls(Some(&query)), |io, config| {
        io.tls = Some(server.clone());
        io.peers = vec!["query.example".into()];
        io.audit = Some(logs[0].clone());
        io.telemetry.metrics_listen = Some("127.0.0.1:0".parse().unwrap());
        config.tls = Some(server.clone());
        config.io_tls = Some(tls(Some(&query)));
        config.audit = Some(logs[1].clone());
        config.telemetry.metrics_listen = Some("127.0.0.1:0".parse().unwrap());
    })
    .await;
    check(&cluster.client, &(0..100).collect::<Vec<_>>()).await;
    let addresses = [cluster.io[0].node.local_addr(), cluster.query.local_addr()];
    for (address, log) in addresses.into_iter().zip(&logs) {
        for (pair, reason) in [
            (None, "peer sent no certificates"),
            (Some(&foreign), "invalid peer certificate: UnknownIssuer"),
        ] {
            let client = ClientTls::load(&tls(pair)).unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            let from = stream.local_addr().unwrap().to_string();
            if let Ok(mut stream) = client.connect(stream, "io.example").await {
                // With TLS 1.3, a client learns that it is refused only when it reads.
                stream.read_to_end(&mut Vec::new()).await.unwrap_err();
            }
            let refused = lines_with(log, |line| line["peer"] == from.as_str()).await;
            let [line] = &refused[..] else { panic!("{refused:?}") };
            assert_eq!((&line["event"], &line["verdict"]), (&"handshake".into(), &"denied".into()));
            assert_eq!(line["reason"], reason);
        }
    }
    for address in [cluster.io[0].node.metrics_addr(), cluster.query.metrics_addr()] {
        let metrics = scrape(address.unwrap(), "/metrics", "*/*").await.1;
        let metrics = String::from_utf8(metrics).unwrap();
        for cause in ["no_certificate", "unknown_issuer"] {
            let series =
                format!("bireme_tls_handshakes_refused_total{{error_type=\"{cause}\"}} 1\n");
            assert!(metrics.contains(&series), "{series} is not in\n{metrics}");
        }
    }
    let lines = lines_with(&logs[1], |line| line.get("rpc").is_some()).await;
    assert!(lines.iter().all(|line| line["verdict"] == "allowed"), "{lines:?}");
    cluster.stop().await;
    let fetched = lines_with(&logs[0], |line| line["rows"] == 100).await;
    assert_eq!(fetched[0]["caller"], "san:query.example");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rerank_counts_the_rows_that_are_returned() {
    let folder = folder();
    let (uri, log) = (folder.path().join("table"), folder.path().join("audit.jsonl"));
    let uri = uri.to_str().unwrap();
    crate::reads::write(uri).await;
    let io = Io::start(|config| config.audit = Some(log.clone())).await;
    let projection = io.open(uri, 1, &["v768"]).await;
    let rerank = Rerank::new(&[0.0; 768], Metric::L2, 3);
    let addrs = (0..50).map(|at| RowAddr::new(0, at)).collect();
    io.client.fetch(&projection, addrs, Some(rerank), soon()).await.unwrap();
    io.stop().await;
    let scored = lines_with(&log, |line| line["rows"] == 3).await;
    assert_eq!(scored[0]["bytes"], 36);
}
