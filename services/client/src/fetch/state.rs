//! The state that a stream's task shares with callers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use scheduler::{Flow, Places};
use tokio::sync::Notify;
use wire::Fault;

/// The state of a stream's connection.
#[derive(Clone, Debug)]
pub(super) enum LinkState {
    /// An attempt to connect that callers wait for: the very first one, the first one after a stream was retired, or
    /// the first one after a stream broke on which the node had answered a request.
    Connecting,
    /// Connected and welcomed.
    Up { batch_rows_max: usize },
    /// The last attempt failed, or its stream broke before the node had answered a request on it. Further attempts
    /// follow, but callers do not wait for them.
    Down(Fault),
}

/// The state of a stream, shared by its task and its callers.
pub(super) struct StreamState {
    link: RwLock<LinkState>,
    /// Notified when the link of any of the client's streams changes. A watch channel would wake waiting callers in
    /// random order; they must continue in the order of their arrival.
    links_changed: Arc<Notify>,
    /// The queue places of batches that were handed over and not yet sent. Callers and the stream's task usually run on
    /// one thread, so the lock is rarely contended.
    places: Mutex<Places>,
    pub outstanding_rows: AtomicUsize,
    /// Maximum number of outstanding rows that the node allows; 0 while the stream is not connected.
    pub credit_rows: AtomicUsize,
    pub credit_waits: AtomicU64,
    pub credit_wait_us: AtomicU64,
    pub batches: AtomicU64,
    pub messages: AtomicU64,
    pub connections: AtomicU64,
}

impl StreamState {
    /// Creates the state of a stream whose queue has room for `batches_max` batches.
    pub fn new(links_changed: Arc<Notify>, batches_max: usize) -> Self {
        Self {
            link: RwLock::new(LinkState::Connecting),
            links_changed,
            places: Mutex::new(Places::new(batches_max)),
            outstanding_rows: AtomicUsize::new(0),
            credit_rows: AtomicUsize::new(0),
            credit_waits: AtomicU64::new(0),
            credit_wait_us: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of batches that were handed over and not yet sent.
    pub fn waiting(&self) -> usize {
        self.places().taken()
    }

    pub fn link(&self) -> RwLockReadGuard<'_, LinkState> {
        self.link.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_link(&self, link: LinkState) {
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = link;
        self.links_changed.notify_waiters();
    }

    pub fn add_to(&self, total: &mut Counters) {
        let up = matches!(*self.link(), LinkState::Up { .. });
        total.streams_up += usize::from(up);
        total.waiting_batches += self.waiting();
        total.outstanding_rows += self.outstanding_rows.load(Ordering::Relaxed);
        total.credit_rows += self.credit_rows.load(Ordering::Relaxed);
        total.credit_waits += self.credit_waits.load(Ordering::Relaxed);
        total.credit_wait_us += self.credit_wait_us.load(Ordering::Relaxed);
        total.batches += self.batches.load(Ordering::Relaxed);
        total.messages += self.messages.load(Ordering::Relaxed);
        total.connections += self.connections.load(Ordering::Relaxed);
    }
}

/// A place in a stream's queue, held by a batch until it is sent.
pub(super) struct QueuePlace {
    shared: Arc<StreamState>,
    flow: Flow,
}

impl QueuePlace {
    /// Takes a place for a flow. Returns `None` if the queue is full, or the flow may not take more places.
    pub fn take(shared: &Arc<StreamState>, flow: Flow) -> Option<Self> {
        let has_room = shared.places().take(flow);
        has_room.then(|| Self { shared: Arc::clone(shared), flow })
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.shared.places().give_back(self.flow);
    }
}

/// A client's gauges and counters, over all its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that are connected now.
    pub streams_up: usize,
    /// Batches that are not yet sent.
    pub waiting_batches: usize,
    /// Rows sent and not yet replied to.
    pub outstanding_rows: usize,
    /// Maximum number of outstanding rows.
    pub credit_rows: usize,
    /// Batches that waited for credit since the start.
    pub credit_waits: u64,
    /// Total time for which batches waited for credit, in microseconds.
    pub credit_wait_us: u64,
    /// Batches sent since the start.
    pub batches: u64,
    /// Messages that carried these batches. One message carries all waiting batches for which there is credit and room.
    pub messages: u64,
    /// Connections made since the start.
    pub connections: u64,
    /// Batches and Opens tried a second time because their stream broke.
    pub retries: u64,
}
