//! What a core counts since its start: plain cells, read by way of its mailbox.

use std::cell::Cell;

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
            /// Pieces that wait for a read.
            pub queued: usize,
            /// Bytes held for clients.
            pub reply_bytes: u64,
            /// RAM of the replica, in bytes, without what replicas share.
            pub replica_bytes: usize,
            /// RAM of what replicas share, in bytes.
            pub directory_shared_bytes: usize,
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
    /// Sectors found in the RAM tier.
    ram_hits,
    /// Sectors not found there.
    ram_misses,
    /// Rows answered from the table itself.
    table_rows,
    /// Sectors whose checksum was wrong, or whose read failed.
    bad_sectors,
    /// Reads that were given up because the drive did not answer in time.
    late_reads,
    /// Pieces that shared a read with another piece.
    shared_pieces,
    /// Batches dropped because their deadline had passed or their caller had gone.
    dropped,
    /// Batches refused because a queue was full.
    shed,
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
