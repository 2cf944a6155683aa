//! Tests that a node is warmed before its gRPC health service reports `SERVING`, which is what a load balancer checks.

use std::time::{Duration, Instant};

use client::fetch::{FetchClient, FetchOptions};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::io_process::IoProcess;
use super::{folder, run, sample, text};

const SERVICE: &str = "bireme.fetch.v1.FetchService";

async fn health(io: &IoProcess, service: &str) -> ServingStatus {
    let endpoint = tonic::transport::Endpoint::from_shared(io.endpoint.clone()).unwrap();
    let request = HealthCheckRequest { service: service.into() };
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    client.check(request).await.unwrap().into_inner().status()
}

#[test]
fn a_node_is_ready_once_it_has_warmed() {
    let folder = folder();
    let table = folder.path().join("words");
    run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    let config = folder.path().join("io.toml");
    let uri = text(&table);
    // The fill rate is so low that the test can observe the node before it is ready.
    let settings = format!(
        "fill_rate = \"2MiB\"\nstart_max = \"50s\"\n[[warm_at_start]]\nuri = \"{uri}\"\n\
         [[shares]]\nuri = \"{uri}\"\nminimum = \"16MiB\"\n"
    );
    std::fs::write(&config, settings).unwrap();
    let drive = format!("{}:128MiB", text(&folder.path().join("slab")));
    let settings = [("CONFIG", text(&config)), ("SEGMENT", "16MiB")];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut before, mut extents) = (None, 0);
    for start in 0..2 {
        let mut io = IoProcess::start(&drive, &settings);
        runtime.block_on(async {
            let first = health(&io, SERVICE).await;
            before.get_or_insert(first);
            // The process is healthy, even if its service is not ready.
            assert_eq!(health(&io, "").await, ServingStatus::Serving);
            let patience = Instant::now() + Duration::from_secs(60);
            while health(&io, SERVICE).await != ServingStatus::Serving {
                assert!(Instant::now() < patience);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let endpoint = io.endpoint.parse().unwrap();
            let client = FetchClient::new(endpoint, FetchOptions::default()).unwrap();
            let described = client.describe(Duration::from_secs(10)).await.unwrap();
            let progress = described.start_warms[0].progress.clone().unwrap();
            assert!(described.ready);
            assert_eq!(progress.extents_done, progress.extents_total, "{progress:?}");
            assert!(described.extents > 0);
            let table = &described.tables[0];
            assert!(table.held_bytes == table.bytes && table.bytes > 0, "{table:?}");
            // After a restart the extents are found, because a node that is stopped records them first.
            assert!(start == 0 || progress.extents_found > 0, "{progress:?}");
            extents = described.extents;
        });
        io.stop();
    }
    assert_eq!(before, Some(ServingStatus::NotServing), "{extents} extents were filled at once");
}
