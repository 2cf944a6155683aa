//! Tests rings over several drives.

use address::{ByteOffset, DriveNo};
use ring::sim::{SimConfig, SimDisk};
use ring::{Direct, Engine, OpenOptions, Ring, RingConfig, SlabFile, WriteError};

use crate::bed::{
    Collector, D0, TestBed, TestEngine, at, contents, expected, filled, on_each_engine, run, small,
};

const D1: DriveNo = DriveNo(1);

on_each_engine! {
    each_drive_keeps_its_own_bytes with small();
    drives_on_one_device_share_a_transfer_limit with small();
}

/// Starts a ring over two drives with the contents of the test bed's drive: two files in one folder, or two simulated
/// drives. Also returns whether the two drives are on one device.
fn two_drives(bed: &TestBed) -> (Ring, bool) {
    let (mut files, mut config) = (bed.files.clone(), bed.config.clone());
    if let Some(folder) = &bed.folder {
        let path = folder.path().join("another");
        std::fs::write(&path, contents()).unwrap();
        let options = OpenOptions { direct: Direct::Prefer, ..Default::default() };
        files.push(SlabFile::open(path, options).unwrap());
        (Ring::start(&config, &files).unwrap(), true)
    } else {
        let disk = two_simulated(SimConfig::default());
        config.engine = Engine::Simulated(disk.clone());
        (Ring::start(&config, &disk.slabs()).unwrap(), false)
    }
}

fn two_simulated(config: SimConfig) -> SimDisk {
    let bytes = contents();
    let drives = vec![bytes.len() as u64; 2];
    let disk = SimDisk::new(SimConfig { drives, ..config });
    [D0, D1].iter().for_each(|&drive| disk.put(drive, ByteOffset(0), &bytes));
    disk
}

async fn each_drive_keeps_its_own_bytes(bed: TestBed) {
    let (ring, _) = two_drives(&bed);
    let (collector, sink) = Collector::new();
    let write = |n: u64, drive: DriveNo| {
        ring.write(drive, at(500 + n), filled((2 * n) as u8 + drive.0 as u8, 1))
    };
    let writes: Vec<_> = (0..100).flat_map(|n| [write(n, D0), write(n, D1)]).collect();
    for tag in 0..200 {
        let drive = DriveNo((tag % 2) as u16);
        ring.read(&sink, drive, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(200).await;
    for write in writes {
        write.await.unwrap();
    }
    for drive in [D0, D1] {
        ring.fsync(drive).await.unwrap();
        let back = ring.read_owned(drive, at(499), filled(99, 102)).await.unwrap();
        assert_eq!(
            (&back[..4096], &back[101 * 4096..]),
            (&*expected(499, 4096), &*expected(600, 4096))
        );
        for (n, sector) in back[4096..].chunks(4096).take(100).enumerate() {
            assert_eq!(sector, &*filled((2 * n) as u8 + drive.0 as u8, 1));
        }
    }
}

async fn drives_on_one_device_share_a_transfer_limit(bed: TestBed) {
    let (ring, is_one_device) = two_drives(&bed);
    let (collector, sink) = Collector::new();
    ring.read(&sink, D1, at(7), 4096, 7).unwrap();
    collector.sectors(1).await;
    let writes: Vec<_> = (0..40).map(|n| ring.write(D0, at(500 + n), filled(1, 1))).collect();
    for write in writes {
        write.await.unwrap();
    }
    // Simulated drives are on devices of their own.
    assert_eq!(ring.stats().in_flight_max, if is_one_device { 1 } else { 4 });
    assert_eq!(ring.describe().transfers_in_flight_max, [4, 4]);
}

/// Runs a test on a ring over two simulated drives.
fn on_two(config: RingConfig, depth: u32, test: impl AsyncFnOnce(Ring, SimDisk)) {
    run(TestEngine::Simulated, small(), async |_| {
        let disk = two_simulated(SimConfig { queue_depth: depth, ..Default::default() });
        let engine = Engine::Simulated(disk.clone());
        let ring = Ring::start(&RingConfig { engine, ..config }, &disk.slabs()).unwrap();
        test(ring, disk).await;
    });
}

#[test]
fn a_hung_drive_blocks_only_its_own_transfers() {
    on_two(RingConfig { transfer_queue_max: 50, ..small() }, 128, async |ring, disk| {
        disk.hang(D0, true);
        let hung: Vec<_> = (0..50).map(|n| ring.write(D0, at(n), filled(1, 1))).collect();
        let refused = ring.fsync(D0).await.unwrap_err();
        assert_eq!(refused, WriteError::Full { queue_max: 50 });

        let (collector, sink) = Collector::new();
        for round in 0..10 {
            let writes: Vec<_> =
                (0..30).map(|n| ring.write(D1, at(500 + n), filled(round, 1))).collect();
            for write in writes {
                write.await.unwrap();
            }
            ring.fsync(D1).await.unwrap();
            let back = ring.read_owned(D1, at(500), filled(99, 30)).await.unwrap();
            assert_eq!(back[..], filled(round, 30)[..]);
            let tag = u64::from(round);
            ring.read(&sink, D1, at(tag), 4096, tag).unwrap();
            collector.sectors(usize::from(round) + 1).await;
        }
        let stats = ring.stats();
        assert_eq!(
            (stats.writes_completed, stats.in_flight, stats.transfer_queue_len),
            (300, 4, 46)
        );

        disk.hang(D0, false);
        for write in hung {
            write.await.unwrap();
        }
        assert_eq!(disk.contents(D0)[..50 * 4096], filled(1, 50)[..]);
    });
}

#[test]
fn a_read_of_one_drive_does_not_limit_anothers_transfers() {
    on_two(small(), 128, async |ring, disk| {
        let (collector, sink) = Collector::new();
        ring.read(&sink, D0, at(3), 4096, 3).unwrap();
        collector.sectors(1).await;
        disk.hold(true);
        let _writes = [D0, D1].map(|drive| {
            let write = |n: u64| ring.write(drive, at(500 + n), filled(1, 1));
            (0..10).map(write).collect::<Vec<_>>()
        });
        ring.submit();
        assert_eq!(disk.in_flight(), 1 + 4);
        disk.hold(false);
        ring.drain().await;
        assert_eq!(ring.stats().writes_completed, 20);
    });
}

#[test]
fn a_shallow_device_has_fewer_transfers() {
    for (depth, rings, most) in [(128, 1, 4), (64, 8, 2), (16, 4, 1), (16, 64, 1), (64, 4, 4)] {
        on_two(RingConfig { rings, ..small() }, depth, async |ring, disk| {
            let description = ring.describe();
            assert_eq!(
                description.transfers_in_flight_max, [most; 2],
                "depth {depth}, {rings} rings"
            );
            let text = description.to_string();
            assert!(text.ends_with(&format!("2 drives, {most} transfers each")), "{text}");
            disk.hold(true);
            let _writes: Vec<_> =
                (0..20).map(|n| ring.write(DriveNo(n % 2), at(n.into()), filled(1, 1))).collect();
            ring.submit();
            assert_eq!(disk.in_flight(), 2 * most as usize);
        });
    }
}
