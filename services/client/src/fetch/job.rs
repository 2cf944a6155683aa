//! What callers hand to a stream's task.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wire::Fault;

use super::context::FetchContext;
use super::projection::ProjectionKey;
use super::reply::TripTimeline;
use super::state::QueuePlace;

/// What one caller is answered, undecoded: decoding is the caller's work, not the stream's.
pub(super) struct RawReply {
    pub reply: wire::fetch::Reply,
    pub schema: SchemaRef,
    pub timeline: TripTimeline,
}

/// One batch.
pub(super) struct Job {
    /// Never used twice by one client.
    pub id: u64,
    pub projection: Arc<ProjectionKey>,
    pub row_addrs: Vec<u64>,
    pub rerank: Option<wire::fetch::Rerank>,
    pub context: FetchContext,
    /// When it was handed over.
    pub asked: Instant,
    /// Given up when the batch is sent, or dropped.
    pub _place: QueuePlace,
    pub answer: oneshot::Sender<Result<RawReply, Fault>>,
}

/// A request to a stream's task.
pub(super) enum Command {
    Fetch(Job),
    Open { projection: Arc<ProjectionKey>, answer: oneshot::Sender<Result<SchemaRef, Fault>> },
}

impl Command {
    /// Answers that it can't be done.
    pub fn fail(self, fault: Fault) {
        // A caller that has gone needs no answer.
        match self {
            Command::Fetch(job) => drop(job.answer.send(Err(fault))),
            Command::Open { answer, .. } => drop(answer.send(Err(fault))),
        }
    }
}

/// Cancels its batch when dropped before [`Ticket::done`].
pub(super) struct Ticket<'a> {
    id: u64,
    // Unbounded, but never longer than the batches that wait or are outstanding.
    cancels: Option<&'a mpsc::UnboundedSender<u64>>,
}

impl<'a> Ticket<'a> {
    pub fn new(id: u64, cancels: &'a mpsc::UnboundedSender<u64>) -> Self {
        Self { id, cancels: Some(cancels) }
    }

    /// The batch was answered.
    pub fn done(mut self) {
        self.cancels = None;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(cancels) = self.cancels {
            // A stream without a task has nothing to cancel.
            let _ = cancels.send(self.id);
        }
    }
}
