//! Tests writes, and that reads have priority over them.

use ring::{OpenOptions, Ring, SlabFile, WriteError};

use crate::bed::{Collector, D0, TestBed, at, expected, filled, on_each_engine, small};

on_each_engine! {
    written_bytes_are_read_back with small();
    many_writes_and_reads_together with small();
    drain_waits_for_everything with small();
    writes_go_one_at_a_time_after_a_read with small();
}

async fn written_bytes_are_read_back(bed: TestBed) {
    let buf = bed.ring.write(D0, at(100), filled(1, 256)).await.unwrap();
    assert_eq!(buf[..], filled(1, 256)[..], "the same buffer");
    bed.ring.fsync(D0).await.unwrap();
    let (collector, sink) = Collector::new();
    bed.ring.read(&sink, D0, at(98), 16384, 98).unwrap();
    collector.outcomes(1).await;
    let got = collector.got.borrow()[&98].clone().unwrap();
    assert_eq!(got[..8192], expected(98, 8192));
    assert_eq!(got[8192..], [1; 8192]);
    let stats = bed.ring.stats();
    assert_eq!((stats.writes_completed, stats.write_bytes), (1, 256 * 4096));
    assert_eq!(stats.fsyncs_completed, 1);
}

async fn many_writes_and_reads_together(bed: TestBed) {
    let (collector, sink) = Collector::new();
    let writes: Vec<_> =
        (0..50).map(|n| bed.ring.write(D0, at(500 + n * 10), filled(n as u8, 10))).collect();
    for tag in 0..400 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(400).await;
    for write in writes {
        write.await.unwrap();
    }
    assert!(bed.ring.stats().in_flight_max <= 20);
    for n in 0..50 {
        let back = bed.ring.read_owned(D0, at(500 + n * 10), filled(99, 10)).await.unwrap();
        assert_eq!(back[..], filled(n as u8, 10)[..]);
    }
}

async fn writes_go_one_at_a_time_after_a_read(bed: TestBed) {
    let (collector, sink) = Collector::new();
    bed.ring.read(&sink, D0, at(0), 4096, 0).unwrap();
    collector.sectors(1).await;
    let write_forty = async || {
        let writes: Vec<_> =
            (0..40).map(|n| bed.ring.write(D0, at(500 + n), filled(n as u8, 1))).collect();
        for write in writes {
            write.await.unwrap();
        }
    };
    for _ in 0..6 {
        write_forty().await;
    }
    assert_eq!(bed.ring.stats().in_flight_max, 1);
    for _ in 0..2 {
        write_forty().await;
    }
    assert_eq!(bed.ring.stats().in_flight_max, u64::from(bed.config.transfers_in_flight_max));
}

async fn drain_waits_for_everything(bed: TestBed) {
    let (collector, sink) = Collector::new();
    for tag in 0..100 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    let writes: Vec<_> = (0..20).map(|n| bed.ring.write(D0, at(900 + n), filled(1, 1))).collect();
    tokio::join!(bed.ring.drain(), bed.ring.drain());
    collector.sectors(100).await;
    assert_eq!(bed.ring.stats().writes_completed, 20);
    assert_eq!(bed.ring.stats().in_flight, 0);
    drop(writes);
    bed.ring.drain().await;
}

#[test]
fn auto_chooses_the_best_engine() {
    crate::bed::run(crate::bed::TestEngine::Pread, small(), async |bed: TestBed| {
        let config = ring::RingConfig { engine: ring::Engine::Auto, ..small() };
        let ring = Ring::start(&config, &bed.files).unwrap();
        match (ring::probe(), &ring.describe().engine) {
            (Ok(support), ring::EngineInUse::IoUring { task_run, .. }) => {
                assert_eq!(support.task_run, *task_run);
            }
            (Err(why), ring::EngineInUse::Pread { instead_of_io_uring, .. }) => {
                assert_eq!(instead_of_io_uring.as_ref(), Some(&why));
            }
            (_, engine) => panic!("{engine:?}"),
        }
        let back = ring.read_owned(D0, at(3), filled(0, 1)).await.unwrap();
        assert_eq!(back[..], expected(3, 4096));
    });
}

#[test]
fn a_read_only_slab_refuses_writes() {
    crate::bed::run(crate::bed::TestEngine::Pread, small(), async |bed: TestBed| {
        let path = bed.files[0].path().to_path_buf();
        let TestBed { ring, files, config, folder: _folder } = bed;
        drop((ring, files));
        let options = OpenOptions { read_only: true, direct: ring::Direct::Prefer, size: None };
        let ring = Ring::start(&config, &[SlabFile::open(path, options).unwrap()]).unwrap();
        let error = ring.write(D0, at(0), filled(1, 1)).await.unwrap_err();
        assert_eq!(error.error, WriteError::ReadOnly { drive: D0 });
    });
}
