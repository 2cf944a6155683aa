//! An I/O node over Lance's tables, within a process that waits for signals.

use std::sync::Arc;
use std::time::Duration;

use io_node::{AlsoReadsConfig, IoConfig, IoNode, NodeError};
use lake::{AlsoReads, Lake, LakeOptions};

/// Starts a node; blocks until it serves.
pub fn start_io_node(config: IoConfig) -> Result<IoNode, NodeError> {
    let cache = config.lake_cache.as_u64() as usize;
    let options = LakeOptions::for_row_reads(cache, config.storage.clone(), config.store);
    let lake = Lake::new(LakeOptions { also_reads: also_reads(&config)?, ..options });
    IoNode::start(config, Arc::new(lake))
}

fn also_reads(config: &IoConfig) -> Result<Vec<AlsoReads>, NodeError> {
    let of = |also: &AlsoReadsConfig| {
        Ok(AlsoReads { table: also.table()?, prefixes: also.prefixes.clone() })
    };
    config.also_reads.iter().map(of).collect()
}

/// Stops a node on a thread that may block.
pub async fn drain(node: IoNode, grace: Duration) {
    // A panic in there has been reported by then, and the process ends anyway.
    let _ = tokio::task::spawn_blocking(move || node.stop(grace)).await;
}
