//! Admit: whether a batch can be answered in time, before it costs anything.
//!
//! A queue that is longer than deadlines are does not make a node faster: each batch would be begun, and its
//! deadline pass meanwhile. So a batch that would have to wait for most of its time is shed when it arrives,
//! with a hint to try again, and those that were admitted are answered.

use tokio::time::Instant;
use wire::{Fault, Reason};

use super::read::Priority;
use crate::shard::Core;

/// The share of a batch's time that it may wait for its turn, in tenths; what is left is for its reads,
/// its way back, and a drive that turns slower than it was: reads for a batch that is late are lost to the others.
const WAIT_TENTHS: u32 = 6;

/// Lets in a batch of `rows` rows, or sheds it.
///
/// # Errors
/// `OVERLOADED` when too many rows wait, or would for too long.
pub fn admit(
    core: &Core,
    rows: usize,
    priority: Priority,
    arrived: Instant,
    deadline: Instant,
) -> Result<(), Fault> {
    let waiting = core.reader.waiting();
    let wait = core.reader.wait(priority);
    // Batch work leaves half of the queue to others, or one backfill would shut them out.
    let rows_max = match priority {
        Priority::Interactive => core.shared.config.queue_rows_max,
        Priority::Batch => core.shared.config.queue_rows_max / 2,
    };
    let overloaded = if waiting + rows > rows_max {
        format!("{waiting} rows wait for a read already; try again later")
    } else if wait > (deadline - arrived) * WAIT_TENTHS / 10 {
        let ms = wait.as_millis();
        format!(
            "{waiting} rows wait for a read already, for about {ms} ms: too long for this batch's \
             deadline; try again later, or allow more time"
        )
    } else {
        return Ok(());
    };
    core.stats.shed.add(1);
    Err(Fault::new(Reason::Overloaded, overloaded))
}
