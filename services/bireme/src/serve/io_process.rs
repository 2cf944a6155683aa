//! Starts and stops an I/O node over Lance's tables, in a process that waits for signals.

use std::sync::Arc;
use std::time::Duration;

use io_node::{AlsoReadsConfig, IoConfig, IoNode, NodeError};
use lake::{AlsoReads, Lake, LakeOptions, SecretOptions};

/// Starts a node and blocks until it serves. Its object stores use `secrets` besides the options in `config`.
pub fn start_io_node(
    config: IoConfig,
    secrets: Option<SecretOptions>,
) -> Result<IoNode, NodeError> {
    let cache = config.lake_cache_bytes();
    let options = LakeOptions::for_row_reads(cache, config.storage.clone(), config.store);
    let lake = Lake::new(LakeOptions {
        also_reads: also_reads(&config)?,
        storage_secrets: secrets,
        ..options
    });
    IoNode::start(config, Arc::new(lake))
}

fn also_reads(config: &IoConfig) -> Result<Vec<AlsoReads>, NodeError> {
    let validated = |also: &AlsoReadsConfig| {
        Ok(AlsoReads { table: also.table()?, prefixes: also.prefixes.clone() })
    };
    config.also_reads.iter().map(validated).collect()
}

/// Stops a node on a thread that may block.
pub async fn drain(node: IoNode, grace: Duration) {
    // Ignore a panic of that thread: it has been logged, and the process ends anyway.
    let _ = tokio::task::spawn_blocking(move || node.stop(grace)).await;
}
