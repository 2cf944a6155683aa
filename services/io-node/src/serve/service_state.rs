//! The state that the services of all cores share.

use std::sync::Arc;

use super::peer_gate::PeerGate;
use super::readiness::Readiness;
use super::start_warms::StartWarms;
use crate::fetch::NodeState;

/// State that the gRPC services of all cores share.
pub struct ServiceState {
    /// The state that the cores share for fetches.
    pub node: Arc<NodeState>,
    /// Decides which callers are answered.
    pub peers: PeerGate,
    /// Whether the node reports ready.
    pub readiness: Readiness,
    /// The progress of the fills for which the node waits before it reports ready.
    pub start_warms: StartWarms,
    /// Returns the CPU time and memory of the process; zeros for a simulated node, because its process runs several
    /// nodes, and runs must repeat exactly.
    pub usage: fn() -> process::Usage,
    /// Returns freed memory to the operating system. `None` for a simulated node, whose process runs other nodes too.
    pub give_back: Option<fn()>,
}
