//! The state of one connected stream: the batches that wait or are outstanding, and the next message to send.
//!
//! Pure: no I/O and no clock. The stream's task passes incoming messages to the ledger and gets outgoing ones from it.
//!
//! ```text
//! admit ─► parked, until the batch's projection is open ─► ready, until the batch is next and there is credit
//!       ─► outstanding, until the reply arrives or the stream breaks
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arrow_schema::SchemaRef;
use prost::Message;
use scheduler::{Cost, FairQueue, Flow, Priority};
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::fetch::fetch_request::Kind;
use wire::fetch::{Batch, Batches, Cancel, Close, Open, Opened, Reply, Welcome};
use wire::{Fault, Reason, schema_from_bytes};

use super::context::FetchContext;
use super::credit::Credits;
use super::handles::{HandleState, Handles, Lookup, Waiters};
use super::job::{Command, Job};
use super::projection::ProjectionKey;
use super::reply::{RawReply, TripTimeline};

/// Metadata key of a fault that the client made because the node had not answered.
pub const UNANSWERED: &str = "unanswered";
/// Metadata key of such a fault if the node was asked to open a projection. It may have waited for the table's store.
pub const OPENING: &str = "opening";

/// A job whose projection is open.
struct Ready {
    job: Job,
    handle: u32,
}

impl Cost for Ready {
    fn cost(&self) -> u32 {
        self.job.row_addrs.len() as u32
    }
}

/// A batch that was sent.
struct Outstanding {
    rows: usize,
    flow: Flow,
    handle: u32,
    schema: SchemaRef,
    asked: Instant,
    without_credit: Option<(Instant, Instant)>,
    sent: Instant,
    /// The caller's channel; `None` once the batch is cancelled. The batch's credit is still given back when the reply
    /// arrives.
    answer: Option<oneshot::Sender<Result<RawReply, Fault>>>,
}

/// The time during which there was no credit for the next ready batch.
#[derive(Clone, Copy)]
struct CreditShortage {
    since: Instant,
    /// The end of the shortage; `None` while it lasts. Afterwards the batch may still wait for the connection.
    until: Option<Instant>,
}

/// The number of batches that waited for credit, and their total waiting time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CreditWaits {
    pub batches: u64,
    pub time: Duration,
}

pub(super) struct Ledger {
    batch_rows_max: usize,
    credits: Credits,
    handles: Handles,
    /// Opens, closes and cancels, in order. They are sent before batches.
    control: VecDeque<Kind>,
    ready: FairQueue<Ready>,
    shortage: Option<CreditShortage>,
    waits: CreditWaits,
    outstanding: HashMap<u64, Outstanding>,
    answered: u64,
}

impl Ledger {
    pub fn new(welcome: &Welcome, projections_max: usize) -> Self {
        Self {
            batch_rows_max: batch_rows_max(welcome),
            credits: Credits::new(welcome.credit_rows as usize),
            handles: Handles::new(projections_max),
            control: VecDeque::new(),
            ready: FairQueue::default(),
            shortage: None,
            waits: CreditWaits::default(),
            outstanding: HashMap::new(),
            answered: 0,
        }
    }

    /// Returns the number of rows sent and not yet replied to.
    pub fn outstanding_rows(&self) -> usize {
        self.credits.used_rows()
    }

    /// Returns the number of answers from the node: opened projections and replies.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Admits a caller's command.
    pub fn admit(&mut self, command: Command) {
        match command {
            Command::Fetch(job) if job.answer.is_closed() => {}
            Command::Fetch(job) => self.admit_job(*job),
            Command::Open { projection, answer } => match self.handle_of(&projection) {
                Err(fault) => drop(answer.send(Err(fault))),
                Ok(handle) => match self.handles.get_mut(handle).map(|entry| &mut entry.state) {
                    Some(HandleState::Open(schema)) => drop(answer.send(Ok(Arc::clone(schema)))),
                    Some(HandleState::Opening(waiters)) => waiters.opens.push(answer),
                    None => {}
                },
            },
            Command::OpenAnew(projection) => {
                let handle = self.handles.forget(&projection);
                self.close(handle);
            }
        }
    }

    fn release(&mut self, handle: u32) {
        let handle = self.handles.release(handle);
        self.close(handle);
    }

    fn close(&mut self, handle: Option<u32>) {
        self.control.extend(handle.map(|handle| Kind::Close(Close { handle })));
    }

    fn admit_job(&mut self, job: Job) {
        if job.row_addrs.len() > self.batch_rows_max {
            // The fetch was split by the batch limit of an earlier connection. `TooLarge` makes the client halve the
            // batch.
            let message = "the I/O node came back and takes smaller batches now; try again";
            return drop(job.answer.send(Err(Fault::new(Reason::TooLarge, message))));
        }
        let handle = match self.handle_of(&job.projection) {
            Ok(handle) => handle,
            Err(fault) => return drop(job.answer.send(Err(fault))),
        };
        let Some(entry) = self.handles.get_mut(handle) else { return };
        entry.users += 1;
        match &mut entry.state {
            HandleState::Open(_) => self.make_ready(job, handle),
            HandleState::Opening(waiters) => {
                job.opening.store(true, Relaxed);
                waiters.jobs.push(job);
            }
        }
    }

    fn make_ready(&mut self, job: Job, handle: u32) {
        let FetchContext { flow, priority, .. } = job.context;
        self.ready.push(Ready { job, handle }, flow, priority);
    }

    fn handle_of(&mut self, projection: &Arc<ProjectionKey>) -> Result<u32, Fault> {
        match self.handles.look_up(projection) {
            Lookup::Known(handle) => Ok(handle),
            Lookup::New { handle, evicted } => {
                self.close(evicted);
                let ProjectionKey {
                    table_uri,
                    branch,
                    version,
                    identity,
                    columns,
                    file,
                    file_bytes,
                } = projection.as_ref();
                self.control.push_back(Kind::Open(Open {
                    handle,
                    table_uri: table_uri.clone(),
                    version: *version,
                    columns: columns.clone(),
                    identity: identity.clone(),
                    file: file.clone(),
                    file_bytes: *file_bytes,
                    branch: branch.clone(),
                }));
                Ok(handle)
            }
            Lookup::Full => Err(Fault::new(
                Reason::Overloaded,
                "every projection that may be open on this stream is in use; try again",
            )),
        }
    }

    /// Cancels batch `id`, whose caller is gone.
    pub fn cancel(&mut self, id: u64) {
        if let Some(batch) = self.outstanding.get_mut(&id) {
            batch.answer = None;
            self.control.push_back(Kind::Cancel(Cancel { id }));
        } else if let Some(ready) = self.ready.remove(|ready| ready.job.id == id) {
            self.release(ready.handle);
        } else {
            for entry in self.handles.entries_mut() {
                if let HandleState::Opening(waiters) = &mut entry.state {
                    let before = waiters.jobs.len();
                    waiters.jobs.retain(|job| job.id != id);
                    entry.users -= before - waiters.jobs.len();
                }
            }
        }
    }

    /// Returns whether there is a message to send.
    pub fn has_message(&self) -> bool {
        !self.control.is_empty() || self.has_credit()
    }

    /// Returns whether there is credit for the next ready batch.
    fn has_credit(&self) -> bool {
        self.next_ready().is_some_and(|ready| self.credits.fits(ready.job.row_addrs.len()))
    }

    /// Returns the next ready batch. Skips flows that have too little of their share of the credit left for their next
    /// batch.
    fn next_ready(&self) -> Option<&Ready> {
        self.ready.first(|flow, ready| self.credits.fits_share(ready.job.row_addrs.len(), flow))
    }

    /// Records the start or end of a shortage of credit for the next ready batch. Calls `now` only if there is a start
    /// or an end to record.
    pub fn check_credit(&mut self, now: impl FnOnce() -> Instant) {
        if self.ready.is_empty() {
            self.shortage = None;
        } else if !self.has_credit() {
            match &mut self.shortage {
                Some(shortage) => shortage.until = None,
                none => *none = Some(CreditShortage { since: now(), until: None }),
            }
        } else if let Some(CreditShortage { until: until @ None, .. }) = &mut self.shortage {
            *until = Some(now());
        }
    }

    /// Takes the waits for credit that have ended since the last call.
    pub fn take_waits(&mut self) -> CreditWaits {
        std::mem::take(&mut self.waits)
    }

    /// Ends the wait for credit of a batch that was handed over at `asked`. Returns the start and end of the wait, or
    /// `None` if the batch did not wait for credit.
    fn end_wait(
        &mut self,
        shortage: Option<CreditShortage>,
        asked: Instant,
        now: Instant,
    ) -> Option<(Instant, Instant)> {
        let shortage = shortage?;
        let (since, until) = (shortage.since.max(asked), shortage.until.unwrap_or(now));
        // A batch that arrived after the shortage has waited only for the connection.
        let waited = until.checked_duration_since(since)?;
        self.waits.batches += 1;
        self.waits.time += waited;
        Some((since, until))
    }

    /// Returns the next message: a control message if there is one, otherwise the next ready batches, up to the credit
    /// and the size of a message. If there is no credit for the next batch, all batches behind it wait too, because
    /// large batches would starve otherwise. If a flow has used its share of the credit, only that flow's batches wait.
    pub fn next_message(&mut self, now: Instant) -> Option<Kind> {
        if let Some(kind) = self.control.pop_front() {
            return Some(kind);
        }
        let shortage = self.shortage.take();
        let mut batches = Vec::new();
        let mut bytes = 0;
        while bytes < wire::REQUEST_BYTES_FILLED {
            let Some(next) = self.next_ready() else { break };
            if !self.credits.fits(next.job.row_addrs.len()) && !next.job.is_over(now) {
                break;
            }
            let credits = &self.credits;
            let may = |flow, it: &Ready| credits.fits_share(it.job.row_addrs.len(), flow);
            let Some(Ready { job, handle }) = self.ready.pop_first(may) else { break };
            if job.is_over(now) {
                self.release(handle);
                self.end_wait(shortage, job.asked, now);
                let fault = deadline_passed(job.opening.load(Relaxed));
                drop(job.answer.send(Err(fault)));
                continue;
            }
            let entry = self.handles.get_mut(handle);
            let Some(HandleState::Open(schema)) = entry.map(|entry| &entry.state) else { continue };
            let schema = Arc::clone(schema);
            let flow = job.context.flow;
            self.credits.take(job.row_addrs.len(), flow, now);
            let without_credit = self.end_wait(shortage, job.asked, now);
            let Job { id, row_addrs, rerank, predicate, context, asked, answer, .. } = job;
            let timeout_us = (context.deadline - now).as_micros().clamp(1, u64::MAX as u128) as u64;
            let (rows, answer) = (row_addrs.len(), Some(answer));
            let sent = now;
            let batch =
                Outstanding { rows, flow, handle, schema, asked, without_credit, sent, answer };
            self.outstanding.insert(id, batch);
            let priority = match context.priority {
                Priority::Interactive => wire::fetch::Priority::Interactive,
                Priority::Batch => wire::fetch::Priority::Batch,
            };
            let traceparent = context.span.map(|span| span.to_string()).unwrap_or_default();
            let batch = Batch {
                id,
                handle,
                row_addrs,
                rerank,
                timeout_us,
                priority: priority.into(),
                traceparent,
                flow: flow.id(),
                weight: flow.weight(),
                predicate,
            };
            bytes += batch.encoded_len();
            batches.push(batch);
        }
        if !self.ready.is_empty() && !self.has_credit() {
            let since = shortage.map_or(now, |shortage| shortage.since);
            self.shortage = Some(CreditShortage { since, until: None });
        }
        (!batches.is_empty()).then_some(Kind::Batches(Batches { batches }))
    }

    /// Handles the node's answer to an open. An `Err` means that the node broke the protocol.
    pub fn on_opened(&mut self, opened: Opened) -> Result<(), Fault> {
        self.answered += 1;
        let handle = opened.handle;
        let result = match opened.error {
            Some(error) => Err(error.into()),
            None => Ok(schema_from_bytes(&opened.schema)
                .map_err(|e| broken(format!("a schema could not be read: {e}")))?),
        };
        let entry = self.handles.get_mut(handle);
        let Some(HandleState::Opening(waiters)) = entry.map(|entry| &mut entry.state) else {
            return Err(broken(format!("projection {handle} was opened without being asked for")));
        };
        let Waiters { jobs, opens } = std::mem::take(waiters);
        match result {
            Err(fault) => {
                self.handles.remove(handle);
                // The node keeps the fault under the handle until the handle is closed.
                self.close(Some(handle));
                refuse(jobs, opens, &fault);
            }
            Ok(schema) => {
                let schema = Arc::new(schema);
                opens.into_iter().for_each(|open| drop(open.send(Ok(Arc::clone(&schema)))));
                if let Some(entry) = self.handles.get_mut(handle) {
                    entry.state = HandleState::Open(schema);
                }
                jobs.into_iter().for_each(|job| self.make_ready(job, handle));
            }
        }
        Ok(())
    }

    /// Handles the node's reply to a batch. An `Err` means that the node broke the protocol.
    pub fn on_reply(&mut self, reply: Reply, now: Instant) -> Result<(), Fault> {
        let Some(batch) = self.outstanding.remove(&reply.id) else {
            return Err(broken(format!("batch {} was answered without being asked", reply.id)));
        };
        self.answered += 1;
        self.credits.give_back(batch.rows, batch.flow);
        self.release(batch.handle);
        if let Some(answer) = batch.answer {
            let Outstanding { schema, asked, without_credit, sent, .. } = batch;
            let timeline = TripTimeline { asked, without_credit, sent, answered: now };
            drop(answer.send(Ok(RawReply { reply, schema, timeline })));
        }
        Ok(())
    }

    /// Returns whether a caller still waits for a reply from the node.
    pub fn has_outstanding(&self) -> bool {
        let waits = |batch: &Outstanding| batch.answer.as_ref().is_some_and(|it| !it.is_closed());
        self.outstanding.values().any(waits)
    }

    /// Takes the commands that were not sent, in order: first those that wait for a projection to be opened, then the
    /// ready batches.
    pub fn take_unsent(&mut self) -> Vec<Command> {
        let mut unsent = Vec::new();
        for entry in self.handles.entries_mut() {
            if let HandleState::Opening(waiters) = &mut entry.state {
                let Waiters { jobs, opens } = std::mem::take(waiters);
                let projection = &entry.projection;
                let open = |answer| Command::Open { projection: Arc::clone(projection), answer };
                unsent.extend(opens.into_iter().map(open));
                unsent.extend(jobs.into_iter().map(Box::new).map(Command::Fetch));
            }
        }
        let ready = std::iter::from_fn(|| self.ready.pop());
        unsent.extend(ready.map(|ready| Command::Fetch(Box::new(ready.job))));
        self.control.clear();
        unsent
    }

    /// Fails all waiting and outstanding requests with `fault`, after the stream broke.
    pub fn fail(mut self, fault: &Fault) {
        // Fail the batches in the order of the requests, because the map's order differs from run to run.
        let mut outstanding: Vec<_> = self.outstanding.into_iter().collect();
        outstanding.sort_unstable_by_key(|(id, _)| *id);
        for (_, batch) in outstanding {
            if let Some(answer) = batch.answer {
                drop(answer.send(Err(fault.clone())));
            }
        }
        let mut ready: Vec<_> = self.ready.into_work().map(|ready| ready.job).collect();
        ready.sort_unstable_by_key(|job| job.id);
        for job in ready {
            drop(job.answer.send(Err(fault.clone())));
        }
        for entry in self.handles.entries_mut() {
            if let HandleState::Opening(waiters) = &mut entry.state {
                let Waiters { jobs, opens } = std::mem::take(waiters);
                refuse(jobs, opens, fault);
            }
        }
    }
}

/// Returns the maximum number of rows in one batch of this stream. No batch may need more than the whole credit.
pub(super) fn batch_rows_max(welcome: &Welcome) -> usize {
    welcome.batch_rows_max.min(welcome.credit_rows) as usize
}

/// `is_opening` says whether the node was asked to open a projection.
pub(super) fn deadline_passed(is_opening: bool) -> Fault {
    let fault = Fault::new(
        Reason::DeadlineExceeded,
        "the deadline passed before the I/O node answered; allow more time",
    )
    .with(UNANSWERED, true);
    if is_opening { fault.with(OPENING, true) } else { fault }
}

fn broken(message: String) -> Fault {
    Fault::new(Reason::BadProtocol, format!("the I/O node broke the protocol: {message}"))
}

fn refuse(jobs: Vec<Job>, opens: Vec<oneshot::Sender<Result<SchemaRef, Fault>>>, fault: &Fault) {
    jobs.into_iter().for_each(|job| drop(job.answer.send(Err(fault.clone()))));
    opens.into_iter().for_each(|open| drop(open.send(Err(fault.clone()))));
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
