//! Status: this node, and the I/O nodes behind it.

use std::time::Duration;

use client::fetch::FetchClient;
use futures::future::join_all;
use process::Usage;
use wire::fetch::{DescribeResponse, DriveState};
use wire::query::{IoNode, StatusResponse};

use crate::describe::summaries;
use crate::state::State;

/// How long an I/O node may take to describe itself.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// This node and the I/O nodes behind it; those that don't answer are listed with why.
pub async fn status(state: &State) -> StatusResponse {
    let io_nodes = join_all(state.tier.clients().iter().map(describe)).await;
    let usage = Usage::now();
    StatusResponse {
        node: state.shared.config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        io_nodes,
        cpu_us: usage.cpu_us,
        resident_bytes: usage.resident_bytes,
        search_queue: state.shared.turns.waiting() as u32,
        requests: state.shared.requests(),
        errors: state.shared.errors(),
        tables: summaries(state),
        store: Some(state.shared.catalog.store_use().into()),
    }
}

async fn describe(client: &FetchClient) -> IoNode {
    let endpoint = client.endpoint().to_string();
    match client.describe(DESCRIBE_TIMEOUT).await {
        Err(fault) => IoNode { endpoint, error: fault.message, ..Default::default() },
        Ok(node) => described(endpoint, node),
    }
}

fn drives_in(node: &DescribeResponse, state: DriveState) -> Vec<String> {
    let drives = node.drives.iter().filter(|drive| drive.state() == state);
    drives.map(|drive| drive.path.clone()).collect()
}

fn described(endpoint: String, node: DescribeResponse) -> IoNode {
    let cores = |count: fn(&wire::fetch::Core) -> u64| node.cores.iter().map(count).sum();
    IoNode {
        endpoint,
        reachable: true,
        error: String::new(),
        capacity_bytes: node.drives.iter().map(|drive| drive.capacity_bytes).sum(),
        used_bytes: node.drives.iter().map(|drive| drive.used_bytes).sum(),
        extents: node.extents,
        rows: cores(|core| core.rows),
        drive_reads: cores(|core| core.drive_reads),
        drive_read_bytes: cores(|core| core.drive_read_bytes),
        ram_hits: cores(|core| core.ram_hits),
        table_rows: cores(|core| core.table_rows),
        cpu_us: node.cpu_us,
        resident_bytes: node.resident_bytes,
        queued: cores(|core| core.queued.into()),
        in_flight: cores(|core| core.in_flight.into()),
        reply_bytes: cores(|core| core.reply_bytes),
        read_only_drives: drives_in(&node, DriveState::ReadOnly),
        retired_drives: drives_in(&node, DriveState::Retired),
        engine: node.engine,
        store: node.store,
    }
}
