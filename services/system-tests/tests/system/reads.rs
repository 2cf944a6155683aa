//! Counts the physical reads that rows cost.

use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use bytesize::ByteSize;
use client::fetch::{Metric, Outcome, Rerank};
use lance::Dataset;
use lance::dataset::WriteParams;
use ring::sim::{SimConfig, SimDisk};

use crate::cluster::{Io, folder, soon, total};

const ROWS: usize = 4000;

/// Writes a table with vectors of 3,072 and of 4,096 bytes, and ten narrow columns.
pub async fn write(uri: &str) {
    let vectors = |dimension: usize| -> ArrayRef {
        let mut builder = FixedSizeListBuilder::new(Float32Builder::new(), dimension as i32);
        for row in 0..ROWS {
            (0..dimension).for_each(|d| builder.values().append_value((row * d % 97) as f32));
            builder.append(true);
        }
        Arc::new(builder.finish())
    };
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("v768".into(), vectors(768)),
        ("v1024".into(), vectors(1024)),
        (
            "text".into(),
            Arc::new(StringArray::from_iter_values((0..ROWS).map(|i| format!("row {i}")))),
        ),
        ("id".into(), Arc::new(Int64Array::from_iter_values(0..ROWS as i64))),
    ];
    for column in 0..8 {
        let values = Int32Array::from_iter_values((0..ROWS as i32).map(|i| i * column));
        columns.push((format!("c{column}"), Arc::new(values)));
    }
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams { max_rows_per_file: 1500, ..Default::default() };
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

/// Returns the addresses of every `step`-th row. To count reads, choose `step` so that no two rows are in the same or
/// in adjacent sectors.
fn scattered(step: usize) -> Vec<RowAddr> {
    (0..ROWS).step_by(step).map(|id| RowAddr::new((id / 1500) as u32, (id % 1500) as u32)).collect()
}

async fn reads(io: &Io) -> (u64, u64) {
    let described = io.describe().await;
    (total(&described, |c| c.drive_reads), total(&described, |c| c.drive_read_bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_costs_one_read_of_one_sector() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|_| {}).await;
    io.warm(&uri, 1).await;
    let narrow = ["c3", "text", "id", "c0", "c7"];
    for (columns, step) in [(&["v768"][..], 2), (&["v1024"], 2), (&["id"], 700), (&narrow, 700)] {
        let projection = io.open(&uri, 1, columns).await;
        let addrs = scattered(step);
        let rows = addrs.len() as u64;
        let before = reads(&io).await;
        let reply = io.client.fetch(&projection, addrs, None, soon()).await.unwrap();
        assert_eq!(u64::from(reply.times().drive_reads), rows, "{columns:?}");
        let after = reads(&io).await;
        assert_eq!(after.0 - before.0, rows, "{columns:?}: one read a row");
        assert_eq!(after.1 - before.1, rows * 4096, "{columns:?}: one sector a read");
    }
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polling_core_returns_the_same_rows_and_stops() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|config| config.idle_poll = Duration::from_secs(1)).await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["id"]).await;
    for id in [3999, 0, 1500] {
        let addr = RowAddr::new(id / 1500, id % 1500);
        let reply = io.client.fetch(&projection, vec![addr], None, soon()).await.unwrap();
        let id: ArrayRef = Arc::new(Int64Array::from(vec![i64::from(id)]));
        assert_eq!(reply.outcome, Outcome::Rows(RecordBatch::try_from_iter([("id", id)]).unwrap()));
        assert_eq!(reply.times().drive_reads, 1);
    }
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_rows_are_read_once_and_neighbours_together() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|_| {}).await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["v1024"]).await;
    let fetch = |addrs: Vec<RowAddr>| io.client.fetch(&projection, addrs, None, soon());
    let same = fetch(vec![RowAddr::new(0, 7); 50]).await.unwrap();
    assert_eq!((same.times().drive_reads, same.times().drive_bytes), (1, 4096));
    let neighbours = (8..16).rev().map(|offset| RowAddr::new(0, offset)).collect();
    let neighbours = fetch(neighbours).await.unwrap();
    assert_eq!((neighbours.times().drive_reads, neighbours.times().drive_bytes), (1, 8 * 4096));
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_being_read_is_not_read_again() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let (drives, tick) = (vec![64 << 20], Duration::from_millis(1));
    let disk = SimDisk::new(SimConfig { drives, latency_ticks: 1..=1, tick, ..Default::default() });
    let io = Io::on(&disk, |config| config.cores = 1).await;
    io.warm(&uri, 1).await;
    disk.set_latency(500..=500);
    let projection = io.open(&uri, 1, &["v1024"]).await;
    let fetch = |row| io.client.fetch(&projection, vec![RowAddr::new(0, row)], None, soon());
    let later = async |row| {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fetch(row).await
    };
    let (first, second, other) = tokio::join!(fetch(7), later(7), later(9));
    let (first, second, other) = (first.unwrap(), second.unwrap(), other.unwrap());
    assert_eq!(first.outcome, second.outcome);
    assert_ne!(first.outcome, other.outcome);
    let read = [&first, &second, &other].map(|reply| reply.times().drive_reads);
    assert_eq!(read, [1, 0, 1]);
    // Rows 20 to 23 are one read, which row 22 joins.
    let rows = (20..24).map(|row| RowAddr::new(0, row)).collect();
    let together = io.client.fetch(&projection, rows, None, soon());
    let (together, joined) = tokio::join!(together, later(22));
    let read = [together.unwrap(), joined.unwrap()].map(|reply| reply.times().drive_reads);
    assert_eq!(read, [1, 0]);
    // A read whose caller has gone is not joined.
    let gone = tokio::time::timeout(Duration::from_millis(100), fetch(11)).await;
    assert!(gone.is_err());
    assert_eq!(later(11).await.unwrap().times().drive_reads, 1);
    // The read has ended, so the row is read again.
    assert_eq!(fetch(7).await.unwrap().times().drive_reads, 1);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ram_tier_answers_the_second_time() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|config| {
        config.ram_tier = ByteSize::mib(64);
        config.cores = 1;
    })
    .await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["v1024", "text"]).await;
    let addrs = scattered(10);
    let first = io.client.fetch(&projection, addrs.clone(), None, soon()).await.unwrap();
    let second = io.client.fetch(&projection, addrs, None, soon()).await.unwrap();
    assert_eq!(first.outcome, second.outcome);
    assert!(first.times().drive_reads > 0);
    assert_eq!(second.times().drive_reads, 0);
    assert!(second.times().ram_hits > 0);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_follow_each_other_are_those_that_were_written_also_from_ram() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|config| {
        config.ram_tier = ByteSize::mib(64);
        config.cores = 1;
    })
    .await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["text", "id"]).await;
    // Rows of two fragments, then repeated and earlier ones.
    let ids: Vec<u32> = (1300..1700).chain([1699, 1699, 3, 1500, 4]).collect();
    let addrs: Vec<_> = ids.iter().map(|id| RowAddr::new(id / 1500, id % 1500)).collect();
    let texts = StringArray::from_iter_values(ids.iter().map(|id| format!("row {id}")));
    let numbers = Int64Array::from_iter_values(ids.iter().map(|&id| i64::from(id)));
    let columns: [(_, ArrayRef); 2] = [("text", Arc::new(texts)), ("id", Arc::new(numbers))];
    let expected = Outcome::Rows(RecordBatch::try_from_iter(columns).unwrap());
    for ram_hits in [0, ids.len()] {
        let reply = io.client.fetch(&projection, addrs.clone(), None, soon()).await.unwrap();
        assert_eq!(reply.outcome, expected);
        assert_eq!(reply.times().ram_hits as usize, ram_hits);
    }
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rerank_on_the_node_equals_brute_force_over_the_batch() {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    write(&uri).await;
    let io = Io::start(|_| {}).await;
    let addrs = scattered(9);
    let query: Vec<f32> = (0..768).map(|d| (d % 13) as f32).collect();
    let distance = |addr: &RowAddr| -> f64 {
        let row = addr.fragment() as usize * 1500 + addr.offset() as usize;
        (0..768).map(|d| ((row * d % 97) as f64 - (d % 13) as f64).powi(2)).sum()
    };
    let mut expected: Vec<_> = addrs.iter().map(|a| (distance(a), *a)).collect();
    expected.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for warm in [false, true] {
        if warm {
            io.warm(&uri, 1).await;
        }
        let projection = io.open(&uri, 1, &["v768"]).await;
        let rerank = Rerank::new(&query, Metric::L2, 20);
        let reply =
            io.client.fetch(&projection, addrs.clone(), Some(rerank), soon()).await.unwrap();
        let near = reply.into_neighbors().unwrap();
        assert_eq!(near.len(), 20);
        for ((addr, got), (wanted, expected_addr)) in near.iter().zip(&expected) {
            assert!((f64::from(*got) - wanted).abs() <= wanted * 1e-5, "warm {warm}");
            assert_eq!(addr, expected_addr, "warm {warm}");
        }
    }
    io.stop().await;
}
