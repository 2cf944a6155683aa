//! A ring's counters.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the ring was started, and gauges at the time of the call to
        /// [`Ring::stats`](crate::Ring::stats).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RingStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters of [`RingStats`] as cells, because only one thread uses a ring.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub $name: Cell<u64>,)*
        }

        impl Counters {
            pub fn snapshot(&self) -> RingStats {
                RingStats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Reads accepted.
    reads_queued,
    /// Reads refused because the queue was full.
    reads_refused,
    /// Reads discarded before submission because their sink was dropped.
    reads_discarded,
    /// Reads that were given a slot.
    reads_submitted,
    /// Reads that succeeded while their sink existed.
    reads_completed,
    /// Reads that ended, successfully or not, after their sink was dropped.
    reads_orphaned,
    /// Bytes of the reads in `reads_completed`.
    read_bytes,
    /// Transfers discarded before submission because their future was dropped.
    transfers_discarded,
    /// Writes that succeeded.
    writes_completed,
    /// Bytes of successful writes.
    write_bytes,
    /// Fsyncs that succeeded.
    fsyncs_completed,
    /// Transfers that failed.
    transfers_failed,
    /// Operations submitted again after a short transfer, EINTR or EAGAIN.
    retries,
    /// Panics of sinks that were caught.
    sink_panics,
    /// Number of batches of operations that were submitted.
    submits,
    /// Number of times that the kernel was out of resources for a batch, so that it had to be submitted again.
    submits_deferred,
    /// Number of batches of completions that were collected.
    reaps,
    /// Gauge: reads waiting for a slot.
    queue_len,
    /// Maximum number of reads that waited for a slot.
    queue_len_max,
    /// Gauge: transfers waiting.
    transfer_queue_len,
    /// Gauge: operations in flight.
    in_flight,
    /// Maximum number of operations in flight.
    in_flight_max,
}

pub(crate) fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get() + count);
}

pub(crate) fn raise(maximum: &Cell<u64>, value: u64) {
    maximum.set(maximum.get().max(value));
}
