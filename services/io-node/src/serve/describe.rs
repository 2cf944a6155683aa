//! The Describe call: the node's configuration, counters and gauges.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use address::{DriveNo, SECTOR_BYTES, TableTag};
use wire::fetch::{Core as CoreState, DescribeResponse, Drive, TableUse};

use super::service_state::ServiceState;
use crate::cache::Holding;
use crate::config::shares;
use crate::drive::{DriveState, drive_name};
use crate::fetch::{NodeState, here};
use crate::shard::CoreSnapshot;
use crate::shard::totals::{batch_times, directory_bytes, read_times};

/// Collects the description from all cores and the filler.
pub async fn describe(shared: &ServiceState) -> DescribeResponse {
    let node = &shared.node;
    let cores = node.snapshots().await;
    // Read the tables first: if they show a loss of extents, the states of drives and fills, which are read afterwards,
    // show its cause.
    let tables = tables(node).await;
    let fills = node.fills.stats();
    let process = (shared.usage)();
    let (engine, engine_reason) = engine();
    DescribeResponse {
        node: node.config.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        engine,
        engine_reason,
        drives: drives(node),
        extents: fills.extents.load(Ordering::Relaxed),
        directory_bytes: directory_bytes(&cores),
        ram_tier_bytes: node.config.ram_tier.as_u64(),
        fills_running: fills.running.load(Ordering::Relaxed),
        fills_done: fills.done.load(Ordering::Relaxed),
        fills_failed: fills.failed.load(Ordering::Relaxed),
        scans: fills.scans.load(Ordering::Relaxed),
        bytes_filled: fills.bytes_filled.load(Ordering::Relaxed),
        bytes_kept: fills.bytes_kept.load(Ordering::Relaxed),
        extents_scrubbed: fills.scrubbed.load(Ordering::Relaxed),
        extents_dropped: fills.dropped.load(Ordering::Relaxed),
        cpu_us: process.cpu_us,
        resident_bytes: process.resident_bytes,
        batch_seconds: Some((&batch_times(&cores)).into()),
        read_seconds: Some((&read_times(&cores)).into()),
        cores: cores.into_iter().map(core).collect(),
        store: Some(stores::store_use_message(node.tables.store_use())),
        tables,
        start_warms: shared.start_warms.warms(),
        ready: shared.readiness.is_ready(),
        open_access: node.config.is_open_beyond_loopback(),
    }
}

/// Returns the tables that have extents or a share, the largest first.
async fn tables(node: &NodeState) -> Vec<TableUse> {
    let mut holdings: HashMap<_, _> =
        node.fills.tables().await.unwrap_or_default().into_iter().collect();
    let mut tables = Vec::with_capacity(holdings.len());
    // The shares were checked when the node started.
    for (config, (tag, _)) in
        node.config.shares.iter().zip(shares(&node.config).unwrap_or_default())
    {
        let holding = holdings.remove(&tag).unwrap_or_default();
        tables.push(TableUse {
            table: config.label(),
            minimum_bytes: config.minimum.as_u64(),
            maximum_bytes: config.maximum.map_or(0, |maximum| maximum.as_u64()),
            pinned: config.pinned,
            ..table(tag, holding)
        });
    }
    for (tag, holding) in holdings {
        let label = node.tables.label(tag).await;
        let label = label.map(|label| label.to_string()).unwrap_or_default();
        tables.push(TableUse { table: label, ..table(tag, holding) });
    }
    tables.sort_by(|one, other| (other.bytes, &one.tag).cmp(&(one.bytes, &other.tag)));
    tables
}

fn table(tag: TableTag, holding: Holding) -> TableUse {
    TableUse {
        tag: format!("{tag:?}"),
        bytes: holding.sectors * SECTOR_BYTES as u64,
        held_bytes: holding.held_sectors * SECTOR_BYTES as u64,
        extents: holding.extents,
        ..TableUse::default()
    }
}

/// Returns the engine in use, and the reason if it is not io_uring.
fn engine() -> (String, String) {
    let core = here();
    let engine = &core.ring.describe().engine;
    let why = match engine {
        ring::EngineInUse::Pread { instead_of_io_uring: Some(why), .. } => why.to_string(),
        ring::EngineInUse::Pread { instead_of_io_uring: None, .. } => "configured".into(),
        ring::EngineInUse::InPlace => "the drives are memory".into(),
        ring::EngineInUse::IoUring { .. } | ring::EngineInUse::Simulated { .. } => String::new(),
    };
    (engine.name().into(), why)
}

fn drives(node: &NodeState) -> Vec<Drive> {
    let core = here();
    let transfers = &core.ring.describe().transfers_in_flight_max;
    let drive = |(at, slab): (usize, &ring::SlabFile)| Drive {
        path: drive_name(DriveNo(at as u16), slab.path()),
        capacity_bytes: slab.len(),
        used_bytes: node.fills.used_bytes(DriveNo(at as u16)),
        direct: slab.is_direct(),
        queue_depth: slab.queue_depth().reported().unwrap_or(0),
        transfers_in_flight_max: transfers[at],
        state: match node.fills.drive_state(DriveNo(at as u16)) {
            DriveState::Serving => wire::fetch::DriveState::Serving,
            DriveState::ReadOnly => wire::fetch::DriveState::ReadOnly,
            DriveState::Retired => wire::fetch::DriveState::Retired,
        }
        .into(),
    };
    node.slabs.iter().enumerate().map(drive).collect()
}

fn core(core: CoreSnapshot) -> CoreState {
    CoreState {
        cpu: core.cpu.map_or(-1, |cpu| cpu as i32),
        rows: core.rows,
        batches: core.batches,
        drive_reads: core.ring.reads_completed,
        drive_read_bytes: core.ring.read_bytes,
        ram_hits: core.ram_hits,
        ram_misses: core.ram_misses,
        table_rows: core.table_rows,
        bad_sectors: core.bad_sectors,
        in_flight: core.ring.in_flight as u32,
        queued: core.queued as u32,
        drive_write_bytes: core.ring.write_bytes,
        shared_pieces: core.shared_pieces,
        dropped: core.dropped,
        shed: core.shed,
        reply_bytes: core.traffic_bytes,
        late_reads: core.late_reads,
    }
}
