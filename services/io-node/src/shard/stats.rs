//! What a core counts since its start: plain cells, read by way of its mailbox.

use std::cell::Cell;
use std::time::Duration;

use telemetry::{Buckets, Histogram, Scale};
use tokio::time::Instant;
use wire::BATCH_STAGES;

use crate::directory::HEATS;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One core's counters.
        #[derive(Default)]
        pub struct CoreStats { $($(#[$doc])* pub $name: Counter,)* }

        /// The counters at one moment, with the ring's.
        #[derive(Clone, Debug, Default)]
        pub struct CoreSnapshot {
            /// The CPU that the core is pinned to.
            pub cpu: Option<usize>,
            /// The ring's own counters.
            pub ring: ring::RingStats,
            /// What carries its reads out.
            pub engine: &'static str,
            /// Pieces that wait for a read.
            pub queued: usize,
            /// Bytes held for clients.
            pub reply_bytes: u64,
            /// RAM of the replica, in bytes, without what replicas share.
            pub replica_bytes: usize,
            /// RAM of what replicas share, in bytes.
            pub directory_shared_bytes: usize,
            /// Extents by how many batches have read them: none, one, two, more.
            pub heats: [u64; HEATS],
            /// Sectors in the RAM tier.
            pub ram_sectors: u64,
            /// Fetch streams that are open.
            pub streams: usize,
            /// Batches under way.
            pub batches_under_way: usize,
            /// Of each drive, what is asked of it and what it gave.
            pub drives: Vec<DriveCounts>,
            /// How long things took.
            pub histograms: HistogramsSnapshot,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CoreStats {
            /// The counters now; what isn't a counter is left at its default.
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
    /// Batches that came, whatever came of them.
    received,
    /// Sectors found in the RAM tier.
    ram_hits,
    /// Sectors not found there.
    ram_misses,
    /// Sectors let into it.
    ram_admitted,
    /// Sectors let go for those.
    ram_evicted,
    /// Rows answered from the table itself.
    table_rows,
    /// Sectors whose checksum was wrong, or whose read failed.
    bad_sectors,
    /// Reads that were given up because the drive did not answer in time.
    late_reads,
    /// Pieces that shared a read with another piece.
    shared_pieces,
    /// Those of them whose sectors were all read for others already.
    duplicate_pieces,
    /// Rows located on a drive; one of several parts counts for each.
    extent_hits,
    /// Rows located on none.
    extent_misses,
    /// Batches dropped because their deadline had passed or their caller had gone.
    dropped,
    /// Batches refused because a queue was full.
    shed,
}

/// One core's reads of a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriveCounts {
    /// Reads in flight.
    pub in_flight: u64,
    /// Reads that ended well.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Reads that failed.
    pub failed: u64,
    /// For how long it had been asked for something, but for the time since `busy_since`.
    pub busy: Duration,
    /// Since when it is asked for something without a break.
    pub busy_since: Option<Instant>,
}

impl DriveCounts {
    /// A read is asked of it.
    pub fn read_started(&mut self, now: Instant) {
        self.in_flight += 1;
        self.busy_since.get_or_insert(now);
    }

    /// A read has ended.
    pub fn read_ended(&mut self, now: Instant) {
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.busy = self.busy_until(now);
            self.busy_since = None;
        }
    }

    /// For how long it was asked for something until now.
    pub fn busy_until(&self, now: Instant) -> Duration {
        self.busy
            + self.busy_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// How long things took on one core, and how large they were.
pub struct CoreHistograms {
    /// Of each drive, how long its reads took.
    pub reads: Vec<Histogram>,
    /// Rows of the batches that came.
    pub batch_rows: Histogram,
    /// Of each of [`BATCH_STAGES`], how long it took.
    pub stages: [Histogram; BATCH_STAGES.len()],
    /// From a batch's arrival to its reply.
    pub batch: Histogram,
}

/// The same at one moment.
#[derive(Clone, Debug, Default)]
pub struct HistogramsSnapshot {
    /// Of each drive, how long its reads took.
    pub reads: Vec<Buckets>,
    /// Rows of the batches that came.
    pub batch_rows: Buckets,
    /// Of each of [`BATCH_STAGES`], how long it took.
    pub stages: Vec<Buckets>,
    /// From a batch's arrival to its reply.
    pub batch: Buckets,
}

impl CoreHistograms {
    /// For a core with so many drives.
    pub fn new(drives: usize) -> Self {
        let times = || Histogram::new(Scale::Seconds);
        Self {
            reads: (0..drives).map(|_| times()).collect(),
            batch_rows: Histogram::new(Scale::Whole),
            stages: BATCH_STAGES.map(|_| times()),
            batch: times(),
        }
    }

    /// The counts now.
    pub fn snapshot(&self) -> HistogramsSnapshot {
        HistogramsSnapshot {
            reads: self.reads.iter().map(Histogram::buckets).collect(),
            batch_rows: self.batch_rows.buckets(),
            stages: self.stages.iter().map(Histogram::buckets).collect(),
            batch: self.batch.buckets(),
        }
    }
}

/// A count of one core.
#[derive(Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Counts `count` more.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}
