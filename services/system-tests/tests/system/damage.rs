//! Tests that rows stay right on faulty, slow, full and small drives.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, RecordBatchIterator,
};
use arrow_schema::{DataType, Field};
use bytesize::ByteSize;
use client::fetch::Instant;
use lance::Dataset;
use lance::dataset::WriteParams;

use ring::sim::{SimConfig, SimDisk, SimFaults};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use wire::fetch::DriveState;

use crate::cluster::{Io, folder, io_config, soon, start_io_again, stop_io, total};

const DIMENSION: usize = 256;

/// The number of rows of a fragment. It is small, so that there are many extents.
const ROWS_PER_FRAGMENT: u32 = 250;

fn addr(id: u32) -> RowAddr {
    RowAddr::new(id / ROWS_PER_FRAGMENT, id % ROWS_PER_FRAGMENT)
}

/// Writes a table. All elements of a row's vector are the row's id. The table exists as long as its folder.
pub async fn table(rows: usize) -> (TempDir, String) {
    let folder = folder();
    let uri = folder.path().join("table").to_str().unwrap().to_owned();
    let values = (0..rows).flat_map(|id| std::iter::repeat_n(id as f32, DIMENSION));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let values = Arc::new(Float32Array::from_iter_values(values));
    let vectors = FixedSizeListArray::new(item, DIMENSION as i32, values, None);
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("vector", Arc::new(vectors))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let max_rows_per_file = ROWS_PER_FRAGMENT as usize;
    let params = WriteParams { max_rows_per_file, ..Default::default() };
    Dataset::write(reader, &uri, Some(params)).await.unwrap();
    (folder, uri)
}

pub async fn check(io: &Io, uri: &str, ids: &[u32]) {
    let projection = io.open(uri, 1, &["vector", "id"]).await;
    let addrs = ids.iter().map(|&id| addr(id)).collect();
    let rows = io.client.fetch(&projection, addrs, None, soon()).await.unwrap().into_rows();
    let rows = rows.unwrap();
    let got = rows["id"].as_primitive::<Int64Type>().values();
    assert!(got.iter().zip(ids).all(|(got, id)| *got == i64::from(*id)));
    let vectors = rows["vector"].as_fixed_size_list().values().as_primitive::<Float32Type>();
    for (vector, &id) in vectors.values().chunks(DIMENSION).zip(ids) {
        assert!(vector.iter().all(|&x| x == id as f32), "row {id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_sectors_are_detected_read_from_the_table_and_filled_again() {
    let (_folder, uri) = table(5000).await;
    let io = Io::start(|_| {}).await;
    io.warm(&uri, 1).await;
    let used = io.describe().await.drives[0].used_bytes;
    // Flip one bit in every tenth sector of the slab, while the node runs.
    let slab = OpenOptions::new().read(true).write(true).open(io.folder.path().join("slab"));
    let slab = slab.unwrap();
    for sector in (0..used / 4096).step_by(10) {
        let mut byte = [0];
        slab.read_exact_at(&mut byte, sector * 4096 + 100).unwrap();
        byte[0] ^= 4;
        slab.write_all_at(&byte, sector * 4096 + 100).unwrap();
    }
    slab.sync_all().unwrap();
    let ids: Vec<u32> = (0..5000).step_by(7).collect();
    for part in ids.chunks(100) {
        check(&io, &uri, part).await;
    }
    let described = io.describe().await;
    assert!(total(&described, |c| c.bad_sectors) > 0);
    assert!(total(&described, |c| c.table_rows) > 0);
    io.warm(&uri, 1).await;
    let before = io.describe().await;
    check(&io, &uri, &ids[..500]).await;
    let after = io.describe().await;
    assert_eq!(total(&before, |c| c.bad_sectors), total(&after, |c| c.bad_sectors), "refilled");
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_smaller_than_the_table_returns_right_rows() {
    const ROWS: u32 = 40_000;
    let (_folder, uri) = table(ROWS as usize).await;
    // 40 MB of vectors do not fit on the drive of 12 MiB, which has three segments.
    let io = Io::start(|config| {
        config.segment = ByteSize::mib(3);
        config.drives[0].size = Some(ByteSize::mib(12));
    })
    .await;
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % ROWS
    };
    let lists: Vec<Vec<u32>> = (0..60).map(|_| (0..50).map(|_| next()).collect()).collect();
    let checks = lists.iter().map(|ids| check(&io, &uri, ids));
    futures::future::join_all(checks).await;
    // Requests do not wait for fills, so the fills may lag behind.
    let deadline = soon();
    let described = loop {
        for ids in &lists {
            check(&io, &uri, ids).await;
        }
        let described = io.describe().await;
        if described.fills_done > described.extents {
            break described;
        }
        assert!(Instant::now() < deadline, "no segment was reclaimed");
    };
    assert!(described.drives[0].used_bytes <= ByteSize::mib(12).as_u64());
    assert_eq!(total(&described, |c| c.bad_sectors), 0);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_requests_do_not_harm_the_node() {
    let (_folder, uri) = table(5000).await;
    let io = Io::start(|_| {}).await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["vector"]).await;
    for round in 0..200u32 {
        let addrs = (0..500).map(|i| addr((i * 7 + round) % 5000)).collect();
        let fetch = io.client.fetch(&projection, addrs, None, soon());
        // Some requests are dropped before they are sent, some while reads are in flight.
        let patience = std::time::Duration::from_micros(u64::from(round) * 10);
        let _ = tokio::time::timeout(patience, fetch).await;
    }
    let ids: Vec<u32> = (0..2000).collect();
    check(&io, &uri, &ids).await;
    for _ in 0..100 {
        let described = io.describe().await;
        if described.cores.iter().all(|c| c.in_flight == 0 && c.queued == 0) {
            return io.stop().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("reads of dropped requests are still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_node_releases_its_drives_whatever_is_in_progress() {
    const BATCHES: u32 = 200;
    let (_cached_folder, cached) = table(1000).await;
    let (_folder, uri) = table(20_000).await;
    // With one table read at a time, most batches wait for their table read when the node is dropped.
    let io = Io::start(|config| config.table_reads = 1).await;
    io.warm(&cached, 1).await;
    // Meanwhile, eight tasks keep requesting cached rows.
    let projection = io.open(&cached, 1, &["vector"]).await;
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let (client, projection) = (io.client.clone(), projection.clone());
            tokio::spawn(async move {
                let addrs = || (0..1000).map(addr).collect();
                while client.fetch(&projection, addrs(), None, soon()).await.is_ok() {}
            })
        })
        .collect();
    let projection = io.open(&uri, 1, &["vector"]).await;
    let asked: Vec<_> = (0..BATCHES)
        .map(|batch| {
            let (client, projection) = (io.client.clone(), projection.clone());
            let addrs = (0..100).map(|i| addr(batch * 100 + i)).collect();
            tokio::spawn(
                async move { client.fetch(&projection, addrs, None, soon()).await.is_ok() },
            )
        })
        .collect();
    while !asked.iter().any(JoinHandle::is_finished) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // The node's client stays connected.
    let Io { node, folder, client: _client } = io;
    tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
    stop_io(start_io_again(io_config(folder.path())).await).await;
    asking.iter().for_each(JoinHandle::abort);
    asked.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_batch_costs_no_read() {
    let (_folder, uri) = table(1000).await;
    let io = Io::start(|_| {}).await;
    io.warm(&uri, 1).await;
    let projection = io.open(&uri, 1, &["vector"]).await;
    let before = total(&io.describe().await, |c| c.drive_reads);
    let late = Instant::now() - std::time::Duration::from_millis(1);
    let fetch = io.client.fetch(&projection, vec![addr(1)], None, late);
    assert_eq!(fetch.await.unwrap_err().reason, wire::Reason::DeadlineExceeded);
    assert_eq!(total(&io.describe().await, |c| c.drive_reads), before);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_silent_drive_are_given_up() {
    let (_folder, uri) = table(3000).await;
    let timeout = std::time::Duration::from_millis(50);
    let (io, disk) = Io::simulated(1, |config| config.read_timeout = timeout).await;
    io.warm(&uri, 1).await;
    check(&io, &uri, &[1, 2, 3]).await;
    disk.hold(true);
    let ids: Vec<u32> = (0..3000).step_by(17).collect();
    check(&io, &uri, &ids).await;
    let late = io.describe().await;
    assert!(total(&late, |c| c.late_reads) > 0 && total(&late, |c| c.table_rows) > 0);
    disk.hold(false);
    // The late data is not used. Later requests are served from the drive again.
    check(&io, &uri, &ids).await;
    let after = io.describe().await;
    assert_eq!(total(&after, |c| c.table_rows), total(&late, |c| c.table_rows));
    assert_eq!(after.drives[0].state(), DriveState::Serving);
    assert_eq!(after.extents_dropped, 0);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_drive_is_retired_and_the_others_take_over() {
    let (_folder, uri) = table(12_000).await;
    let (io, disk) = Io::simulated(2, |_| {}).await;
    let ids: Vec<u32> = (0..12_000).step_by(29).collect();
    for (drive, others) in [(0, DriveState::Serving), (1, DriveState::Retired)] {
        io.warm(&uri, 1).await;
        check(&io, &uri, &ids).await;
        for sector in 0..(64 << 20) / 4096 {
            disk.break_sector(address::DriveNo(drive), address::SectorNo(sector));
        }
        // Each bad extent counts against the drive and is filled again, possibly on the same drive.
        for _ in 0..60 {
            check(&io, &uri, &ids).await;
            let state = io.describe().await.drives[usize::from(drive)].state();
            if state == DriveState::Retired {
                break;
            }
            // Writing a sector repairs it, so make the sectors fail again.
            for sector in 0..(64 << 20) / 4096 {
                disk.break_sector(address::DriveNo(drive), address::SectorNo(sector));
            }
        }
        let described = io.describe().await;
        assert_eq!(described.drives[usize::from(drive)].state(), DriveState::Retired);
        assert_eq!(described.drives[1 - usize::from(drive)].state(), others);
        assert!(described.extents_dropped > 0);
    }
    // Without drives, rows come from the table.
    let before = total(&io.describe().await, |c| c.drive_reads);
    check(&io, &uri, &ids).await;
    let described = io.describe().await;
    assert_eq!((total(&described, |c| c.drive_reads), described.extents), (before, 0));
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drives_that_become_a_hundred_times_slower_are_retired_except_the_last() {
    let (_folder, uri) = table(3000).await;
    let tick = Duration::from_millis(1);
    let drives = vec![64 << 20; 2];
    let disk = SimDisk::new(SimConfig { drives, latency_ticks: 1..=1, tick, ..Default::default() });
    let io = Io::on(&disk, |_| {}).await;
    io.warm(&uri, 1).await;
    let ids: Vec<u32> = (0..3000).step_by(17).collect();
    let states = async |seconds: u64| {
        // Wait until a drive is retired, but at most `seconds`. A drive is retired after 30 seconds of slow reads.
        let until = std::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            check(&io, &uri, &ids).await;
            let described = io.describe().await;
            let states = [0, 1].map(|drive: usize| described.drives[drive].state());
            if states.contains(&DriveState::Retired) || std::time::Instant::now() > until {
                return states;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(states(3).await, [DriveState::Serving; 2]);
    // The delay is shorter than the time after which a read is given up.
    disk.set_latency(100..=110);
    let slow = states(120).await;
    assert!(slow.contains(&DriveState::Retired) && slow.contains(&DriveState::Serving), "{slow:?}");
    assert_eq!(total(&io.describe().await, |c| c.late_reads), 0);
    check(&io, &uri, &ids).await;
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_drive_serves_its_extents() {
    let (_folder, uri) = table(12_000).await;
    let (io, disk) = Io::simulated(1, |_| {}).await;
    let (cached, other): (Vec<u32>, Vec<u32>) = ((0..500).collect(), (6000..6500).collect());
    check(&io, &uri, &cached).await;
    while io.describe().await.fills_running > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    disk.set_faults(SimFaults { is_full: true, ..SimFaults::default() });
    for _ in 0..200 {
        check(&io, &uri, &other).await;
        if io.describe().await.drives[0].state() == DriveState::ReadOnly {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let before = io.describe().await;
    assert_eq!(before.drives[0].state(), DriveState::ReadOnly);
    check(&io, &uri, &cached).await;
    let after = io.describe().await;
    assert_eq!(total(&before, |c| c.table_rows), total(&after, |c| c.table_rows));
    assert!(total(&before, |c| c.drive_reads) < total(&after, |c| c.drive_reads));
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scrubber_finds_lost_data() {
    let (_folder, uri) = table(3000).await;
    let (io, disk) = Io::simulated(1, |config| config.scrub_rate = ByteSize::b(0)).await;
    io.warm(&uri, 1).await;
    let extents = io.describe().await.extents;
    io.stop().await;
    // Flip a bit in each of the first two extents, and make a sector of a third one unreadable.
    let first = 1 << 20;
    for at in [first + 77, first + (300 << 10)] {
        disk.flip_bit(address::DriveNo(0), address::ByteOffset(at), 5);
    }
    disk.break_sector(address::DriveNo(0), address::SectorNo((first + (600 << 10)) / 4096));
    let io = Io::on(&disk, |_| {}).await;
    // The scrubber has begun and may have dropped some extents, so compare the number that recovery found.
    assert_eq!(io.node.recovery().extents as u64, extents);
    for _ in 0..500 {
        if io.describe().await.extents_scrubbed == extents {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let described = io.describe().await;
    assert_eq!((described.extents_scrubbed, described.extents_dropped), (extents, 3));
    assert_eq!(total(&described, |c| c.rows), 0);
    io.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fills_respect_their_rate() {
    let (_folder, uri) = table(4000).await;
    let (io, _) = Io::simulated(1, |config| config.fill_rate = ByteSize::mib(4)).await;
    let began = std::time::Instant::now();
    io.warm(&uri, 1).await;
    // About 4 MiB of vectors lie in 16 extents. A fill waits for the rate before it writes, so nothing waits after the
    // last write. The bound leaves out one more extent, and rounds 4 MiB/s up, as a margin.
    let least = io.describe().await.bytes_filled as f64 / 4.2e6 * 14.0 / 16.0;
    assert!(began.elapsed().as_secs_f64() > least, "{:?} for {least} s", began.elapsed());
    io.stop().await;
}
