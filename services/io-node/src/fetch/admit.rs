//! Admit: decides whether a batch can be answered in time, before it costs anything.
//!
//! If the queue takes longer than the deadlines allow, every batch is started and then misses its deadline. A batch
//! that would spend most of its time in the queue is therefore shed on arrival, with a hint to try again, so that the
//! admitted batches are answered. Both the time and the space are those of the batch's own flow: however many rows of
//! another flow wait, they do not make a batch wait, and do not leave it without a place.

use scheduler::{Flow, has_room};
use tokio::time::Instant;
use wire::{Fault, Reason};

use super::Core;
use super::reader::Priority;

/// The share of a batch's time that it may spend in the queue, in tenths. The rest is for its reads, its reply, and a
/// drive that becomes slower: reads for a batch that misses its deadline delay other batches for nothing.
const WAIT_TENTHS: u32 = 6;

/// Admits a batch of `rows` rows of a flow, or sheds it.
///
/// # Errors
/// `OVERLOADED` if too many rows wait, or the batch would wait too long.
pub fn admit(
    core: &Core,
    rows: usize,
    (flow, priority): (Flow, Priority),
    arrived: Instant,
    deadline: Instant,
) -> Result<(), Fault> {
    let (waiting, of_flow) = (core.reader.waiting(), core.reader.waiting_of(flow));
    let wait = core.reader.wait(flow, priority);
    // Batch work may use only half of the queue, or one backfill would shut out interactive work.
    let rows_max = match priority {
        Priority::Interactive => core.shared.config.queue_rows_max,
        Priority::Batch => core.shared.config.queue_rows_max / 2,
    };
    let overloaded = if !has_room(of_flow, rows, waiting, rows_max) {
        format!("{waiting} rows wait for a read already; try again later")
    } else if wait > (deadline - arrived) * WAIT_TENTHS / 10 {
        let ms = wait.as_millis();
        format!(
            "{of_flow} of the {waiting} rows that wait for a read already are the caller's own, and \
             another would wait for about {ms} ms: too long for this batch's deadline; try again \
             later, or allow more time"
        )
    } else {
        return Ok(());
    };
    core.stats.shed.add(1);
    Err(Fault::new(Reason::Overloaded, overloaded))
}
