//! Reads rows of tables for the batches of all cores, a bounded number of reads at a time.
//!
//! The rows of a part are encoded like a chunk, so that the same code assembles rows from drives and tables. The result
//! is called the part's *image*.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use pack::Extent;
use scheduler::{Flow, Permits, Priority};
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::{Fault, Reason};

use crate::error::{NodeError, fault_of};
use crate::shard::mailbox::{Mailbox, Message};
use crate::shard::{HeldBytes, RequestNo};
use crate::table::{BLOB_ROWS, BoundedRows, Excess, Pack, Projection};

/// Reads rows from tables for all cores, a bounded number of reads at a time. A batch needs one read for each part (see
/// `requests.rs`) with rows that must come from the table.
pub struct TableReader {
    runtime: Handle,
    /// Limits the concurrent reads. Further reads wait in a fair, bounded queue.
    running: Arc<Permits>,
}

/// The rows of one part of a request.
pub struct PartRows {
    /// The request's projection.
    pub projection: Arc<Projection>,
    /// The number of the part.
    pub part: usize,
    /// The rows.
    pub addrs: Vec<RowAddr>,
    /// The maximum number of bytes of the rows, if they are of a blob column.
    pub bytes_max: u64,
}

/// A read of rows, with its deadline and memory.
pub struct TableRead {
    pub rows: PartRows,
    /// The flow of the request.
    pub flow: Flow,
    /// The priority of the request.
    pub priority: Priority,
    /// The request's deadline.
    pub deadline: Instant,
    /// The memory of the read. It is sent back to the core that reserved it, which releases it even if the request has
    /// ended.
    pub held: HeldBytes,
    /// Cancelled when the request ends: the read leaves the queue, or is aborted if it runs.
    pub stop: CancellationToken,
}

impl TableReader {
    /// Creates a reader that does at most `running` reads at a time, while at most `waiting_max` wait.
    pub fn new(runtime: Handle, running: usize, waiting_max: usize) -> Self {
        Self { runtime, running: Permits::new(running, waiting_max) }
    }

    /// Returns the number of waiting reads.
    pub fn waiting(&self) -> usize {
        self.running.waiting()
    }

    /// Starts to read rows. Their image, or the fault, is sent to `to`, the mailbox of the core. If the request ends
    /// before, only the memory is sent there.
    ///
    /// # Errors
    /// Too many reads wait.
    pub fn take(&self, wanted: TableRead, request: RequestNo, to: Mailbox) -> Result<(), Fault> {
        let rows = wanted.rows.addrs.len() as u32;
        let waiting = self.running.wait(rows, wanted.flow, wanted.priority).map_err(|full| {
            let what = format!(
                "{} reads of rows from tables wait already; try again later, or warm the table first",
                full.waiting
            );
            Fault::new(Reason::Overloaded, what)
        })?;
        self.runtime.spawn(async move {
            let TableRead { rows, held, deadline, stop, .. } = wanted;
            let permit = tokio::select! {
                biased;
                () = stop.cancelled() => return drop(to.send(Message::Held(held))),
                permit = waiting => permit,
            };
            let part = rows.part;
            let send = |image, held| {
                // Fails if the core has stopped.
                let _ = to.send(Message::Image { request, part, image, held });
            };
            let late =
                || Err(Fault::new(Reason::DeadlineExceeded, "the deadline passed in the table"));
            if deadline <= Instant::now() {
                return send(late(), held);
            }
            let mut held = Some(held);
            run_to_end(rows.take(), deadline, stop, |outcome| match outcome {
                Outcome::Done(image) => {
                    // A panic in a library fails this batch, instead of leaving it unanswered.
                    let panicked =
                        |_| Err(Fault::new(Reason::Internal, "reading the table panicked"));
                    send(image.unwrap_or_else(panicked), held.take().unwrap_or_default());
                }
                Outcome::Late => send(late(), HeldBytes::default()),
                Outcome::Stopped => {}
            })
            .await;
            drop(permit);
            if let Some(held) = held {
                let _ = to.send(Message::Held(held));
            }
        });
        Ok(())
    }
}

/// The outcome of work that may take too long.
#[derive(Debug)]
enum Outcome<T> {
    /// The work has ended.
    Done(Result<T, JoinError>),
    /// The deadline has passed.
    Late,
    /// Nobody waits for the work any more.
    Stopped,
}

/// Runs `work` on a task of its own, because a timer on the same task would be delayed by a long computation. Calls
/// `answer` with the outcome: when the work has ended, at `deadline`, or when it is stopped. Returns once the work has
/// ended. At the deadline, or if it is stopped, the work is aborted, which takes effect when it next waits. The memory
/// that it uses stays reserved until it has ended.
async fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    deadline: Instant,
    stop: CancellationToken,
    answer: impl FnOnce(Outcome<T>),
) {
    let mut task = tokio::spawn(work);
    let outcome = tokio::select! {
        biased;
        done = &mut task => Outcome::Done(done),
        () = tokio::time::sleep_until(deadline) => Outcome::Late,
        () = stop.cancelled() => Outcome::Stopped,
    };
    let has_ended = matches!(outcome, Outcome::Done(_));
    answer(outcome);
    if !has_ended {
        task.abort();
        // Nobody uses the result.
        let _ = task.await;
    }
}

impl PartRows {
    async fn take(self) -> Result<Extent, Fault> {
        self.read().await.map_err(|error| fault_of(&error))
    }

    async fn read(&self) -> Result<Extent, NodeError> {
        let part = &self.projection.parts[self.part];
        let pack = self.projection.pack(part);
        let columns: Vec<_> = part.columns.iter().map(|&c| pack.columns[c].clone()).collect();
        let table = self.projection.table.table();
        let rows = if pack.is_blob {
            let too_large =
                |Excess { rows, bytes_max, .. }| NodeError::BatchTooLarge { rows, bytes_max };
            // A caller waits, and each read is a round trip to the store.
            let mut read = BoundedRows::new(self.addrs.len(), BLOB_ROWS, self.bytes_max, too_large);
            while let Some(piece) = read.next() {
                read.push(vec![table.take(&self.addrs[piece], &columns).await?])?;
            }
            read.joined()?
        } else {
            table.take(&self.addrs, &columns).await?
        };
        Ok(pack.layout.encode(&widened(part.columns.as_slice(), &rows, pack))?)
    }
}

/// Returns all of a pack's columns, with nulls for those that were not requested.
fn widened(taken: &[usize], rows: &RecordBatch, pack: &Pack) -> Vec<ArrayRef> {
    let fields = pack.layout.fields().iter().enumerate();
    let column =
        |(at, field): (usize, &arrow_schema::FieldRef)| match taken.iter().position(|&c| c == at) {
            Some(index) => Arc::clone(rows.column(index)),
            None => new_null_array(field.data_type(), rows.num_rows()),
        };
    fields.map(column).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn late_work_is_answered_at_the_deadline_and_then_awaited() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel();
        let computing = async move { held.recv().is_ok() };
        let deadline = Instant::now() + Duration::from_secs(1);
        let stop = CancellationToken::new;
        let work = tokio::spawn(run_to_end(computing, deadline, stop(), move |outcome| {
            let _ = answers.send(outcome);
        }));
        assert!(matches!(answered.recv().await, Some(Outcome::Late)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!work.is_finished(), "it still computes");
        hold.send(()).unwrap();
        work.await.unwrap();
        // Work that ends in time is answered with its result; work that waits is dropped at the deadline, and when
        // nobody waits for it any more.
        let mut outcome = None;
        let later = Instant::now() + Duration::from_secs(60);
        run_to_end(async { 7 }, later, stop(), |it| outcome = Some(it)).await;
        assert!(matches!(outcome, Some(Outcome::Done(Ok(7)))), "{outcome:?}");
        let waiting = std::future::pending::<()>;
        let soon = Instant::now() + Duration::from_millis(1);
        run_to_end(waiting(), soon, stop(), |it| assert!(matches!(it, Outcome::Late))).await;
        let stopped = stop();
        drop(stopped.clone().drop_guard());
        run_to_end(waiting(), later, stopped, |it| assert!(matches!(it, Outcome::Stopped))).await;
    }
}
