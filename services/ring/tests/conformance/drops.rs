//! Drops sinks, futures and rings while operations are in flight.

use std::rc::Rc;

use ring::{Ring, WriteError};
use tokio::time::Instant;

use crate::bed::{Collector, D0, TestBed, at, expected, filled, on_each_engine, small};

on_each_engine! {
    reads_of_a_dropped_sink_keep_their_slots_until_they_end with small();
    a_ring_with_reads_in_flight_can_be_dropped with small();
    a_write_dropped_in_flight_goes_on with small();
    a_write_dropped_before_submission_is_cancelled with small();
    a_dropped_ring_gives_back_the_buffers_of_writes with small();
    a_sink_may_drop_the_last_ring with small();
}

async fn reads_of_a_dropped_sink_keep_their_slots_until_they_end(bed: TestBed) {
    let (_, sink) = Collector::new();
    for tag in 0..64 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    bed.ring.submit();
    assert_eq!((bed.ring.stats().in_flight, bed.ring.stats().queue_len), (16, 48));
    drop(sink);

    let (collector, sink) = Collector::new();
    for tag in 200..400 {
        bed.ring.read(&sink, D0, at(tag), 8192, tag).unwrap();
    }
    collector.sectors(200).await;
    bed.ring.drain().await;
    let stats = bed.ring.stats();
    assert_eq!((stats.reads_orphaned, stats.reads_discarded), (16, 48));
    assert_eq!((stats.reads_completed, stats.in_flight), (200, 0));
    assert_eq!(stats.reads_submitted, 216, "queued reads of a dropped sink are not submitted");
}

async fn a_ring_with_reads_in_flight_can_be_dropped(bed: TestBed) {
    let (collector, sink) = Collector::new();
    for tag in 0..64 {
        bed.ring.read(&sink, D0, at(tag), 16384, tag).unwrap();
    }
    bed.ring.submit();
    let TestBed { ring, files, config, folder: _folder, .. } = bed;
    drop(ring);
    assert!(collector.got.borrow().is_empty(), "dropping a ring calls no sink");

    let ring = Ring::start(&config, &files).unwrap();
    for tag in 0..64 {
        ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(64).await;
}

async fn a_write_dropped_in_flight_goes_on(bed: TestBed) {
    let write = bed.ring.write(D0, at(8), filled(3, 64));
    bed.ring.submit();
    assert_eq!(bed.ring.stats().in_flight, 1);
    drop(write);
    // If the write's buffer were freed too early, these buffers would reuse its memory and corrupt the write.
    let others: Vec<_> = (0..64).map(|_| filled(9, 64)).collect();
    bed.ring.drain().await;
    drop(others);
    let back = bed.ring.read_owned(D0, at(7), filled(0, 66)).await.unwrap();
    assert_eq!(back[..4096], expected(7, 4096));
    assert!(back[4096..65 * 4096].iter().all(|&byte| byte == 3));
    assert_eq!(back[65 * 4096..], expected(72, 4096));
}

async fn a_write_dropped_before_submission_is_cancelled(bed: TestBed) {
    drop(bed.ring.write(D0, at(8), filled(3, 1)));
    bed.ring.drain().await;
    assert_eq!(bed.ring.stats().transfers_discarded, 1);
    let back = bed.ring.read_owned(D0, at(8), filled(0, 1)).await.unwrap();
    assert_eq!(back[..], expected(8, 4096));
}

async fn a_dropped_ring_gives_back_the_buffers_of_writes(bed: TestBed) {
    let writes: Vec<_> =
        (0..12).map(|number| bed.ring.write(D0, at(number * 16), filled(5, 16))).collect();
    bed.ring.submit();
    let TestBed { ring, files, config, folder: _folder, .. } = bed;
    drop(ring);
    let mut written = Vec::new();
    for (number, write) in (0..).zip(writes) {
        match write.await {
            Ok(buf) => {
                assert_eq!(buf.len(), 16 * 4096);
                written.push(number);
            }
            Err(returned) => {
                assert_eq!(returned.error, WriteError::Closed);
                assert_eq!(returned.buf[..], filled(5, 16)[..]);
            }
        }
    }
    assert_eq!(written, [0, 1, 2, 3], "writes in flight finish, queued ones are not started");
    let ring = Ring::start(&config, &files).unwrap();
    for number in 0..12 {
        let back = ring.read_owned(D0, at(number * 16), filled(0, 16)).await.unwrap();
        let new = back.iter().all(|&byte| byte == 5);
        assert!(new == (number < 4) && (new || back[..] == expected(number * 16, back.len())));
    }
}

async fn a_sink_may_drop_the_last_ring(bed: TestBed) {
    use std::cell::RefCell;
    struct Last(RefCell<Option<Ring>>, tokio::sync::Notify);
    impl ring::ReadSink for Last {
        fn read_done(&self, _: u64, outcome: Result<&[u8], ring::ReadError>, _: Instant) {
            let bytes = outcome.unwrap();
            let before = bytes.to_vec();
            drop(self.0.take());
            assert_eq!(bytes, before);
            self.1.notify_one();
        }
    }
    let TestBed { ring, files, folder: _folder, .. } = bed;
    let last = Rc::new(Last(RefCell::new(Some(ring.clone())), tokio::sync::Notify::new()));
    let sink: Rc<dyn ring::ReadSink> = Rc::clone(&last) as _;
    for tag in 0..8 {
        ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    drop(ring);
    last.1.notified().await;
    drop(files);
}
