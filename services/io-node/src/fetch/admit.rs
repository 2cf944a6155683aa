//! Admit: decides on arrival whether a batch can be answered in time.
//!
//! If batches wait in the queue for longer than their deadlines allow, each of them costs work and then misses its
//! deadline. A batch that would spend most of its time in the queue is therefore shed on arrival, with a hint to try
//! again, so that the admitted batches are answered. Both the estimated wait and the room in the queue are those of the
//! batch's own flow, so a long queue of another flow neither delays a batch much nor keeps it out of the queue.

use scheduler::{Flow, Priority, has_room};
use tokio::time::Instant;
use wire::{Fault, Reason};

use super::Core;

/// The share of the time until its deadline that a batch may spend in the queue, in tenths. The rest is for its reads,
/// its reply, and a drive that becomes slower. A batch that misses its deadline has delayed other batches for nothing.
/// With eight tenths, one admitted batch in nine to twelve was late (`docs/performance.md`).
const WAIT_TENTHS: u32 = 6;

/// Admits a batch of `rows` rows of a flow, or sheds it. The queue counts pieces. How many pieces the batch has is not
/// known yet, so it is taken to have one for each row.
///
/// # Errors
/// `OVERLOADED` if the flow or the queue has no room for the rows, or if the batch would wait too long.
pub fn admit(
    core: &Core,
    rows: usize,
    (flow, priority): (Flow, Priority),
    deadline: Instant,
) -> Result<(), Fault> {
    let (waiting, of_flow) = (core.reader.waiting(), core.reader.waiting_of(flow));
    let wait = core.reader.wait(flow, priority);
    // Batch work may use only half of the queue, or one backfill would shut out interactive work.
    let pieces_max = match priority {
        Priority::Interactive => core.node.config.queue_rows_max,
        Priority::Batch => core.node.config.queue_rows_max / 2,
    };
    let overloaded = if !has_room(of_flow, rows, waiting, pieces_max) {
        format!("{waiting} pieces of rows wait for a read already; try again later")
    } else if wait > deadline.saturating_duration_since(Instant::now()) * WAIT_TENTHS / 10 {
        let ms = wait.as_millis();
        format!(
            "{waiting} pieces of rows wait for a read already, {of_flow} of them of the caller's own grant; \
             another one would wait for about {ms} ms: too long for this batch's deadline; try \
             again later, or allow more time"
        )
    } else {
        return Ok(());
    };
    core.stats.shed.add(1);
    Err(Fault::new(Reason::Overloaded, overloaded))
}
