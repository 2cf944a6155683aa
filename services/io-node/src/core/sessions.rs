//! Fetch streams that are open on a core.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use traffic::Holder;
use wire::fetch::{Batch, FetchResponse, fetch_response};
use wire::{Fault, Reason};

use super::{HeldBytes, HeldProjection, RequestNo};
use crate::table::Projection;

/// Names a stream; never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionNo(u64);

/// A message on its way out, with the memory it holds until it is handed to the connection.
pub struct Outgoing {
    /// The message.
    pub response: FetchResponse,
    /// Credits that come back to the client with it.
    pub credit_rows: u32,
    /// Given back when this is dropped.
    pub held: Option<HeldBytes>,
}

impl Outgoing {
    /// A message that gives back `credit_rows` and holds `held`.
    pub fn new(kind: fetch_response::Kind, credit_rows: u32, held: Option<HeldBytes>) -> Self {
        Self { response: FetchResponse { kind: Some(kind) }, credit_rows, held }
    }
}

/// The most projections that one stream may have open.
pub const HANDLES_MAX: usize = 256;

/// Messages that hold no memory and that the client has not read, at which the stream ends rather than refuse another
/// batch. A refusal takes less than 512 bytes: so many fit into the 16 KiB that a stream is charged by being there.
pub const UNCOUNTED_MAX: usize = 32;

/// One stream.
pub struct Session {
    /// Takes what goes back. Bounded by the core's traffic memory, and by [`UNCOUNTED_MAX`] where that has
    /// no room, so it never has to wait.
    pub replies: mpsc::UnboundedSender<Outgoing>,
    /// Rows that the client may still ask for.
    pub credit_rows: u32,
    /// Batches under way, by the client's name.
    pub batches: HashMap<u64, RequestNo>,
    handles: HashMap<u32, Handle>,
    openings: u64,
    holder: Arc<Holder>,
    /// Messages that hold no memory and have not left.
    uncounted: usize,
    /// Openings under way, of closed handles too.
    opening: usize,
}

/// A projection that the client named.
pub enum Handle {
    /// Being opened.
    Opening {
        /// Which opening it is: a handle may be closed and taken again meanwhile.
        serial: u64,
        /// Batches that wait for it, with what they hold.
        waiting: Vec<(Batch, HeldBytes)>,
    },
    /// Open.
    Open {
        /// The projection.
        projection: Arc<Projection>,
        /// The memory that it holds.
        _held: HeldProjection,
    },
    /// Could not be opened.
    Failed {
        /// Why; batches get the same.
        fault: Fault,
        /// The memory that it holds.
        _held: HeldProjection,
    },
}

impl Session {
    /// A stream whose client has `credit_rows`; what its replies hold is `holder`'s.
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

    /// Sends a message, which gives back `credit_rows`, and holds `held` until it has left.
    pub fn send(&mut self, kind: fetch_response::Kind, credit_rows: u32, held: Option<HeldBytes>) {
        let held = held.map(|held| held.held_by(&self.holder));
        self.uncounted += usize::from(held.is_none());
        // A stream that has gone is removed by its own task.
        let _ = self.replies.send(Outgoing::new(kind, credit_rows, held));
    }

    /// A message has left, which gives back `credit_rows`; `is_counted` if it held memory.
    pub fn has_left(&mut self, credit_rows: u32, is_counted: bool) {
        self.credit_rows += credit_rows;
        // A Welcome, which is sent before there is a session, is not counted either.
        self.uncounted = self.uncounted.saturating_sub(usize::from(!is_counted));
    }

    /// Whether the client has left so many messages unread that hold no memory that it gets no other.
    pub fn reads_too_slowly(&self) -> bool {
        self.uncounted >= UNCOUNTED_MAX
    }

    /// Begins to open a projection under a new handle; the opening's serial number.
    ///
    /// # Errors
    /// A handle that is taken, or one too many.
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
        self.handles.insert(handle, Handle::Opening { serial, waiting });
        Ok(serial)
    }

    /// Ends the opening of a projection: the batches that waited for it. `None` if it was closed.
    pub fn opened(
        &mut self,
        handle: u32,
        opening: u64,
        state: Handle,
    ) -> Option<Vec<(Batch, HeldBytes)>> {
        self.opening -= 1;
        match self.handles.get_mut(&handle) {
            Some(Handle::Opening { serial, waiting }) if *serial == opening => {
                let waiting = std::mem::take(waiting);
                self.handles.insert(handle, state);
                Some(waiting)
            }
            _ => None,
        }
    }

    /// Forgets a projection; the batches that still waited for it.
    pub fn close(&mut self, handle: u32) -> Vec<(Batch, HeldBytes)> {
        match self.handles.remove(&handle) {
            Some(Handle::Opening { waiting, .. }) => waiting,
            _ => Vec::new(),
        }
    }

    /// Whether the client still waits for something.
    pub fn is_busy(&self) -> bool {
        let opening = |handle: &Handle| matches!(handle, Handle::Opening { .. });
        !self.batches.is_empty() || self.handles.values().any(opening)
    }

    /// Whether a batch of this id waits for its projection.
    pub fn waits(&self, id: u64) -> bool {
        let waits = |handle: &Handle| match handle {
            Handle::Opening { waiting, .. } => waiting.iter().any(|(batch, _)| batch.id == id),
            Handle::Open { .. } | Handle::Failed { .. } => false,
        };
        self.handles.values().any(waits)
    }

    /// Takes back a batch that waits for its projection.
    pub fn stop_waiting(&mut self, id: u64) -> Option<(Batch, HeldBytes)> {
        self.handles.values_mut().find_map(|handle| match handle {
            Handle::Opening { waiting, .. } => {
                let place = waiting.iter().position(|(batch, _)| batch.id == id)?;
                Some(waiting.remove(place))
            }
            Handle::Open { .. } | Handle::Failed { .. } => None,
        })
    }

    /// The handle's state.
    pub fn handle_mut(&mut self, handle: u32) -> Option<&mut Handle> {
        self.handles.get_mut(&handle)
    }
}

/// The streams.
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

    /// The stream, if it is still open.
    pub fn get_mut(&mut self, no: SessionNo) -> Option<&mut Session> {
        self.sessions.get_mut(&no)
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Those that are open, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// Ends a stream.
    pub fn remove(&mut self, no: SessionNo) {
        self.sessions.remove(&no);
    }
}

#[cfg(test)]
mod tests {
    use wire::fetch::Retire;
    use wire::fetch::fetch_response::Kind;

    use super::*;
    use crate::core::TrafficMemory;

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
