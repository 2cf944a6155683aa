//! Fetch streams that are open on a core.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use traffic::Holder;
use wire::fetch::{Batch, FetchResponse, fetch_response};
use wire::{Fault, Reason};

use crate::shard::{HeldBytes, HeldProjection, RequestNo, SessionNo};
use crate::table::Projection;

/// An outgoing message, with the memory that it holds until its last byte has been sent.
pub struct Outgoing {
    /// The message.
    pub response: FetchResponse,
    /// Credits that the message returns to the client.
    pub credit_rows: u32,
    /// The memory that the message holds. The message's parts take it over (`serve/reply_body.rs`).
    pub held: Option<HeldBytes>,
}

impl Outgoing {
    /// Creates a message that returns `credit_rows` and holds `held`.
    pub fn new(kind: fetch_response::Kind, credit_rows: u32, held: Option<HeldBytes>) -> Self {
        Self { response: FetchResponse { kind: Some(kind) }, credit_rows, held }
    }
}

/// The maximum number of projections that one stream may have open. Clients keep as many open by default
/// (`projections_max` of their `FetchOptions`). The memory of all projections of a core is bounded too
/// (`shard/projection_memory.rs`).
pub const HANDLES_MAX: usize = 256;

/// The maximum number of unread messages of a stream that hold no traffic memory. A stream that has this many is ended
/// when another batch or Open must be refused and there is no memory for the refusal either. A refusal takes less than
/// 512 bytes, so this many fit into the 16 KiB that every open stream is charged.
pub const UNCOUNTED_MAX: usize = 32;

/// An open Fetch stream.
pub struct Session {
    /// Outgoing messages. The core's traffic memory bounds their number. Once that memory is full, [`UNCOUNTED_MAX`]
    /// bounds the number of further ones. So the channel itself needs no bound, and sending never waits.
    pub replies: mpsc::UnboundedSender<Outgoing>,
    /// Rows that the client may still request.
    pub credit_rows: u32,
    /// Batches under way, by the client's id.
    pub batches: HashMap<u64, RequestNo>,
    handles: HashMap<u32, ProjectionHandle>,
    /// The number of openings so far.
    openings: u64,
    holder: Arc<Holder>,
    /// The number of messages that hold no memory and were not handed to the connection yet.
    uncounted: usize,
    /// The number of openings under way, including those of closed handles.
    opening: usize,
}

/// A batch that has arrived.
pub struct Arrived {
    pub batch: Batch,
    /// The memory that the batch holds.
    pub held: HeldBytes,
    /// The time of its arrival, from which its timeout is counted.
    pub at: Instant,
}

/// The state of a projection's handle, which is a number that the client chose.
pub enum ProjectionHandle {
    /// The projection is being opened.
    Opening {
        /// The serial number of the opening. It identifies the opening, because the handle may be closed and reused in
        /// the meantime.
        serial: u64,
        /// Batches that wait for the projection.
        waiting: Vec<Arrived>,
    },
    /// The projection is open.
    Open {
        projection: Arc<Projection>,
        /// The memory that the projection holds.
        _held: HeldProjection,
    },
    /// The projection failed to open.
    Failed {
        /// The reason, which is also the answer to batches that name the handle.
        fault: Fault,
        /// The memory that the failed handle holds.
        _held: HeldProjection,
    },
}

impl Session {
    /// Creates a stream whose client has `credit_rows`. The memory of its replies is attributed to `holder`.
    pub fn new(
        replies: mpsc::UnboundedSender<Outgoing>,
        credit_rows: u32,
        holder: Arc<Holder>,
    ) -> Self {
        Self {
            replies,
            credit_rows,
            batches: HashMap::new(),
            handles: HashMap::new(),
            openings: 0,
            holder,
            uncounted: 0,
            opening: 0,
        }
    }

    /// Sends a message that returns `credit_rows`, and holds `held` until its last byte has been sent.
    pub fn send(&mut self, kind: fetch_response::Kind, credit_rows: u32, held: Option<HeldBytes>) {
        let held = held.map(|held| held.held_by(&self.holder));
        self.uncounted += usize::from(held.is_none());
        // If the stream was closed, its own task removes the session.
        let _ = self.replies.send(Outgoing::new(kind, credit_rows, held));
    }

    /// Records that a message was handed to the connection, and returns the message's `credit_rows` to the client.
    /// `is_counted` says whether the message holds memory.
    pub fn has_left(&mut self, credit_rows: u32, is_counted: bool) {
        self.credit_rows += credit_rows;
        // Saturates because the Welcome is sent before the session exists, and was never counted.
        self.uncounted = self.uncounted.saturating_sub(usize::from(!is_counted));
    }

    /// Returns whether [`UNCOUNTED_MAX`] messages that hold no memory are unread.
    pub fn reads_too_slowly(&self) -> bool {
        self.uncounted >= UNCOUNTED_MAX
    }

    /// Begins to open a projection under a new handle. Returns the opening's serial number.
    ///
    /// # Errors
    /// The handle is in use, or the stream has too many handles or openings under way.
    pub fn open(&mut self, handle: u32) -> Result<u64, Fault> {
        if self.handles.contains_key(&handle) {
            let what = format!("handle {handle} is open already; close it first");
            return Err(Fault::new(Reason::BadProtocol, what));
        }
        if self.handles.len().max(self.opening) >= HANDLES_MAX {
            let what = format!("{HANDLES_MAX} projections are open on this stream; close some");
            return Err(Fault::new(Reason::Overloaded, what));
        }
        self.openings += 1;
        self.opening += 1;
        let (serial, waiting) = (self.openings, Vec::new());
        self.handles.insert(handle, ProjectionHandle::Opening { serial, waiting });
        Ok(serial)
    }

    /// Takes back [`open`](Self::open), before any batch waits for the projection.
    pub fn cancel_open(&mut self, handle: u32) {
        self.opening -= 1;
        let waiting = self.close(handle);
        assert!(waiting.is_empty(), "batches wait for a projection that is not being opened");
    }

    /// Ends the opening of a projection. Returns the batches that waited for it, or `None` if the handle was closed.
    pub fn opened(
        &mut self,
        handle: u32,
        opening: u64,
        state: ProjectionHandle,
    ) -> Option<Vec<Arrived>> {
        self.opening -= 1;
        match self.handles.get_mut(&handle) {
            Some(ProjectionHandle::Opening { serial, waiting }) if *serial == opening => {
                let waiting = std::mem::take(waiting);
                self.handles.insert(handle, state);
                Some(waiting)
            }
            _ => None,
        }
    }

    /// Closes a projection. Returns the batches that still waited for it.
    pub fn close(&mut self, handle: u32) -> Vec<Arrived> {
        match self.handles.remove(&handle) {
            Some(ProjectionHandle::Opening { waiting, .. }) => waiting,
            _ => Vec::new(),
        }
    }

    /// Returns whether the client still waits for a batch or an opening.
    pub fn is_busy(&self) -> bool {
        let opening =
            |handle: &ProjectionHandle| matches!(handle, ProjectionHandle::Opening { .. });
        !self.batches.is_empty() || self.handles.values().any(opening)
    }

    /// Returns whether the batch with this id waits for its projection.
    pub fn waits(&self, id: u64) -> bool {
        let waits = |handle: &ProjectionHandle| match handle {
            ProjectionHandle::Opening { waiting, .. } => waiting.iter().any(|it| it.batch.id == id),
            ProjectionHandle::Open { .. } | ProjectionHandle::Failed { .. } => false,
        };
        self.handles.values().any(waits)
    }

    /// Removes a batch that waits for its projection.
    pub fn stop_waiting(&mut self, id: u64) -> Option<Arrived> {
        self.handles.values_mut().find_map(|handle| match handle {
            ProjectionHandle::Opening { waiting, .. } => {
                let at = waiting.iter().position(|it| it.batch.id == id)?;
                Some(waiting.remove(at))
            }
            ProjectionHandle::Open { .. } | ProjectionHandle::Failed { .. } => None,
        })
    }

    /// Returns the handle's state.
    pub fn handle_mut(&mut self, handle: u32) -> Option<&mut ProjectionHandle> {
        self.handles.get_mut(&handle)
    }
}

/// The open streams of a core.
#[derive(Default)]
pub struct Sessions {
    sessions: HashMap<SessionNo, Session>,
    next: u64,
}

impl Sessions {
    /// Adds a stream.
    pub fn add(&mut self, session: Session) -> SessionNo {
        let no = SessionNo(self.next);
        self.next += 1;
        self.sessions.insert(no, session);
        no
    }

    /// Returns the stream if it is still open.
    pub fn get_mut(&mut self, no: SessionNo) -> Option<&mut Session> {
        self.sessions.get_mut(&no)
    }

    /// Returns the number of open streams.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the open streams, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// Removes a stream.
    pub fn remove(&mut self, no: SessionNo) {
        self.sessions.remove(&no);
    }
}

#[cfg(test)]
mod tests {
    use wire::fetch::Retire;
    use wire::fetch::fetch_response::Kind;

    use super::*;
    use crate::shard::TrafficMemory;

    #[test]
    fn unread_messages_count_until_they_leave() {
        let (replies, mut unread) = mpsc::unbounded_channel();
        let (memory, holder) = (TrafficMemory::new(1000), Arc::new(Holder::default()));
        let mut session = Session::new(replies, 8, Arc::clone(&holder));
        for _ in 0..UNCOUNTED_MAX {
            assert!(!session.reads_too_slowly());
            session.send(Kind::Retire(Retire {}), 0, None);
        }
        assert!(session.reads_too_slowly());
        session.send(Kind::Retire(Retire {}), 2, memory.hold(300, 0));
        assert_eq!((memory.used(), holder.bytes()), (300, 300));
        let first = unread.try_recv().unwrap();
        session.has_left(first.credit_rows, first.held.is_some());
        assert!(!session.reads_too_slowly());
        while let Ok(message) = unread.try_recv() {
            session.has_left(message.credit_rows, message.held.is_some());
        }
        assert_eq!((memory.used(), holder.bytes()), (0, 0));
        assert_eq!((session.credit_rows, session.uncounted), (10, 0));
    }
}
