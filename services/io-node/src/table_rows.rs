//! PartRows that no drive has, from the table itself: slow, right, and counted.
//!
//! The taken rows are encoded like a chunk, so that one way of assembling serves rows of both kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use address::RowAddr;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use pack::Extent;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::Instant;
use wire::{Fault, Reason};

use crate::error::{NodeError, fault_of};
use crate::shard::mailbox::{Mailbox, Message};
use crate::shard::{Core, HeldBytes, RequestNo, RowSource};
use crate::stages::assemble::REPLY_BYTES_MAX;
use crate::table::{BoundedRows, PackProjection, Projection};

/// Takes rows from tables for all cores, a bounded number of batches at a time.
pub struct TableReader {
    runtime: Handle,
    running: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
}

/// PartRows of one part of a request.
struct PartRows {
    projection: Arc<Projection>,
    part: usize,
    addrs: Vec<RowAddr>,
}

/// The same, and what is needed to read them.
struct TableRead {
    rows: PartRows,
    deadline: Instant,
    /// Given back on the core that took it, whatever became of the request meanwhile.
    held: HeldBytes,
}

impl TableReader {
    /// At most `running` batches at a time, and `waiting_max` that wait.
    pub fn new(runtime: Handle, running: usize, waiting_max: usize) -> Self {
        let running = Arc::new(Semaphore::new(running));
        Self { runtime, running, waiting: Arc::default(), waiting_max }
    }

    /// Batches that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes rows, and sends their image to a core.
    fn take(&self, wanted: TableRead, request: RequestNo, to: Mailbox) -> Result<(), Fault> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let what = format!(
                "{} batches wait for the table already; try again later, or warm the table first",
                self.waiting_max
            );
            return Err(Fault::new(Reason::Overloaded, what));
        }
        let (running, waiting) = (Arc::clone(&self.running), Arc::clone(&self.waiting));
        self.runtime.spawn(async move {
            let permit = running.acquire().await;
            waiting.fetch_sub(1, Ordering::Relaxed);
            let TableRead { rows, held, deadline } = wanted;
            let part = rows.part;
            let send = |image, held| {
                // A core that is gone has no use for it.
                let _ = to.send(Message::Image { request, part, image, held });
            };
            let late =
                || Err(Fault::new(Reason::DeadlineExceeded, "the deadline passed in the table"));
            if deadline <= Instant::now() {
                return send(late(), held);
            }
            let mut held = Some(held);
            run_to_end(rows.take(), deadline, |image| match image {
                Some(image) => {
                    // A panic in a library below is this batch's fault, not silence.
                    let panicked =
                        |_| Err(Fault::new(Reason::Internal, "reading the table panicked"));
                    send(image.unwrap_or_else(panicked), held.take().unwrap_or_default());
                }
                None => send(late(), HeldBytes::default()),
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

/// Runs `work` on a task of its own, since what computes doesn't look at the time, and gives `answer` what came of it,
/// or `None` at `deadline`. Returns once the work has ended, which after the deadline is when it next waits: what it
/// holds is to be held until then.
async fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    deadline: Instant,
    answer: impl FnOnce(Option<Result<T, JoinError>>),
) {
    let mut task = tokio::spawn(work);
    let done = tokio::time::timeout_at(deadline, &mut task).await.ok();
    let is_late = done.is_none();
    answer(done);
    if is_late {
        task.abort();
        // An error says that it was aborted.
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
            let mut read = BoundedRows::new(self.addrs.len(), REPLY_BYTES_MAX);
            for piece in read.pieces() {
                read.push(table.take(&self.addrs[piece], &columns).await?)?;
            }
            read.joined()?
        } else {
            table.take(&self.addrs, &columns).await?
        };
        Ok(pack.layout.encode(&widened(part.columns.as_slice(), &rows, pack))?)
    }
}

/// All of a pack's columns, nulls in place of those that weren't taken and won't be looked at.
fn widened(taken: &[usize], rows: &RecordBatch, pack: &crate::table::Pack) -> Vec<ArrayRef> {
    let fields = pack.layout.fields().iter().enumerate();
    let column =
        |(at, field): (usize, &arrow_schema::FieldRef)| match taken.iter().position(|&c| c == at) {
            Some(place) => Arc::clone(rows.column(place)),
            None => new_null_array(field.data_type(), rows.num_rows()),
        };
    fields.map(column).collect()
}

/// Asks the table for the rows of a request that have no other source. Whether there are any.
///
/// # Errors
/// When too many batches wait for the table.
pub fn request_rows(core: &Core, no: RequestNo) -> Result<bool, Fault> {
    let mut requests = core.requests.borrow_mut();
    let Some(request) = requests.get_mut(no) else { return Ok(true) };
    // Of other parts, which are not back yet.
    let mut asked = 0;
    for part in 0..request.sources.len() {
        let is_table = |s: &RowSource| matches!(s, RowSource::Table(_));
        if request.images[part].is_some() || !request.sources[part].iter().any(is_table) {
            continue;
        }
        let sources = request.sources[part].iter().enumerate();
        let addrs: Vec<_> = sources
            .filter(|(_, source)| is_table(source))
            .map(|(position, _)| RowAddr::from_u64(request.addr(position)))
            .collect();
        request.times.table_rows += addrs.len() as u32;
        core.stats.table_rows.add(addrs.len() as u64);
        let columns = &request.projection.parts[part];
        let bytes: u64 =
            addrs.iter().map(|&addr| read_bytes(&request.projection, columns, addr)).sum();
        // It is a guess, and a large one must not be refused for ever.
        let bytes = bytes.min(core.traffic_memory.max() / 2);
        let held = core
            .traffic_memory
            .hold(bytes, asked + request.held_bytes())
            .ok_or_else(|| out_of_memory(core, bytes))?;
        let (projection, deadline) = (Arc::clone(&request.projection), request.deadline);
        asked += bytes;
        let wanted = TableRead { rows: PartRows { projection, part, addrs }, deadline, held };
        core.shared.table_reader.take(wanted, no, core.shared.mailboxes[core.number].clone())?;
        request.images_left += 1;
    }
    Ok(request.images_left > 0)
}

/// What reading a row of a part from its table takes in memory, about: Lance's columns, and the image.
fn read_bytes(projection: &Projection, part: &PackProjection, addr: RowAddr) -> u64 {
    let variable = match part.is_variable {
        true => projection.table.variable_bytes(addr.fragment()),
        false => 0,
    };
    2 * (part.fixed_bytes + variable)
}

fn out_of_memory(core: &Core, bytes: u64) -> Fault {
    core.stats.shed.add(1);
    let what = format!(
        "there is no memory left to read {bytes} bytes from the table; try again later, or ask for fewer rows a batch"
    );
    Fault::new(Reason::Overloaded, what)
}

/// Keeps an image. Whether it was the last that the request waited for.
pub fn arrived(core: &Core, no: RequestNo, part: usize, image: Extent, held: HeldBytes) -> bool {
    let mut requests = core.requests.borrow_mut();
    let Some(request) = requests.get_mut(no) else { return false };
    request.images[part] = Some(image);
    request.images_held = std::mem::take(&mut request.images_held).and(held);
    request.images_left -= 1;
    request.images_left == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn late_work_is_answered_for_in_time_and_waited_for() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel();
        let computing = async move { held.recv().is_ok() };
        let deadline = Instant::now() + Duration::from_millis(50);
        let work = tokio::spawn(run_to_end(computing, deadline, move |done| {
            let _ = answers.send(done.map(Result::unwrap));
        }));
        assert_eq!(answered.recv().await, Some(None));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!work.is_finished(), "it still computes");
        hold.send(()).unwrap();
        work.await.unwrap();
        // What ends in time is what is answered, and what waits is dropped.
        let mut done = None;
        let later = Instant::now() + Duration::from_secs(60);
        run_to_end(async { 7 }, later, |it| done = it.map(Result::unwrap)).await;
        assert_eq!(done, Some(7));
        let soon = Instant::now() + Duration::from_millis(1);
        run_to_end(std::future::pending::<()>(), soon, |done| assert!(done.is_none())).await;
    }
}
