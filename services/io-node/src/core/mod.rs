//! One core: its ring, its replica of the directory, its RAM tier, and the requests on it.
//!
//! A request stays on the core whose connection it came over. Everything here belongs to the
//! core's thread and is reached through [`here`]; other threads talk to it through its
//! [`mailbox`]. Tasks find it by [`here`] instead of holding it, because a spawned task has to be
//! `Send` and nothing of a core is.

pub mod grace;
pub mod mailbox;
mod projection_memory;
mod requests;
mod run;
mod sessions;
mod stats;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use connections::idle::ActivityCounter;
use ring::Ring;
use wire::BufferPool;

use crate::directory::Directory;
use crate::node::Shared;
use crate::stages::ram_tier::RamTier;
use crate::stages::read::Reader;

pub use projection_memory::{HeldProjection, ProjectionMemory};
pub use requests::{Gather, Request, RequestNo, Requests, Source, Times};
pub use run::{CoreStart, begin, live, run, snapshot};
pub use sessions::{Handle, Outgoing, Session, SessionNo, Sessions};
pub use stats::{CoreHistograms, CoreSnapshot, CoreStats, DriveCounts};
pub use traffic::{HeldBytes, TrafficMemory};

/// One core's state.
pub struct Core {
    /// Its place among the node's cores.
    pub number: usize,
    /// What all cores share.
    pub shared: Arc<Shared>,
    /// The core's ring.
    pub ring: Ring,
    /// Its replica of the directory.
    pub directory: RefCell<Directory>,
    /// Places in the directory that wait for older requests to end.
    pub grace: RefCell<grace::Grace>,
    /// Sectors in RAM.
    pub ram: RamTier,
    /// Fetch streams that are open on this core.
    pub sessions: RefCell<Sessions>,
    /// Batches under way.
    pub requests: RefCell<Requests>,
    /// Memory of traffic.
    pub traffic_memory: Arc<TrafficMemory>,
    /// The part of it that projections may take.
    pub projection_memory: ProjectionMemory,
    /// Large buffers of replies that were sent.
    pub buffers: Arc<BufferPool>,
    /// Connections over a simulated network that it took.
    pub simulated: Cell<u64>,
    /// Pieces that wait for a read, and the reads in flight.
    pub reader: Rc<Reader>,
    /// Counters.
    pub stats: CoreStats,
    /// How long things took.
    pub histograms: CoreHistograms,
    /// The CPU that the thread is pinned to.
    pub cpu: Option<usize>,
    /// Batches that came and were answered, for a thread that polls.
    pub activity: Arc<ActivityCounter>,
}

thread_local! {
    static CORE: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// Makes `core` the core of this thread, for ever or until the cores that share the thread take turns.
pub fn settle_in(core: Option<Rc<Core>>) {
    // The one before is dropped once the place is free.
    drop(CORE.replace(core));
}

/// The core of this thread.
///
/// # Panics
/// On a thread that isn't a core's: a defect.
pub fn here() -> Rc<Core> {
    CORE.with_borrow(Option::clone).expect("called on a core's thread")
}
