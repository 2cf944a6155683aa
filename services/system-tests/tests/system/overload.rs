//! Tests overload: a node refuses requests that it can't hold or finish in time, and gives the reason. Every request
//! gets an answer.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
};
use arrow_schema::{DataType, Field};
use bytesize::ByteSize;
use client::fetch::{FetchClient, FetchContext, FetchOptions, Instant, Priority};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use lance::Dataset;
use wire::Reason;
use wire::fetch::{WarmProgress, WarmRequest};

use crate::cluster::{Cluster, Io, endpoint, folder, soon, total};

const ROWS: usize = 4000;

async fn write(uri: &str) {
    write_rows(uri, ROWS).await;
}

async fn write_rows(uri: &str, rows: usize) {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let values = Float32Array::from_iter_values((0..rows * 512).map(|x| x as f32));
    let vectors = FixedSizeListArray::new(item, 512, Arc::new(values), None);
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("vector", Arc::new(vectors))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(reader, uri, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_beyond_the_memory_limit_are_shed_and_the_others_are_right() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|config| {
        config.traffic_memory = ByteSize::mib(5);
        config.cores = 1;
    })
    .await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["vector", "id"]).await;
    // Each of the client's streams opens the projection when it first needs it. The projection stays open.
    let one = || io.client.fetch(&projection, vec![RowAddr::new(0, 0)], None, soon());
    for done in join_all((0..8).map(|_| one())).await {
        done.unwrap();
    }
    let idle = total(&io.describe().await, |core| core.reply_bytes);
    // Request 40 replies of a megabyte each at the same time.
    let fetches = (0..40u32).map(|first| {
        let addrs = (0..500).map(|row| RowAddr::new(0, first + row * 7)).collect();
        let fetch = io.client.fetch(&projection, addrs, None, soon());
        async move { (first, fetch.await) }
    });
    let (mut served, mut shed) = (0, 0);
    for (first, outcome) in join_all(fetches).await {
        match outcome {
            Ok(reply) => {
                served += 1;
                let rows = reply.into_rows().unwrap();
                let ids = rows["id"].as_primitive::<Int64Type>().values();
                let expected = |row: usize| i64::from(first) + row as i64 * 7;
                assert!(ids.iter().enumerate().all(|(row, &id)| id == expected(row)));
            }
            Err(fault) => {
                shed += 1;
                assert_eq!(fault.reason, Reason::Overloaded, "{fault}");
            }
        }
    }
    println!("{served} served, {shed} shed");
    assert!(served > 0 && shed > 0);
    let described = io.describe().await;
    assert_eq!(total(&described, |c| c.shed), shed);
    assert_eq!(total(&described, |c| c.reply_bytes), idle, "all memory is given back");
    // A reply that is larger than the memory limit is served when no other reply is under way.
    let addrs = (0..ROWS as u32).map(|row| RowAddr::new(0, row)).collect();
    let large = io.client.fetch(&projection, addrs, None, soon()).await.unwrap();
    assert_eq!(large.into_rows().unwrap().num_rows(), ROWS);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_would_wait_past_its_deadline_is_refused_at_once() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|config| {
        config.cores = 1;
        config.slots = 8;
        config.credit_rows = 1 << 20;
    })
    .await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["id"]).await;
    let row = |n: u32| RowAddr::new(0, n * 997 % ROWS as u32);
    // Request more reads than the core can have in flight.
    let patient = Instant::now() + std::time::Duration::from_secs(3600);
    let long = (0..40u32).map(|batch| {
        let addrs = (0..4000).map(|n| row(batch * 4000 + n)).collect();
        io.client.fetch(&projection, addrs, None, patient)
    });
    let mut long: FuturesUnordered<_> = long.collect();
    let mut in_time = 0u32;
    let refused = loop {
        let at = Instant::now();
        let hurried = io.client.fetch(&projection, vec![row(in_time)], None, at + HURRY);
        let mut hurried = std::pin::pin!(hurried);
        let outcome = tokio::select! {
            biased;
            outcome = &mut hurried => outcome,
            Some(reply) = long.next() => {
                assert_eq!(reply.unwrap().into_rows().unwrap().num_rows(), 4000);
                in_time += 1;
                continue;
            }
            else => break None,
        };
        match outcome {
            Ok(_) => {}
            Err(fault) if fault.reason == Reason::Overloaded => break Some(fault),
            // The node admitted the batch, because it does not yet know how long its queued reads take.
            Err(fault) => assert_eq!(fault.reason, Reason::DeadlineExceeded, "{fault}"),
        }
    };
    let refused = refused.expect("no batch was refused");
    assert!(refused.message.contains("too long for this batch's deadline"), "{refused}");
    while let Some(reply) = long.next().await {
        assert_eq!(reply.unwrap().into_rows().unwrap().num_rows(), 4000);
        in_time += 1;
    }
    assert_eq!(in_time, 40, "admitted batches are answered");
    drop(long);
    io.stop().await;
}

/// The time from a batch to its deadline, for batches that arrive while reads are queued. It is shorter than the time
/// that these reads take.
const HURRY: std::time::Duration = std::time::Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn interactive_work_goes_before_earlier_batch_work() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let (io, disk) = Io::simulated(1, |config| {
        config.cores = 1;
        config.slots = 8;
        // The drive answers no read until the test allows it.
        config.read_timeout = std::time::Duration::from_secs(600);
    })
    .await;
    io.warm(&uri, 1).await;
    // Send all fetches on one stream, so that they arrive in this order.
    let options = FetchOptions { streams: 1, ..Default::default() };
    let client = FetchClient::new(endpoint(io.node.local_addr()), options).unwrap();
    let projection = io.open(&uri, 1, &["vector"]).await;
    disk.hold(true);
    let (client, projection) = (&client, &projection);
    let fetch = |first: u32, rows: u32, priority| {
        // The rows of 2 KiB are three apart, so that a read serves at most two of them.
        let addrs = (0..rows).map(|n| RowAddr::new(0, (first + n) * 3)).collect();
        let context = FetchContext { priority, ..FetchContext::from(soon()) };
        async move { (priority, client.fetch(projection, addrs, None, context).await.unwrap()) }
    };
    let mut under_way = FuturesUnordered::new();
    (0..10).for_each(|n| under_way.push(fetch(n * 100, 100, Priority::Batch)));
    under_way.push(fetch(1000, 20, Priority::Interactive));
    let queued = async {
        while total(&io.describe().await, |core| core.queued.into()) < 1000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = queued => {}
        _ = under_way.next() => panic!("the drive is held"),
    }
    disk.hold(false);
    let mut order = Vec::new();
    while let Some((priority, reply)) = under_way.next().await {
        assert!(reply.into_rows().unwrap().num_rows() >= 20);
        order.push(priority);
    }
    assert_eq!(order.len(), 11);
    let interactive = order.iter().position(|&it| it == Priority::Interactive).unwrap();
    assert!(interactive <= 1, "{order:?}");
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_respects_its_rate() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write_rows(&uri, 16_000).await;
    let io = Io::start(|config| config.fills = 1).await;
    let began = Instant::now();
    let rate = 16 << 20;
    let request =
        WarmRequest { table_uri: uri, version: 1, bytes_per_s: rate, ..Default::default() };
    let mut steps = io.client.warm(request).await.unwrap();
    let mut last = WarmProgress::default();
    while let Some(step) = steps.next().await {
        last = step.unwrap();
    }
    assert!(last.extents_done == last.extents_total && last.extents_failed == 0, "{last:?}");
    // A fill counts towards the rate only when it ends, and more fills are requested before that. So the last fills
    // delay nothing. The bound leaves out five extents for them.
    let counted = last.bytes_written * (last.extents_total - 5) / last.extents_total;
    let least = std::time::Duration::from_secs_f64(counted as f64 / rate as f64);
    assert!(began.elapsed() >= least, "{:?} of {least:?} for {last:?}", began.elapsed());
    assert!(least.as_millis() >= 500, "{least:?}");
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_small_requests_on_one_connection_is_answered() {
    let cluster = Cluster::start_with(1, &[], |_, query| {
        query.cores = 1;
        query.memory = ByteSize::mib(512);
        query.index_cache = ByteSize::mib(64);
        query.key_index = ByteSize::mib(16);
    })
    .await;
    for _ in 0..5 {
        for answer in join_all((0..2000).map(|_| cluster.client.tables())).await {
            assert_eq!(answer.unwrap().len(), 0);
        }
    }
    cluster.stop().await;
}
