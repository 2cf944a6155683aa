//! A core's counters since its start. They are plain cells; other threads read them through the mailbox.

use std::cell::Cell;
use std::time::Duration;

use telemetry::{Buckets, Histogram, Scale};
use tokio::time::Instant;
use wire::BATCH_STAGES;

use crate::extent::HEATS;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One core's counters.
        #[derive(Default)]
        pub struct CoreStats { $($(#[$doc])* pub $name: Counter,)* }

        /// A snapshot of the counters and gauges, including the ring's.
        #[derive(Clone, Debug, Default)]
        pub struct CoreSnapshot {
            /// The CPU that the core is pinned to.
            pub cpu: Option<usize>,
            /// The ring's own counters.
            pub ring: ring::RingStats,
            /// The name of the engine that executes the core's reads.
            pub engine: &'static str,
            /// Pieces that wait for a read.
            pub queued: usize,
            /// The current limit of reads in flight.
            pub reads_limit: u32,
            /// Bytes of the core's traffic memory in use.
            pub traffic_bytes: u64,
            /// Bytes of RAM of the directory's replica, without the data that replicas share.
            pub replica_bytes: usize,
            /// Bytes of RAM of the data that replicas share.
            pub directory_shared_bytes: usize,
            /// The number of extents by heat: read by no batch, one, two, or more.
            pub heats: [u64; HEATS],
            /// Sectors in the RAM tier.
            pub ram_sectors: u64,
            /// Fetch streams that are open.
            pub streams: usize,
            /// Batches under way.
            pub batches_under_way: usize,
            /// The reads of each drive.
            pub drives: Vec<DriveCounts>,
            /// Histograms of durations and sizes.
            pub histograms: HistogramsSnapshot,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CoreStats {
            /// Returns the counters. Fields that are not counters have their default.
            pub fn snapshot(&self) -> CoreSnapshot {
                CoreSnapshot { $($name: self.$name.get(),)* ..Default::default() }
            }
        }
    };
}

counters! {
    /// Rows served.
    rows,
    /// Batches served.
    batches,
    /// Batches received, whatever their outcome.
    received,
    /// Sectors found in the RAM tier.
    ram_hits,
    /// Sectors of pieces that were not whole in the RAM tier, so that all sectors of the piece are read.
    ram_misses,
    /// Sectors admitted to the RAM tier.
    ram_admitted,
    /// Sectors evicted from the RAM tier to admit others.
    ram_evicted,
    /// Rows served for which at least one part was read from the table.
    table_rows,
    /// Sectors of files served.
    file_sectors,
    /// Sectors of files served that were read from the store.
    stored_sectors,
    /// Sectors with a wrong checksum, and failed reads.
    bad_sectors,
    /// Reads abandoned because the drive did not answer in time.
    late_reads,
    /// Pieces that were served by the read of another piece: all pieces of a read but one.
    shared_pieces,
    /// The shared pieces whose sectors were all read for other pieces anyway.
    duplicate_pieces,
    /// Rows located on a drive, counted once per part.
    extent_hits,
    /// Rows located on no drive, counted once per part.
    extent_misses,
    /// Batches dropped because their deadline had passed while they waited for a drive or the table, or because their
    /// caller had gone or cancelled them.
    dropped,
    /// Batches, projections and streams refused because a queue or the memory for them was full, or because a deadline
    /// could not be kept.
    shed,
}

/// One core's reads of a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriveCounts {
    /// Reads in flight.
    pub in_flight: u64,
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes of the successful reads.
    pub read_bytes: u64,
    /// Reads that failed.
    pub failed: u64,
    /// The total time in which the drive had reads in flight, not including the time since `busy_since`.
    pub busy: Duration,
    /// The time since which the drive has had reads in flight without a break.
    pub busy_since: Option<Instant>,
}

impl DriveCounts {
    /// Counts a read that was submitted.
    pub fn read_started(&mut self, now: Instant) {
        self.in_flight += 1;
        self.busy_since.get_or_insert(now);
    }

    /// Counts a read that has ended.
    pub fn read_ended(&mut self, now: Instant) {
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.busy = self.busy_until(now);
            self.busy_since = None;
        }
    }

    /// Returns the total time in which the drive had reads in flight, up to `now`.
    pub fn busy_until(&self, now: Instant) -> Duration {
        self.busy
            + self.busy_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Histograms of one core.
pub struct CoreHistograms {
    /// Duration of reads, by drive.
    pub reads: Vec<Histogram>,
    /// Rows per batch that was admitted.
    pub batch_rows: Histogram,
    /// Duration of each of [`BATCH_STAGES`].
    pub stages: [Histogram; BATCH_STAGES.len()],
    /// Duration from a batch's arrival to its reply.
    pub batch: Histogram,
}

/// A snapshot of [`CoreHistograms`].
#[derive(Clone, Debug, Default)]
pub struct HistogramsSnapshot {
    /// Duration of reads, by drive.
    pub reads: Vec<Buckets>,
    /// Rows per batch that was admitted.
    pub batch_rows: Buckets,
    /// Duration of each of [`BATCH_STAGES`].
    pub stages: Vec<Buckets>,
    /// Duration from a batch's arrival to its reply.
    pub batch: Buckets,
}

impl CoreHistograms {
    /// Creates empty histograms for a core with `drives` drives.
    pub fn new(drives: usize) -> Self {
        let times = || Histogram::new(Scale::Seconds);
        Self {
            reads: (0..drives).map(|_| times()).collect(),
            batch_rows: Histogram::new(Scale::Whole),
            stages: BATCH_STAGES.map(|_| times()),
            batch: times(),
        }
    }

    /// Returns the current counts.
    pub fn snapshot(&self) -> HistogramsSnapshot {
        HistogramsSnapshot {
            reads: self.reads.iter().map(Histogram::buckets).collect(),
            batch_rows: self.batch_rows.buckets(),
            stages: self.stages.iter().map(Histogram::buckets).collect(),
            batch: self.batch.buckets(),
        }
    }
}

/// A counter of one core.
#[derive(Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}
