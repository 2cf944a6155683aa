//! Tests the readiness of an I/O node, as reported over gRPC and to probes over HTTP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use address::RowAddr;
use client::fetch::Projection;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::cluster::{Io, folder, soon};
use crate::shares::table;
use crate::telemetry::scrape;
use crate::warm::health;

/// Returns the status and the text that a probe gets.
async fn probed(address: SocketAddr, path: &str) -> (u16, String) {
    let (head, body) = scrape(address, path, "*/*").await;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, String::from_utf8(body).unwrap().trim().to_owned())
}

async fn start(ratio: f64, limit: Duration) -> Io {
    Io::start(|config| {
        config.hit_ratio_at_start = ratio;
        config.start_max = limit;
        config.telemetry.probes_listen = Some("127.0.0.1:0".parse().unwrap());
    })
    .await
}

/// Fetches a row of each chunk.
async fn fetch(io: &Io, projection: &Projection, chunks: u32) {
    let addrs = (0..chunks).map(|fragment| RowAddr::new(fragment, 3)).collect();
    io.client.fetch(projection, addrs, None, soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_node_is_ready_once_its_drives_answer() {
    let tables = folder();
    let uri = table(tables.path(), "hits", 6).await;
    let began = Instant::now();
    let io = start(0.9, Duration::from_secs(60)).await;
    let probes = io.node.probes_addr().unwrap();
    let projection = io.open(&uri, 1, &["text"]).await;
    loop {
        fetch(&io, &projection, 6).await;
        let ready = io.node.is_ready();
        let (status, said) = probed(probes, "/ready").await;
        if ready {
            assert_eq!((status, said.as_str()), (200, "ready"));
            break;
        }
        // The node may have become ready in between.
        assert!(status == 200 || said == "not ready", "{status} {said}");
        assert_eq!(probed(probes, "/live").await, (200, "live".into()));
        assert!(began.elapsed() < Duration::from_secs(40));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(health(&io.node).await, ServingStatus::Serving);
    // The ratio is observed for ten seconds, even if the node was filled sooner.
    assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
    let described = io.describe().await;
    let from_table: u64 = described.cores.iter().map(|core| core.table_rows).sum();
    assert!(described.ready && described.extents == 6 && from_table > 0, "{described:?}");
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_a_ratio_is_bounded() {
    let io = start(1.0, Duration::from_secs(2)).await;
    let probes = io.node.probes_addr().unwrap();
    assert_eq!(health(&io.node).await, ServingStatus::NotServing);
    assert_eq!(probed(probes, "/ready").await, (503, "not ready".into()));
    let patience = Instant::now() + Duration::from_secs(20);
    while health(&io.node).await != ServingStatus::Serving {
        assert!(Instant::now() < patience);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(probed(probes, "/ready").await, (200, "ready".into()));
    // The port for probes does not serve the metrics.
    let elsewhere = (404, "the node's health is at /live and /ready".into());
    assert_eq!(probed(probes, "/metrics").await, elsewhere);
    assert_eq!(io.node.metrics_addr(), None);
    io.stop().await;
}
