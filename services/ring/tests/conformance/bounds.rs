//! Requests and configurations that a ring refuses.

use address::{ByteOffset, DriveNo};
use ring::{ReadError, Ring, RingConfig, StartError, WriteError};

use crate::bed::{Collector, D0, SECTORS, TestBed, at, filled, on_each_engine, small};

on_each_engine! {
    invalid_ranges_are_refused with small();
    a_full_read_queue_refuses_reads with RingConfig { queue_max: 20, ..small() };
    reads_of_dropped_sinks_make_room with RingConfig { queue_max: 20, ..small() };
    a_full_transfer_queue_refuses_transfers with RingConfig { transfer_queue_max: 3, ..small() };
    reads_past_the_end_of_a_truncated_file_fail with small();
    invalid_starts_are_refused with small();
}

async fn invalid_ranges_are_refused(bed: TestBed) {
    let (collector, sink) = Collector::new();
    let end = SECTORS * 4096;
    let read = |offset, len| bed.ring.read(&sink, D0, ByteOffset(offset), len, 0).unwrap_err();
    for (offset, len) in [(1, 4096), (0, 4095), (0, 0), (512, 512)] {
        let offset_was = ByteOffset(offset);
        assert_eq!(read(offset, len), ReadError::Unaligned { drive: D0, offset: offset_was, len });
    }
    assert_eq!(read(0, 16384 + 4096), ReadError::TooLong { len: 20480, max: 16384 });
    for (offset, len) in [(end, 4096), (end - 4096, 8192), (u64::MAX - 4095, 4096)] {
        let offset_was = ByteOffset(offset);
        let past = ReadError::PastEnd { drive: D0, offset: offset_was, len, end };
        assert_eq!(read(offset, len), past);
    }
    let nowhere = bed.ring.read(&sink, DriveNo(1), at(0), 4096, 0).unwrap_err();
    assert_eq!(nowhere, ReadError::NoSuchDrive { drive: DriveNo(1) });

    let error = bed.ring.write(D0, ByteOffset(12), filled(1, 1)).await.unwrap_err();
    assert!(matches!(error.error, WriteError::Unaligned { .. }));
    assert_eq!(error.buf.len(), 4096);
    let error = bed.ring.write(D0, at(SECTORS - 1), filled(1, 2)).await.unwrap_err();
    assert!(matches!(error.error, WriteError::PastEnd { .. }), "{error}");
    let error = bed.ring.fsync(DriveNo(9)).await.unwrap_err();
    assert_eq!(error, WriteError::NoSuchDrive { drive: DriveNo(9) });

    bed.ring.drain().await;
    assert_eq!(bed.ring.stats().submits, 0);
    collector.outcomes(0).await;
    bed.ring.read(&sink, D0, at(SECTORS - 4), 16384, SECTORS - 4).unwrap();
    collector.sectors(1).await;
}

async fn a_full_read_queue_refuses_reads(bed: TestBed) {
    let (collector, sink) = Collector::new();
    let mut refused = 0;
    for tag in 0..60 {
        match bed.ring.read(&sink, D0, at(tag), 4096, tag) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, ReadError::Full { queue_max: 20 });
                refused += 1;
            }
        }
    }
    // The first 16 reads fill the slots and are submitted at once; then 20 wait.
    assert_eq!((refused, bed.ring.stats().reads_refused), (24, 24));
    collector.sectors(36).await;
    assert_eq!(bed.ring.stats().queue_len_max, 20);
    bed.ring.read(&sink, D0, at(900), 4096, 900).unwrap();
    collector.sectors(37).await;
}

async fn reads_of_dropped_sinks_make_room(bed: TestBed) {
    let (collector, sink) = Collector::new();
    let (_, gone) = Collector::new();
    for tag in 0..36 {
        bed.ring.read(if tag < 16 { &sink } else { &gone }, D0, at(tag), 4096, tag).unwrap();
    }
    assert!(bed.ring.read(&sink, D0, at(50), 4096, 50).is_err());
    bed.ring.drain().await;
    let (_, fill) = Collector::new();
    for tag in 0..36 {
        bed.ring.read(if tag < 16 { &fill } else { &gone }, D0, at(tag), 4096, tag).unwrap();
    }
    drop(gone);
    bed.ring.read(&sink, D0, at(50), 4096, 50).unwrap();
    collector.sectors(17).await;
    assert_eq!(bed.ring.stats().reads_discarded, 20);
}

async fn a_full_transfer_queue_refuses_transfers(bed: TestBed) {
    let writes: Vec<_> =
        (0..5).map(|number| bed.ring.write(D0, at(number), filled(1, 1))).collect();
    let mut outcomes = Vec::new();
    for write in writes {
        outcomes.push(write.await.map(drop).map_err(|returned| returned.error));
    }
    let full = Err(WriteError::Full { queue_max: 3 });
    assert_eq!(outcomes, [Ok(()), Ok(()), Ok(()), full, full]);
}

async fn reads_past_the_end_of_a_truncated_file_fail(bed: TestBed) {
    let path = bed.files[0].path();
    if !path.exists() {
        return; // a simulated drive can't shrink
    }
    std::fs::File::options().write(true).open(path).unwrap().set_len(10 * 4096).unwrap();
    let (collector, sink) = Collector::new();
    bed.ring.read(&sink, D0, at(8), 16384, 1).unwrap();
    bed.ring.read(&sink, D0, at(500), 4096, 2).unwrap();
    collector.outcomes(2).await;
    let end = SECTORS * 4096;
    let past = |sector, len| Err(ReadError::PastEnd { drive: D0, offset: at(sector), len, end });
    assert_eq!(
        collector.got.borrow()[&1],
        past(8, 16384),
        "a read past the end must not return zeros"
    );
    assert_eq!(collector.got.borrow()[&2], past(500, 4096));
}

async fn invalid_starts_are_refused(bed: TestBed) {
    let start = |config: &RingConfig| Ring::start(config, &bed.files).map(drop);
    assert!(matches!(start(&RingConfig { slots: 0, ..small() }), Err(StartError::Config(_))));
    assert!(matches!(Ring::start(&bed.config, &[]).map(drop), Err(StartError::Drives(0))));
    let other = ring::sim::SimDisk::new(ring::sim::SimConfig::default());
    let mixed = [bed.files[0].clone(), other.slabs()[0].clone()];
    let mixed = Ring::start(&bed.config, &mixed).map(drop);
    assert!(matches!(mixed, Err(StartError::WrongMedium { .. })));
    let (files, config) = (bed.files.clone(), bed.config.clone());
    let elsewhere = std::thread::spawn(move || Ring::start(&config, &files).map(drop));
    assert!(matches!(elsewhere.join().unwrap(), Err(StartError::Runtime)));
    let text = bed.ring.describe().to_string();
    assert!(text.contains("16 slots of 16384 bytes, 1 drive"), "{text}");
    eprintln!("{text}");
}
