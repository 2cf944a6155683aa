//! What a ring counts.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start of the ring, and its gauges at the moment of the call.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RingStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same as plain cells: a ring is of one core.
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
    /// Reads discarded before submission because their sink was gone.
    reads_discarded,
    /// Reads that got a slot.
    reads_submitted,
    /// Reads that ended well.
    reads_completed,
    /// Reads that ended in an error.
    reads_failed,
    /// Reads that ended, well or not, after their sink was gone.
    reads_orphaned,
    /// Bytes of the reads that ended well.
    read_bytes,
    /// Transfers (writes, syncs, owned reads) accepted.
    transfers_queued,
    /// Transfers refused because their queue was full.
    transfers_refused,
    /// Transfers discarded before submission because their future was dropped.
    transfers_discarded,
    /// Writes that ended well.
    writes_completed,
    /// Bytes of the writes that ended well.
    write_bytes,
    /// Owned reads that ended well.
    owned_reads_completed,
    /// Bytes of the owned reads that ended well.
    owned_read_bytes,
    /// Syncs that ended well.
    syncs_completed,
    /// Transfers that ended in an error.
    transfers_failed,
    /// Operations submitted once more, after a short transfer, EINTR or EAGAIN.
    retries,
    /// Panics caught in sinks.
    sink_panics,
    /// Times the backend was entered with operations to submit.
    submits,
    /// Operations of the largest of these batches.
    submit_batch_max,
    /// Times the backend couldn't take the batch and was to be asked again.
    submits_deferred,
    /// Batches of completions.
    reaps,
    /// Completions of the largest of these batches.
    reap_batch_max,
    /// Gauge: reads waiting for a slot.
    queue_len,
    /// The most reads that waited.
    queue_len_max,
    /// Gauge: transfers waiting.
    transfer_queue_len,
    /// Gauge: operations in flight.
    in_flight,
    /// The most operations in flight.
    in_flight_max,
}

pub(crate) fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get() + count);
}

pub(crate) fn raise(maximum: &Cell<u64>, value: u64) {
    maximum.set(maximum.get().max(value));
}
