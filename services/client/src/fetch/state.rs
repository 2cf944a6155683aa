//! What a stream's task lets others see of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;
use wire::Fault;

/// Whether a stream can be used.
#[derive(Clone, Debug)]
pub(super) enum LinkState {
    /// For the first time, or for the first time after it broke: worth waiting for.
    Connecting,
    /// Connected and welcomed.
    Up { batch_rows_max: usize },
    /// The last attempt failed; others follow, but nobody waits for them.
    Down(Fault),
}

/// StreamState between a stream's task and its callers.
pub(super) struct StreamState {
    link: RwLock<LinkState>,
    /// Of all of the client's streams. Not a watch: that wakes who waits in an order of chance, and callers are to go
    /// on in the order in which they came.
    links_changed: Arc<Notify>,
    /// Batches handed over and not yet sent.
    pub waiting: AtomicUsize,
    pub outstanding_rows: AtomicUsize,
    /// Rows that the node lets be outstanding; 0 while it is not connected.
    pub credit_rows: AtomicUsize,
    pub credit_waits: AtomicU64,
    pub credit_wait_us: AtomicU64,
    pub batches: AtomicU64,
    pub messages: AtomicU64,
    pub connections: AtomicU64,
}

impl StreamState {
    pub fn new(links_changed: Arc<Notify>) -> Self {
        Self {
            link: RwLock::new(LinkState::Connecting),
            links_changed,
            waiting: AtomicUsize::new(0),
            outstanding_rows: AtomicUsize::new(0),
            credit_rows: AtomicUsize::new(0),
            credit_waits: AtomicU64::new(0),
            credit_wait_us: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
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
        total.waiting_batches += self.waiting.load(Ordering::Relaxed);
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
pub(super) struct QueuePlace(Arc<StreamState>);

impl QueuePlace {
    /// A place, unless `places_max` are taken.
    pub fn take(shared: &Arc<StreamState>, places_max: usize) -> Option<Self> {
        let taken = shared.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(shared));
        (taken < places_max).then_some(place)
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client's gauges and counters, over all its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that are connected now.
    pub streams_up: usize,
    /// Batches that wait for credit now.
    pub waiting_batches: usize,
    /// Rows sent and not yet replied to now.
    pub outstanding_rows: usize,
    /// Rows that may be.
    pub credit_rows: usize,
    /// Batches that waited for credit since the start.
    pub credit_waits: u64,
    /// How long they did, together, in microseconds.
    pub credit_wait_us: u64,
    /// Batches sent since the start.
    pub batches: u64,
    /// Messages that carried them: fewer, when several batches waited.
    pub messages: u64,
    /// Connections made since the start.
    pub connections: u64,
    /// Batches tried a second time because their stream broke.
    pub retries: u64,
}
