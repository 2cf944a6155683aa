//! Tests that need a simulated disk.

use address::{ByteOffset, SectorNo};
use ring::sim::{PhysicalRead, SimConfig, SimDisk, SimFaults};
use ring::{DriveFault, Engine, ReadError, Ring, RingConfig, WriteError};

use crate::bed::{Collector, D0, TestBed, TestEngine, at, expected, filled, run, small};

fn on_sim(test: impl AsyncFnOnce(TestBed)) {
    run(TestEngine::Simulated, small(), test);
}

#[test]
fn each_read_is_one_physical_read() {
    on_sim(async |bed: TestBed| {
        let (collector, sink) = Collector::new();
        for (tag, len) in [(3, 4096), (900, 16384), (5, 8192)] {
            bed.ring.read(&sink, D0, at(tag), len, tag).unwrap();
        }
        collector.sectors(3).await;
        let read = |sector, len| PhysicalRead { drive: D0, offset: at(sector), len };
        assert_eq!(bed.disk().take_reads(), [read(3, 4096), read(900, 16384), read(5, 8192)]);
    });
}

#[test]
fn short_and_interrupted_operations_are_completed() {
    on_sim(async |bed: TestBed| {
        bed.disk().set_faults(SimFaults {
            short_reads_per_mille: 300,
            short_writes_per_mille: 300,
            interrupts_per_mille: 300,
            is_full: false,
            ..SimFaults::default()
        });
        let (collector, sink) = Collector::new();
        for tag in 0..500 {
            bed.ring.read(&sink, D0, at(tag), 16384, tag).unwrap();
        }
        collector.sectors(500).await;
        bed.ring.write(D0, at(600), filled(1, 200)).await.unwrap();
        bed.ring.fsync(D0).await.unwrap();
        let back = bed.ring.read_owned(D0, at(599), filled(0, 202)).await.unwrap();
        assert_eq!(back[..4096], expected(599, 4096));
        assert!(back[4096..201 * 4096].iter().all(|&byte| byte == 1));
        assert_eq!(back[201 * 4096..], expected(800, 4096));
        assert!(bed.ring.stats().retries > 100);
    });
}

#[test]
fn a_read_that_is_always_interrupted_fails() {
    on_sim(async |bed: TestBed| {
        bed.disk().set_faults(SimFaults { interrupts_per_mille: 1000, ..Default::default() });
        let (collector, sink) = Collector::new();
        bed.ring.read(&sink, D0, at(0), 4096, 0).unwrap();
        collector.outcomes(1).await;
        let outcome = collector.got.borrow()[&0].clone();
        assert!(
            matches!(outcome, Err(ReadError::Io { fault: DriveFault::Busy, .. })),
            "{outcome:?}"
        );
        assert_eq!(bed.disk().take_reads().len(), 64);
    });
}

#[test]
fn a_fault_affects_only_its_own_sector() {
    on_sim(async |bed: TestBed| {
        let disk = bed.disk();
        disk.break_sector(D0, SectorNo(5));
        disk.flip_bit(D0, ByteOffset(9 * 4096 + 1), 3);
        let (collector, sink) = Collector::new();
        for tag in [2, 4, 6, 9] {
            bed.ring.read(&sink, D0, at(tag), 8192, tag).unwrap();
        }
        collector.outcomes(4).await;
        let got = collector.got.take();
        let errno = 5;
        let medium = ReadError::Io { drive: D0, offset: at(4), errno, fault: DriveFault::Medium };
        assert_eq!(got[&4], Err(medium));
        assert_eq!(got[&2], Ok(expected(2, 8192)));
        assert_eq!(got[&6], Ok(expected(6, 8192)));
        let mut flipped = expected(9, 8192);
        flipped[1] ^= 8;
        assert_eq!(got[&9], Ok(flipped));

        disk.set_faults(SimFaults { is_full: true, ..Default::default() });
        let full = bed.ring.write(D0, at(5), filled(1, 1)).await.unwrap_err();
        assert_eq!(full.error, WriteError::NoSpace { drive: D0, offset: at(5) });
        disk.set_faults(SimFaults::default());
        bed.ring.write(D0, at(5), filled(1, 1)).await.unwrap();
        let back = bed.ring.read_owned(D0, at(5), filled(0, 1)).await.unwrap();
        assert_eq!(back[..], [1; 4096], "writing a bad sector repairs it");
    });
}

#[test]
fn reads_arent_starved_by_writes() {
    on_sim(async |bed: TestBed| {
        let (collector, sink) = Collector::new();
        let writes: Vec<_> =
            (0..200).map(|n| bed.ring.write(D0, at(800 + n), filled(1, 1))).collect();
        bed.ring.submit();
        assert_eq!(bed.ring.stats().in_flight, 4);
        for tag in 0..160 {
            bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
        }
        collector.sectors(160).await;
        let writes_done = bed.ring.stats().writes_completed;
        assert!(writes_done > 4, "writes aren't starved either");
        assert!(writes_done < 40, "{writes_done} writes of 200 in the time of 160 reads");
        drop(writes);
        bed.ring.drain().await;
    });
}

#[test]
fn a_crash_tears_writes_in_flight_and_keeps_synced_ones() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let disk = SimDisk::new(SimConfig { seed, ..Default::default() });
        let engine = Engine::Simulated(disk.clone());
        on_sim(async |_| {
            let config = RingConfig { engine, ..small() };
            let ring = Ring::start(&config, &disk.slabs()).unwrap();
            ring.write(D0, at(0), filled(1, 4)).await.unwrap();
            ring.fsync(D0).await.unwrap();
            disk.hold(true);
            let torn = ring.write(D0, at(4), filled(2, 4));
            let read = ring.read_owned(D0, at(0), filled(0, 1));
            ring.submit();
            assert_eq!(disk.in_flight(), 2);
            disk.crash();
            disk.hold(false);
            assert!(matches!(torn.await.unwrap_err().error, WriteError::Io { .. }));
            assert!(matches!(read.await.unwrap_err().error, ReadError::Io { .. }));
            drop(ring);
            let ring = Ring::start(&config, &disk.slabs()).unwrap();
            let back = ring.read_owned(D0, at(0), filled(9, 8)).await.unwrap();
            assert_eq!(back[..16384], [1; 16384]);
            assert!(back[16384..].iter().all(|&byte| byte == 0 || byte == 2));
            outcomes.insert(back.iter().filter(|&&byte| byte == 2).count());
        });
    }
    assert!(outcomes.len() > 5, "crashes differ by seed: {outcomes:?}");
}

#[test]
fn a_seed_determines_the_run() {
    let order_of = |seed| {
        let mut order = Vec::new();
        let drives = vec![1 << 20];
        let disk =
            SimDisk::new(SimConfig { seed, drives, latency_ticks: 1..=50, ..Default::default() });
        let engine = Engine::Simulated(disk.clone());
        on_sim(async |_| {
            let config = RingConfig { engine, ..small() };
            let ring = Ring::start(&config, &disk.slabs()).unwrap();
            let writes: Vec<_> = (0..32).map(|n| ring.write(D0, at(n), filled(1, 1))).collect();
            let (collector, sink) = Collector::new();
            for tag in 0..64 {
                ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
            }
            collector.outcomes(64).await;
            // The reads that still returned zeros reveal the order of completions.
            order.extend(collector.got.take().into_values().map(|bytes| bytes.unwrap()[0]));
            drop(writes);
        });
        (order, disk.take_reads())
    };
    assert_eq!(order_of(1), order_of(1));
    assert_ne!(order_of(1).0, order_of(2).0);
}
