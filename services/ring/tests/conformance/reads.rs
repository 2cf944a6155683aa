//! Reads return the right bytes exactly once, under any load.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ring::{ReadError, ReadSink, Ring};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::bed::{Collector, D0, TestBed, at, expected, filled, on_each_engine, small};

on_each_engine! {
    more_reads_than_slots with small();
    one_at_a_time with small();
    the_ring_submits_by_itself with small();
    a_sink_may_start_further_reads with small();
    a_panicking_sink_affects_no_other_read with small();
    owned_reads with small();
    two_rings_on_one_thread with small();
}

async fn more_reads_than_slots(bed: TestBed) {
    let (collector, sink) = Collector::new();
    for round in 0..10 {
        for place in 0..100 {
            let tag = (round * 100 + place) * 613 % 1000;
            let len = 4096 * (1 + tag as usize % 4);
            bed.ring.read(&sink, D0, at(tag), len, tag).unwrap();
        }
        tokio::task::yield_now().await;
    }
    collector.sectors(1000).await;
    let stats = bed.ring.stats();
    assert_eq!((stats.reads_submitted, stats.reads_completed), (1000, 1000));
    assert_eq!(stats.in_flight_max, 16, "at most one read in flight per slot");
    let bytes: usize = (0..1000).map(|tag| 4096 * (1 + tag % 4)).sum();
    assert_eq!(stats.read_bytes, bytes as u64);
}

async fn one_at_a_time(bed: TestBed) {
    let (collector, sink) = Collector::new();
    for tag in 0..50 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
        collector.sectors(tag as usize + 1).await;
    }
    assert_eq!(bed.ring.stats().submits, 50);
}

async fn the_ring_submits_by_itself(bed: TestBed) {
    let (collector, sink) = Collector::new();
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    for tag in 0..10 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(10).await;
    assert_eq!(bed.ring.stats().submits, 1, "queued reads are submitted together");
    for tag in 10..110 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(110).await;
    busy.abort();
}

async fn a_sink_may_start_further_reads(bed: TestBed) {
    struct Chain {
        ring: Ring,
        me: RefCell<Option<Rc<dyn ReadSink>>>,
        left: Cell<u64>,
        done: Notify,
    }
    impl ReadSink for Chain {
        fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>, _: Instant) {
            assert_eq!(outcome.unwrap(), expected(tag, 4096));
            let left = self.left.get();
            if left == 0 {
                self.done.notify_one();
                return;
            }
            self.left.set(left - 1);
            let me = self.me.borrow().clone().unwrap();
            self.ring.read(&me, D0, at(left), 4096, left).unwrap();
            if left.is_multiple_of(7) {
                self.ring.submit();
            }
            self.ring.stats();
        }
    }
    let chain = Rc::new(Chain {
        ring: bed.ring.clone(),
        me: RefCell::default(),
        left: Cell::new(500),
        done: Notify::new(),
    });
    let sink: Rc<dyn ReadSink> = Rc::clone(&chain) as _;
    *chain.me.borrow_mut() = Some(Rc::clone(&sink));
    for tag in 1000..1020 {
        bed.ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    chain.done.notified().await;
    bed.ring.drain().await;
    assert_eq!(bed.ring.stats().reads_completed, 520);
    assert_eq!(bed.ring.stats().sink_panics, 0, "every read returned the right bytes");
    chain.me.take();
}

async fn a_panicking_sink_affects_no_other_read(bed: TestBed) {
    struct Panics;
    impl ReadSink for Panics {
        fn read_done(&self, _: u64, _: Result<&[u8], ReadError>, _: Instant) {
            panic!("on purpose");
        }
    }
    let panics: Rc<dyn ReadSink> = Rc::new(Panics);
    let (collector, sink) = Collector::new();
    for tag in 0..40 {
        let sink = if tag % 2 == 0 { &panics } else { &sink };
        bed.ring.read(sink, D0, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(20).await;
    bed.ring.drain().await;
    assert_eq!(bed.ring.stats().sink_panics, 20);
}

async fn owned_reads(bed: TestBed) {
    let all: Vec<_> =
        (0..8).map(|part| bed.ring.read_owned(D0, at(part * 128), filled(0, 128))).collect();
    for (part, read) in (0..).zip(all) {
        assert_eq!(read.await.unwrap()[..], expected(part * 128, 128 * 4096));
    }
    assert_eq!(bed.ring.stats().in_flight_max, 4, "owned reads count as transfers");
}

async fn two_rings_on_one_thread(bed: TestBed) {
    let second = Ring::start(&bed.config, &bed.files).unwrap();
    let (collector, sink) = Collector::new();
    for tag in 0..200 {
        let ring = if tag % 2 == 0 { &bed.ring } else { &second };
        ring.read(&sink, D0, at(tag), 4096, tag).unwrap();
    }
    collector.sectors(200).await;
}
