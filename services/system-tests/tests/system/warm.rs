//! Tests Warm for rows by their positions, and warming before a node is ready.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::{DataType, Field, Schema};
use bytesize::ByteSize;
use client::query::WarmRequest as QueryWarm;
use futures::TryStreamExt;
use io_node::{IoNode, StartWarmConfig};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wire::Reason;
use wire::fetch::{ChunkRange, RowRange, WarmRequest};

use crate::cluster::{Cluster, Io, folder};
use crate::shares::{ROWS_PER_FRAGMENT, table};

fn rows(first: u32, end: u32) -> RowRange {
    RowRange { first: first.into(), end: end.into() }
}

/// Returns a node's gRPC health.
pub async fn health(node: &IoNode) -> ServingStatus {
    let endpoint = format!("http://{}", node.local_addr());
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect().await;
    let request = HealthCheckRequest { service: "bireme.fetch.v1.FetchService".into() };
    let said = HealthClient::new(channel.unwrap()).check(request).await.unwrap();
    said.into_inner().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_chunks_that_hold_the_rows_are_filled_on_both_tiers() {
    let tables = folder();
    let uri = table(tables.path(), "rows", 10).await;
    let path = Path::new(&uri).to_owned();
    let cluster = Cluster::start(3, &[("rows", &path)]).await;
    let warm = async |ranges: Vec<RowRange>| {
        let request = QueryWarm { table: "rows".into(), rows: ranges, ..Default::default() };
        let steps = cluster.client.warm(request).await?.try_collect::<Vec<_>>().await?;
        let last = steps.last().unwrap();
        Ok::<_, wire::Fault>((last.extents_done, last.extents_found))
    };
    let size = ROWS_PER_FRAGMENT;
    // Warm one row of the second chunk, then rows of the third and fourth.
    assert_eq!(warm(vec![rows(size + 7, size + 8)]).await.unwrap(), (1, 0));
    assert_eq!(warm(vec![rows(3 * size - 1, 3 * size + 1)]).await.unwrap(), (2, 0));
    // Ranges are half-open, so the first of these has rows of only one chunk. Overlapping ranges count once.
    assert_eq!(warm(vec![rows(size, 2 * size), rows(size, size + 1)]).await.unwrap(), (1, 1));
    assert_eq!(warm(vec![rows(8 * size, 0)]).await.unwrap(), (2, 0));
    let fault = warm(vec![rows(0, 10 * size + 1)]).await.unwrap_err();
    assert!(fault.reason == Reason::BadArgument && fault.message.contains("5120 rows"), "{fault}");
    assert_eq!(warm(Vec::new()).await.unwrap(), (10, 5));

    // Warm one I/O node directly.
    let io = Io::start(|_| {}).await;
    let request =
        |rows| WarmRequest { table_uri: uri.clone(), version: 1, rows, ..Default::default() };
    let steps = io.client.warm(request(vec![rows(0, 1), rows(9 * size, 0)])).await.unwrap();
    let last = steps.try_collect::<Vec<_>>().await.unwrap().pop().unwrap();
    assert_eq!((last.extents_total, last.extents_done), (2, 2));
    let chunks = vec![ChunkRange { fragment: 0, first: 0, count: 1 }];
    let both = WarmRequest { chunks, ..request(vec![rows(0, 1)]) };
    let fault = io.client.warm(both).await.err().unwrap();
    assert!(fault.message.contains("not both"), "{fault}");
    io.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_once_its_start_is_warm_and_answers_before() {
    let tables = folder();
    let uri = table(tables.path(), "start", 12).await;
    let warm = StartWarmConfig { uri: uri.clone(), version: 0, columns: vec!["text".into()] };
    let io = Io::start(|config| {
        config.warm_at_start = vec![warm.clone()];
        // At this rate, 12 extents of a quarter of a MiB take about three seconds.
        config.fill_rate = ByteSize::mib(1);
    })
    .await;
    assert_eq!(health(&io.node).await, ServingStatus::NotServing);
    let described = io.describe().await;
    assert!(!described.ready && !io.node.is_ready());
    // The node answers requests nevertheless.
    let projection = io.open(&uri, 1, &["text"]).await;
    let addrs = vec![address::RowAddr::new(11, 3)];
    io.client.fetch(&projection, addrs, None, crate::cluster::soon()).await.unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    let mut seen = Vec::new();
    while health(&io.node).await != ServingStatus::Serving {
        seen.extend(io.describe().await.start_warms[0].progress.as_ref().map(|it| it.extents_done));
        assert!(Instant::now() < patience, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen.is_sorted() && seen.iter().any(|done| (1..12).contains(done)), "{seen:?}");
    let described = io.describe().await;
    let [start] = described.start_warms.as_slice() else { panic!("{described:?}") };
    assert!(described.ready && start.done && start.version == 1, "{start:?}");
    assert_eq!(start.progress.as_ref().unwrap().extents_done, 12);
    assert_eq!(described.extents, 12);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_warming_at_the_start_is_bounded_and_warming_goes_on() {
    let tables = folder();
    let uri = tables.path().join("late").to_str().unwrap().to_owned();
    let warm = StartWarmConfig { uri, version: 0, columns: Vec::new() };
    let io = Io::start(|config| {
        config.warm_at_start = vec![warm];
        config.start_max = Duration::from_secs(3);
    })
    .await;
    assert_eq!(health(&io.node).await, ServingStatus::NotServing);
    let patience = Instant::now() + Duration::from_secs(60);
    while health(&io.node).await != ServingStatus::Serving {
        assert!(Instant::now() < patience);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(io.describe().await.extents, 0);
    // Now the table is created. The node tries at least every 30 s to open it.
    table(tables.path(), "late", 3).await;
    let patience = Instant::now() + Duration::from_secs(60);
    while io.describe().await.extents < 3 {
        assert!(Instant::now() < patience);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_several_nodes_warms_its_own_chunks() {
    let tables = folder();
    let uri = table(tables.path(), "mine", 24).await;
    let path = Path::new(&uri).to_owned();
    let cluster = Cluster::start_with(3, &[("mine", &path)], |io, _| {
        let uri = uri.clone();
        io.warm_at_start = vec![StartWarmConfig { uri, version: 1, columns: Vec::new() }];
        io.warm_members = (0..3).map(|number| format!("io-{number}")).collect();
    })
    .await;
    let patience = Instant::now() + Duration::from_secs(30);
    let mut extents = Vec::new();
    for io in &cluster.io {
        while !io.node.is_ready() {
            assert!(Instant::now() < patience);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        extents.push(io.describe().await.extents);
    }
    assert_eq!(extents.iter().sum::<u64>(), 24, "{extents:?}");
    assert!(extents.iter().all(|&extents| extents > 0), "{extents:?}");
    // The query tier places chunks in the same way, so nothing is left to fill.
    let request = QueryWarm { table: "mine".into(), ..Default::default() };
    let steps = cluster.client.warm(request).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    let last = steps.last().unwrap();
    assert_eq!((last.extents_found, last.bytes_written), (24, 0));
    cluster.stop().await;
}

/// Writes `rows` rows of a number and a text, which is one of 50 texts of `text_bytes` bytes, and takes little space in
/// the files. Returns the table's URI.
async fn repeated_texts(folder: &Path, rows: usize, text_bytes: usize) -> String {
    let uri = folder.join(format!("texts-{text_bytes}")).to_str().unwrap().to_owned();
    let texts: Vec<_> = (0..50).map(|text| format!("{text:02}").repeat(text_bytes / 2)).collect();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let texts = StringArray::from_iter_values((0..rows).map(|row| &texts[row % 50]));
    let compressed = [("lance-encoding:compression".to_owned(), "zstd".to_owned())];
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false).with_metadata(compressed.into()),
    ];
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![ids, Arc::new(texts)]).unwrap();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let params = lance::dataset::WriteParams {
        data_storage_version: Some(lance_file::version::LanceFileVersion::V2_2),
        ..Default::default()
    };
    lance::Dataset::write(reader, &uri, Some(params)).await.unwrap();
    uri
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_take_little_space_in_files_are_filled_by_scans_of_bounded_size() {
    const CHUNKS: u64 = 8;
    let tables = folder();
    let io = Io::start(|config| {
        config.fills = 1;
        config.segment = ByteSize::mib(8);
    })
    .await;
    // By the size of the files, all chunks would fit into one scan of 4 MiB. In memory, each is a little longer.
    let uri = repeated_texts(tables.path(), CHUNKS as usize * 16_384, 256).await;
    io.warm(&uri, 1).await;
    let described = io.describe().await;
    assert_eq!(described.extents, CHUNKS);
    assert!(described.scans >= CHUNKS, "{} scans", described.scans);

    // A chunk of all rows has 64 MiB. Reading it stops soon after the length of a segment.
    let uri = repeated_texts(tables.path(), 1024, 64 << 10).await;
    let request = WarmRequest { table_uri: uri, version: 1, ..Default::default() };
    let steps = io.client.warm(request).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    let last = steps.last().unwrap();
    assert_eq!((last.extents_total, last.extents_failed), (1, 1));
    let bytes = last.last_error.split("a chunk of at least ").nth(1).unwrap();
    let bytes: u64 = bytes.split(' ').next().unwrap().parse().unwrap();
    assert!((8 << 20..32 << 20).contains(&bytes), "{}", last.last_error);
    io.stop().await;
}
