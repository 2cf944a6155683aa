//! Status: describes this node and its I/O nodes.

use std::time::Duration;

use access::Caller;
use futures::FutureExt;
use futures::future::join_all;
use process::Usage;
use wire::fetch::{DescribeResponse, DriveState};
use wire::query::{IoNode, Membership, StatusResponse, TableFolder};

use crate::call::Call;
use crate::error::Result;
use crate::io_nodes::{IoNodes, Node};
use crate::metrics::calls;
use crate::requests::describe::summaries;
use crate::state::ShardState;
use crate::tables::Folder;

/// The maximum time that an I/O node may take to describe itself.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of names of each kind that are shown of a folder.
const FOLDER_NAMES_MAX: usize = 100;

/// Describes this node and its I/O nodes. An I/O node that does not answer is listed with the reason. Only a caller
/// that may see all tables gets to know what the I/O nodes hold of each table, and the folders of tables.
///
/// # Errors
/// The errors of [`Call::observe_node`], and [`QueryError::DeadlinePassed`](crate::error::QueryError::DeadlinePassed).
pub async fn status(state: &ShardState, call: &mut Call) -> Result<StatusResponse> {
    call.observe_node()?;
    let caller = &*call.caller().caller;
    let routes = state.tier.routes();
    let described = async { Ok(join_all(routes.nodes().iter().map(|node| describe(node))).await) };
    let mut io_nodes = call.context.bound("status", described.boxed()).await?;
    for (node, shown) in routes.nodes().iter().zip(&mut io_nodes) {
        shown.unverified = !state.shared.io_nodes.verifies(node.client.endpoint());
    }
    let sees_all = sees_all(state, caller);
    if !sees_all {
        io_nodes.iter_mut().for_each(|node| {
            node.tables.clear();
            node.start_warms.clear();
        });
    }
    let usage = Usage::now();
    let cores = state.shared.cores();
    Ok(StatusResponse {
        node: state.shared.config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        io_nodes,
        cpu_us: usage.cpu_us,
        resident_bytes: usage.resident_bytes,
        search_queue: state.shared.admission.waiting() as u32,
        requests: cores.iter().map(|core| core.metrics.requests()).sum(),
        errors: cores.iter().map(|core| core.metrics.errors()).sum(),
        tables: summaries(state, caller),
        store: Some(stores::store_use_message(state.shared.catalog.store_use())),
        membership: Some(membership(&state.shared.io_nodes)),
        fallback_rows: state.shared.fallback_rows(),
        calls: calls(&cores),
        open_access: state.shared.is_open_to_others(),
        folders: match sees_all {
            true => state.shared.catalog.folders().iter().map(folder).collect(),
            false => Vec::new(),
        },
    })
}

/// Returns whether `caller` may see every table that the I/O nodes may hold. If there are folders, the I/O nodes may
/// also hold tables that have gone.
fn sees_all(state: &ShardState, caller: &Caller) -> bool {
    let catalog = &state.shared.catalog;
    match catalog.folders().is_empty() {
        true => catalog.names(|name| !caller.sees(name), "", 1).is_empty(),
        false => caller.sees_all(),
    }
}

fn folder(folder: &Folder) -> TableFolder {
    let names = |names: &[String]| names.iter().take(FOLDER_NAMES_MAX).cloned().collect();
    TableFolder {
        uri: folder.folder.to_string(),
        tables: folder.served as u32,
        hidden: names(&folder.hidden),
        refused: names(folder.refused()),
        is_cut: folder.is_cut(),
        error: folder.error().unwrap_or_default(),
    }
}

fn membership(io_nodes: &IoNodes) -> Membership {
    let report = io_nodes.report();
    let age = report.changed.map(|changed| changed.elapsed());
    Membership {
        source: io_nodes.source().to_owned(),
        generation: io_nodes.views().borrow().generation,
        age_ms: age.map_or(0, |age| age.as_millis() as u64),
        refused_lists: report.refused,
        failures: report.failures,
        error: report.error.map(|error| error.to_string()).unwrap_or_default(),
        ejections: io_nodes.ejected(),
    }
}

async fn describe(node: &Node) -> IoNode {
    let endpoint = node.client.endpoint().to_string();
    let described = match node.client.describe(DESCRIBE_TIMEOUT).await {
        Err(fault) => IoNode { endpoint, error: fault.message, ..Default::default() },
        Ok(node) => described(endpoint, node),
    };
    IoNode {
        name: node.member.name.clone(),
        zone: node.member.zone.clone().unwrap_or_default(),
        weight: node.member.weight,
        share: node.member.share,
        state: node.state().into(),
        ..described
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
        engine_reason: node.engine_reason,
        store: node.store,
        batch_seconds: node.batch_seconds,
        read_seconds: node.read_seconds,
        tables: node.tables,
        start_warms: node.start_warms,
        ready: node.ready,
        open_access: node.open_access,
        ..Default::default()
    }
}
