//! The events of reads: free slots, completions and timeouts. Each event is passed to the core's reader, and the
//! requests that the reader returns are settled or failed.

use std::rc::Rc;
use std::time::Duration;

use ring::{ReadError, ReadSink};
use tokio::time::{Instant, MissedTickBehavior};
use wire::{Fault, Reason};

use super::reader::Submission;
use super::{Core, here, reply, settle};

/// The sink of all reads of a core.
struct Completions;

/// Returns the sink for the reads of a core.
pub fn completions() -> Rc<dyn ReadSink> {
    Rc::new(Completions)
}

impl ReadSink for Completions {
    fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>, at: Instant) {
        let core = here();
        // Allocates only when a read ends a request.
        let mut ended = Vec::new();
        core.reader.done(&core.read_context(), tag as usize, outcome, at, &mut ended);
        ended.iter().for_each(|no| settle(&core, *no));
    }
}

/// Submits the waiting pieces of this core, for as long as the core runs. Once woken, the loop runs after all tasks
/// that were ready before it and after a whole batch of completions, so their pieces are included.
pub async fn submit_loop() {
    let work = here().reader.work();
    loop {
        submit(&here());
        work.notified().await;
        here().reader.woke_up();
    }
}

/// Hands waiting pieces to the ring while slots are free.
fn submit(core: &Core) {
    while let Some(Submission { late, ended }) = core.reader.submit(&core.read_context()) {
        for no in late {
            core.stats.dropped.add(1);
            let what = "the deadline passed before the rows were read";
            reply::fail(core, no, Fault::new(Reason::DeadlineExceeded, what));
        }
        ended.into_iter().for_each(|no| settle(core, no));
    }
    core.ring.submit();
}

/// Abandons reads that a drive does not answer in time, for as long as the core runs.
pub async fn watch_timeouts(limit: Duration) {
    let mut looks = tokio::time::interval(limit / 2);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let core = here();
        let ended = core.reader.give_up(&core.read_context(), limit);
        ended.into_iter().for_each(|no| settle(&core, no));
    }
}
