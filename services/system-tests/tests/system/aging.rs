//! Tests that no request fails when connections reach their maximum age under load.

use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use client::fetch::Instant;
use connections::Lifetimes;
use futures::future::join_all;
use io_node::IoNode;
use lance::Dataset;

use crate::cluster::{Io, folder, io_config, lake_of, soon};

const ROWS: u32 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn streams_move_to_new_connections_and_no_fetch_fails() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    let ids: ArrayRef = std::sync::Arc::new(Int64Array::from_iter_values(0..ROWS.into()));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(reader, &uri, None).await.unwrap();
    let config = io_config(folder.path());
    // The age is so short that streams must move to new connections many times during the test.
    let age = Duration::from_millis(150);
    let lifetimes = Lifetimes { age, grace: Duration::from_secs(5), ..Default::default() };
    let start =
        move || IoNode::start_with_lifetimes(config.clone(), lake_of(&config), lifetimes).unwrap();
    let io = Io::with(tokio::task::spawn_blocking(start).await.unwrap(), folder);
    io.warm(&uri, 1).await;
    let projection = &io.open(&uri, 1, &["id"]).await;
    let until = Instant::now() + age * 20;
    let callers = (0..16u32).map(|caller| {
        let client = &io.client;
        async move {
            let mut fetches = 0;
            while Instant::now() < until {
                let first = (caller * 61 + fetches * 7) % (ROWS - 10);
                let addrs = (first..first + 10).map(|row| RowAddr::new(0, row)).collect();
                let rows = client.fetch(projection, addrs, None, soon()).await;
                let rows = rows.unwrap_or_else(|fault| panic!("fetch {fetches}: {fault}"));
                let rows = rows.into_rows().unwrap();
                let ids = rows["id"].as_primitive::<Int64Type>().values();
                assert!(ids.iter().zip(first..).all(|(&id, row)| id == i64::from(row)));
                fetches += 1;
            }
            fetches
        }
    });
    let fetches: u32 = join_all(callers).await.into_iter().sum();
    let counters = io.client.counters();
    assert!(fetches > 100 && counters.connections > 10, "{fetches}, {counters:?}");
    assert_eq!(counters.retries, 0, "ending streams answer all their requests");
    io.stop().await;
}
