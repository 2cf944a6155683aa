//! The commands that callers send to a stream's task.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_schema::SchemaRef;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wire::Fault;

use super::context::FetchContext;
use super::projection::ProjectionKey;
use super::reply::RawReply;
use super::state::QueuePlace;

/// One batch.
pub(super) struct Job {
    /// The batch's id, unique within a client.
    pub id: u64,
    pub projection: Arc<ProjectionKey>,
    pub row_addrs: Vec<u64>,
    pub rerank: Option<wire::fetch::Rerank>,
    pub predicate: Option<wire::fetch::Predicate>,
    pub context: FetchContext,
    /// When the batch was handed to the stream.
    pub asked: Instant,
    /// Whether the batch waits, or has waited, for the I/O node to open the projection: then it says little of the node if
    /// there is no reply in time.
    pub opening: Arc<AtomicBool>,
    /// The batch's place in the stream's queue, freed when the batch is sent or dropped.
    pub _place: QueuePlace,
    pub answer: oneshot::Sender<Result<RawReply, Fault>>,
}

impl Job {
    /// Returns whether the answer is no longer needed: the deadline has passed, or the caller is gone.
    pub fn is_over(&self, now: Instant) -> bool {
        self.context.deadline <= now || self.answer.is_closed()
    }
}

/// A request to a stream's task.
pub(super) enum Command {
    Fetch(Box<Job>),
    Open {
        projection: Arc<ProjectionKey>,
        answer: oneshot::Sender<Result<SchemaRef, Fault>>,
    },
    /// Has later commands open the projection anew.
    OpenAnew(Arc<ProjectionKey>),
}

impl Command {
    /// Answers the command with a fault.
    pub fn fail(self, fault: Fault) {
        // The caller may be gone.
        match self {
            Command::Fetch(job) => drop(job.answer.send(Err(fault))),
            Command::Open { answer, .. } => drop(answer.send(Err(fault))),
            // Without a stream, no projection is open.
            Command::OpenAnew(_) => {}
        }
    }
}

/// Cancels a batch when the ticket is dropped, unless [`Ticket::done`] was called.
pub(super) struct Ticket<'a> {
    id: u64,
    // The channel is unbounded, but never has more ids than there are batches that wait or are outstanding.
    cancels: Option<&'a mpsc::UnboundedSender<u64>>,
}

impl<'a> Ticket<'a> {
    pub fn new(id: u64, cancels: &'a mpsc::UnboundedSender<u64>) -> Self {
        Self { id, cancels: Some(cancels) }
    }

    /// Records that the batch was answered.
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
