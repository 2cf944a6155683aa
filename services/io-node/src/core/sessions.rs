//! Fetch streams that are open on a core.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use wire::fetch::{Batch, FetchResponse, fetch_response};
use wire::{Fault, Reason};

use super::{HeldBytes, RequestNo};
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

/// One stream.
pub struct Session {
    /// Takes what goes back. Bounded by credits and by the core's memory for replies, so it never has
    /// to wait.
    pub replies: mpsc::UnboundedSender<Outgoing>,
    /// Rows that the client may still ask for.
    pub credit_rows: u32,
    /// Batches under way, by the client's name.
    pub batches: HashMap<u64, RequestNo>,
    handles: HashMap<u32, Handle>,
    openings: u64,
    _held: HeldBytes,
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
    Open(Arc<Projection>),
    /// Could not be opened; batches get the same fault.
    Failed(Fault),
}

impl Session {
    /// A stream whose client has `credit_rows`, and which holds some memory itself.
    pub fn new(
        replies: mpsc::UnboundedSender<Outgoing>,
        credit_rows: u32,
        held: HeldBytes,
    ) -> Self {
        Self {
            replies,
            credit_rows,
            batches: HashMap::new(),
            handles: HashMap::new(),
            openings: 0,
            _held: held,
            opening: 0,
        }
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
            Handle::Open(_) | Handle::Failed(_) => false,
        };
        self.handles.values().any(waits)
    }

    /// Takes back a batch that waits for its projection.
    pub fn stop_waiting(&mut self, id: u64) -> Option<Batch> {
        self.handles.values_mut().find_map(|handle| match handle {
            Handle::Opening { waiting, .. } => {
                let place = waiting.iter().position(|(batch, _)| batch.id == id)?;
                Some(waiting.remove(place).0)
            }
            Handle::Open(_) | Handle::Failed(_) => None,
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
