//! The source of a node's metrics, and of the answers to probes.

use super::samples::Samples;

/// A node as the source of metrics and of answers to probes.
pub trait Source: Send + Sync + 'static {
    /// Collects the current metrics.
    fn collect(&self) -> impl Future<Output = Samples> + Send;

    /// Returns whether the node is ready for requests, as the gRPC health of its service says.
    fn is_ready(&self) -> bool;

    /// Asks all cores for an answer. Returns whether all of them answered. A core that has stopped does not answer.
    fn is_alive(&self) -> impl Future<Output = bool> + Send;
}
