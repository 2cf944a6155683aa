//! One core's state, on which the stages of a fetch work: its ring, its replica of the directory, its RAM tier, its
//! streams and its requests.
//!
//! A request stays on the core whose connection it arrived on. The state belongs to the core's thread and is reached
//! through [`here`]. Tasks call [`here`] instead of holding a [`Core`], because a spawned task must be `Send` and a
//! core is not.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use connections::idle::ActivityCounter;
use ring::Ring;
use wire::BufferPool;

use super::node_state::NodeState;
use super::ram_tier::RamTier;
use super::reader::{ReadContext, Reader};
use super::requests::Requests;
use super::sessions::Sessions;
use crate::extent::Directory;
use crate::shard::{
    CoreHistograms, CoreSnapshot, CoreStats, Grace, ProjectionMemory, TrafficMemory,
};

/// The state of one core.
pub struct Core {
    /// The core's number in the node, counted from 0.
    pub number: usize,
    /// The state that all cores share.
    pub node: Arc<NodeState>,
    /// The core's ring.
    pub ring: Ring,
    /// The core's replica of the directory.
    pub directory: RefCell<Directory>,
    /// Entries of the directory that will be vacated once older requests have ended.
    pub grace: RefCell<Grace>,
    /// The core's RAM tier.
    pub(super) ram: RamTier,
    /// Fetch streams that are open on this core.
    pub sessions: RefCell<Sessions>,
    /// Batches under way.
    pub requests: RefCell<Requests>,
    /// The core's memory for traffic.
    pub traffic_memory: Arc<TrafficMemory>,
    /// The part of `traffic_memory` that projections may use.
    pub projection_memory: ProjectionMemory,
    /// Large buffers of sent replies, kept for reuse.
    pub buffers: Arc<BufferPool>,
    /// Pieces that wait for a read, and the reads in flight.
    pub(super) reader: Reader,
    /// Counters.
    pub stats: CoreStats,
    /// Histograms of durations and sizes.
    pub(super) histograms: CoreHistograms,
    /// The CPU that the thread is pinned to.
    pub(super) cpu: Option<usize>,
    /// Counts batches that arrive or are answered, so that an idle thread knows how long to poll.
    pub activity: Arc<ActivityCounter>,
}

impl Core {
    /// Returns the core's counters and gauges.
    pub fn snapshot(&self) -> CoreSnapshot {
        let directory = self.directory.borrow();
        let counted = self.stats.snapshot();
        CoreSnapshot {
            cpu: self.cpu,
            ring: self.ring.stats(),
            engine: self.ring.describe().engine.name(),
            queued: self.reader.waiting(),
            reads_limit: self.reader.limit(),
            traffic_bytes: self.traffic_memory.used(),
            replica_bytes: directory.replica_bytes(),
            directory_shared_bytes: directory.shared_bytes(),
            heats: directory.heats(),
            ram_sectors: self.ram.sectors(),
            streams: self.sessions.borrow().len(),
            batches_under_way: self.requests.borrow().len(),
            drives: self.reader.drives(),
            histograms: self.histograms.snapshot(),
            shed: counted.shed + self.traffic_memory.refused(),
            ..counted
        }
    }

    /// Returns the parts of the core that its reader works on.
    #[inline]
    pub(super) fn read_context(&self) -> ReadContext<'_> {
        ReadContext {
            requests: &self.requests,
            directory: &self.directory,
            ring: &self.ring,
            ram: &self.ram,
            stats: &self.stats,
            histograms: &self.histograms,
            fills: &self.node.fills,
        }
    }
}

thread_local! {
    static CORE: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// Sets the core of this thread. A simulation, whose thread runs several cores in turn, calls this before it runs each
/// of them.
pub fn set_here(core: Option<Rc<Core>>) {
    // The previous core is dropped only after `CORE` is no longer borrowed, as its drop may call `here`.
    drop(CORE.replace(core));
}

/// Returns the core of this thread.
///
/// # Panics
/// If the thread has no core, which is a defect.
// Called for every completed read.
#[inline]
pub fn here() -> Rc<Core> {
    CORE.with_borrow(Option::clone).expect("called on a core's thread")
}
