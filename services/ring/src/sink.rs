//! Who gets the bytes of a read.

use tokio::time::Instant;

use crate::ReadError;

/// Takes the outcomes of many reads, told apart by their tags: one allocation a request instead of
/// a task or a future a read.
///
/// The ring holds a sink weakly. When its last `Rc` is dropped, reads that aren't submitted yet cost
/// nothing any more, and those in flight end in their slots unseen.
pub trait ReadSink {
    /// Called once for each accepted read, on the core's thread, out of the ring's own task. It
    /// ended `at`, or before: when the batch of completions was collected that it is of. The bytes
    /// are lent for the call; afterwards the slot is free again. Any method of the ring may be called
    /// from here. A panic is caught and counted in
    /// [`RingStats::sink_panics`](crate::RingStats::sink_panics), so that one request can't take the
    /// ring down.
    fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>, at: Instant);
}
