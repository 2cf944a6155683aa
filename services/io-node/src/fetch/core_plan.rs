//! Builds a core of a node.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ring::{Ring, RingConfig};
use tokio::time::Instant;

use super::core_state::Core;
use super::node_state::NodeState;
use super::ram_tier::RamTier;
use super::read_events::completions;
use super::reader::{Depth, Reader};
use crate::error::NodeError;
use crate::shard::{CoreHistograms, CoreStats, ProjectionMemory, TrafficMemory};

/// The parameters with which each core of a node is built.
#[derive(Clone, Debug)]
pub struct CorePlan {
    /// The configuration of each core's ring.
    pub ring: RingConfig,
    /// Bytes of each core's RAM tier.
    pub ram_tier_bytes: u64,
    /// Bytes of each core's memory for traffic.
    pub traffic_bytes: u64,
    /// The time at which the first phase of [`Depth`] (the limit of a core's reads in flight) begins. It is the same
    /// for all cores, so their phases coincide.
    pub epoch: Instant,
}

impl CorePlan {
    /// Creates the core with this number and starts its ring. Must be called within the core's runtime. `cpu` is the
    /// CPU that the thread is pinned to.
    ///
    /// # Errors
    /// [`NodeError::Ring`] if the ring cannot start, [`NodeError::Os`] if there is no memory for the RAM tier.
    pub fn build(
        &self,
        number: usize,
        cpu: Option<usize>,
        node: Arc<NodeState>,
    ) -> Result<Rc<Core>, NodeError> {
        let ring = Ring::start(&self.ring, &node.slabs)
            .map_err(|source| NodeError::Ring { core: number, source })?;
        let slots = ring.describe().slots;
        let ram = RamTier::new(self.ram_tier_bytes)
            .map_err(|source| NodeError::Os { doing: "reserving memory for `ram_tier`", source })?;
        let traffic_memory = TrafficMemory::new(self.traffic_bytes);
        let drives = node.slabs.len();
        let depth = Depth::new(slots, self.epoch, node.config.depth_phase);
        Ok(Rc::new(Core {
            number,
            ring,
            directory: RefCell::default(),
            grace: RefCell::default(),
            ram,
            sessions: RefCell::default(),
            requests: RefCell::default(),
            projection_memory: ProjectionMemory::of(&traffic_memory),
            traffic_memory,
            buffers: Arc::default(),
            reader: Reader::new(slots, self.ring.slot_bytes, drives, depth, completions()),
            stats: CoreStats::default(),
            histograms: CoreHistograms::new(drives),
            cpu,
            activity: Arc::default(),
            node,
        }))
    }
}
