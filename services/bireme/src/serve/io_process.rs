//! An I/O node within a process that waits for signals.

use std::time::Duration;

use io_node::IoNode;

/// Stops a node on a thread that may block.
pub async fn drain(node: IoNode, grace: Duration) {
    // A panic in there has been reported by then, and the process ends anyway.
    let _ = tokio::task::spawn_blocking(move || node.stop(grace)).await;
}
