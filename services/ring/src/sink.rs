//! The receiver of the bytes that reads return.

use tokio::time::Instant;

use crate::ReadError;

/// Receives the results of many reads, which it tells apart by their tags. So a caller needs one allocation for all its
/// reads. A task or a future for each read would cost an allocation per read.
///
/// The ring holds only a weak reference to a sink. When the last `Rc` is dropped, reads that are not
/// submitted yet are discarded, and the results of those in flight are ignored.
pub trait ReadSink {
    /// Called once for each accepted read, unless the sink or the ring is dropped first, on the core's thread, from the
    /// ring's own task. `at` is the time at which the batch of completions was collected. The read ended then or
    /// shortly before. The bytes are borrowed only for this call, because afterwards the slot is reused. Any method of
    /// the ring may be called from here. A panic is caught and counted in
    /// [`RingStats::sink_panics`](crate::RingStats::sink_panics), so that one request cannot stop the ring.
    fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>, at: Instant);
}
