//! The I/O node's metrics: their definitions, and how they are collected.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use address::{DriveNo, SECTOR_BYTES};
use connections::ConnectionSlots;
use connections::tls::ServerTls;
use stores::{cache_samples, store_samples};
use telemetry::{Samples, Source, handshake_samples, process_samples, tls_samples};
use wire::BATCH_STAGES;

use super::memory::MemoryPlan;
use crate::config;
use crate::drive::{DriveState, drive_name};
use crate::fetch::NodeState;
use crate::serve::ServiceState;
use crate::shard::CoreSnapshot;
use crate::shard::totals::{batch_times, sum, together};

telemetry::metrics! {
    pub static METRICS;
    ROWS = Counter "bireme.io.rows" "{row}" [] "Rows served";
    BATCHES = Counter "bireme.io.batches" "{batch}" [] "Batches served";
    BATCH_ROWS = Histogram "bireme.io.batch.rows" "{row}" [] "Rows per batch received";
    BATCH_DURATION = Histogram "bireme.io.batch.duration" "s" ["stage"]
        "Duration of each stage of a batch: `locate`, `queue` (until the first read is submitted to a drive), `read`, `assemble`; `all` is from arrival to reply";
    SHED = Counter "bireme.io.batches.shed" "{batch}" [] "Batches, projections, streams and other calls refused because a queue or the memory for them was full, or a deadline could not be kept";
    DROPPED = Counter "bireme.io.batches.dropped" "{batch}" [] "Batches dropped because their deadline had passed or their caller had gone";
    FILE_SECTORS = Counter "bireme.io.file_sectors" "{sector}" [] "Sectors of index and deletion files served";
    STORED_SECTORS = Counter "bireme.io.file_sectors.from_store" "{sector}" [] "Sectors of index and deletion files for which the store was read, because no drive had them or a drive failed to deliver them";
    TABLE_ROWS = Counter "bireme.io.rows.from_table" "{row}" [] "Rows answered for which the table was read, because no drive had them or a drive failed to deliver them";
    TABLE_QUEUE = Gauge "bireme.io.table.queue" "{read}" [] "Reads of rows from tables that wait; a batch needs one for each pack that it reads columns of";
    STREAMS = Gauge "bireme.io.streams" "{stream}" [] "Fetch streams that are open";
    UNDER_WAY = Gauge "bireme.io.batches.under_way" "{batch}" [] "Batches under way";
    TRAFFIC_MEMORY = Gauge "bireme.io.traffic_memory.usage" "By" [] "Memory that connections, streams, batches and unsent replies hold";
    TRAFFIC_MEMORY_LIMIT = Gauge "bireme.io.traffic_memory.limit" "By" [] "The maximum of `bireme.io.traffic_memory.usage`";
    CONNECTIONS = Gauge "bireme.io.connections" "{connection}" [] "Connections of clients";
    CONNECTIONS_LIMIT = Gauge "bireme.io.connections.limit" "{connection}" [] "The maximum number of connections; beyond it a new connection replaces an idle one";
    CONNECTIONS_EVICTED = Counter "bireme.io.connections.evicted" "{connection}" [] "Idle connections that were closed for new ones";
    CONNECTIONS_REFUSED = Counter "bireme.io.connections.refused" "{connection}" [] "New connections that were refused, because all others had streams, or half of them came from the same address";
    CALLS_REFUSED = Counter "bireme.io.calls.refused" "{call}" ["error.type"] "Calls and streams refused because their caller is no peer of the node, by cause, as the audit log has it: `no_certificate` and `other_name`, or what is wrong with the proof of the secret, such as `no_proof` or `other_time`";
    RING_READS = Counter "bireme.io.ring.reads" "{read}" ["core"] "Reads submitted to a core's ring";
    RING_SUBMITS = Counter "bireme.io.ring.submits" "{submit}" ["core"] "System calls that submitted operations; reads divided by submits is the size of a submission";
    RING_IN_FLIGHT = Gauge "bireme.io.ring.in_flight" "{operation}" ["core"] "Operations of a ring that are in flight";
    RING_QUEUE = Gauge "bireme.io.ring.queue" "{piece}" ["core"] "Pieces of rows that wait for a read on a core";
    RING_READS_LIMIT = Gauge "bireme.io.ring.reads.limit" "{read}" ["core"] "Maximum number of reads that a core may have in flight: all its slots, or, while requests of several grants are active, only as many as keep the drives busy";
    RING_TRANSFERS = Gauge "bireme.io.ring.transfers.queue" "{operation}" ["core"] "Writes, flushes, and reads for reclaiming and scrubbing that wait on a core";
    RING_DURATION = Histogram "bireme.io.ring.read.duration" "s" ["core"] "From a read's submission to its completion, by core";
    RING_RETRIES = Counter "bireme.io.ring.retries" "{operation}" ["core"] "Operations resubmitted after a short transfer or a shortage in the kernel";
    RING_DEFERRED = Counter "bireme.io.ring.submits.deferred" "{submit}" ["core"] "Submissions that the kernel refused for lack of resources, and that were tried again";
    RING_FAILED = Counter "bireme.io.ring.transfers.failures" "{operation}" ["core"] "Writes, flushes, and reads for reclaiming and scrubbing that failed";
    RING_PANICS = Counter "bireme.io.ring.panics" "{panic}" ["core"] "Panics while a completed read was processed; each is a defect of the node";
    DRIVE_READS = Counter "bireme.io.drive.reads" "{read}" ["drive"] "Reads of a drive that succeeded; rows divided by reads shows the effect of coalescing";
    DRIVE_BYTES = Counter "bireme.io.drive.read" "By" ["drive"] "Bytes of the reads that succeeded";
    DRIVE_FAILED = Counter "bireme.io.drive.failures" "{read}" ["drive"] "Reads of a drive that failed";
    DRIVE_IN_FLIGHT = Gauge "bireme.io.drive.in_flight" "{read}" ["drive"] "Reads of a drive in flight";
    DRIVE_DURATION = Histogram "bireme.io.drive.read.duration" "s" ["drive"] "From a read's submission to its completion, by drive";
    DRIVE_CAPACITY = Gauge "bireme.io.drive.capacity" "By" ["drive"] "Size of a drive's slab";
    DRIVE_USAGE = Gauge "bireme.io.drive.usage" "By" ["drive"] "Bytes of a drive's slab that hold extents and journals";
    DRIVE_STATE = Gauge "bireme.io.drive.state" "{drive}" ["drive", "state"] "1 for the current state of a drive: `serving`, `read_only`, `retired`";
    WRITTEN = Counter "bireme.io.drives.written" "By" [] "Bytes written to the drives";
    SHARED = Counter "bireme.io.coalesced" "{piece}" ["how"] "Pieces of rows that shared a read with another piece: `merged` if they added neighbouring sectors to it, `deduplicated` if all their sectors were read anyway";
    BAD_SECTORS = Counter "bireme.io.sectors.bad" "{sector}" [] "Sectors with a wrong checksum, and reads that failed";
    LATE = Counter "bireme.io.reads.late" "{read}" [] "Reads abandoned because the drive did not answer in time";
    RAM_HITS = Counter "bireme.io.ram.hits" "{sector}" [] "Sectors found in the RAM tier";
    RAM_MISSES = Counter "bireme.io.ram.misses" "{sector}" [] "Sectors of pieces that were not whole in the RAM tier, so that all sectors of the piece were read";
    RAM_ADMITTED = Counter "bireme.io.ram.admitted" "{sector}" [] "Sectors admitted to the RAM tier";
    RAM_EVICTED = Counter "bireme.io.ram.evicted" "{sector}" [] "Sectors evicted from the RAM tier for others";
    RAM_USAGE = Gauge "bireme.io.ram.usage" "By" [] "Bytes of sectors in the RAM tier";
    RAM_LIMIT = Gauge "bireme.io.ram.limit" "By" [] "Size of the RAM tier";
    EXTENTS = Gauge "bireme.io.extents" "{extent}" [] "Extents on the drives";
    EXTENT_HITS = Counter "bireme.io.extents.hits" "{row}" [] "Rows of batches that were on a drive when they were located; counted once per extent if their columns are in several";
    EXTENT_MISSES = Counter "bireme.io.extents.misses" "{row}" [] "Rows of batches that were on no drive when they were located; counted in the same way";
    EXTENT_HEAT = Gauge "bireme.io.extents.heat" "{extent}" ["core", "heat"] "Extents by the number of batches of a core that have read them since they were placed, `3` for three or more; the sum over cores decides which extents are kept when a segment is reclaimed";
    EVICTED = Counter "bireme.io.extents.evicted" "{extent}" [] "Extents evicted to make room";
    EXTENTS_BAD = Counter "bireme.io.extents.dropped" "{extent}" [] "Extents dropped because their bytes could not be served";
    SCRUBBED = Counter "bireme.io.extents.scrubbed" "{extent}" [] "Extents that the scrubber has read";
    DIRECTORY = Gauge "bireme.io.directory.usage" "By" [] "Memory of the directory, over all cores, as it is counted against the limit: what its extents take at most";
    DIRECTORY_LIMIT = Gauge "bireme.io.directory.limit" "By" [] "Memory that `memory` leaves for the directory; when it is full, extents are evicted although drives have room";
    SHARE_USAGE = Gauge "bireme.io.share.usage" "By" ["table"] "Bytes of extents of a table that has a share in the configuration";
    SHARE_HELD = Gauge "bireme.io.share.held" "By" ["table"] "Of the usage, the bytes that fills of other tables do not evict";
    SHARE_MINIMUM = Gauge "bireme.io.share.minimum" "By" ["table"] "Bytes of the table's guarantee (`minimum`); 0 if it has none or is pinned";
    SHARE_MAXIMUM = Gauge "bireme.io.share.maximum" "By" ["table"] "Bytes of the table's quota; absent if it has none";
    READY = Gauge "bireme.io.ready" "{node}" [] "1 while the node's health reports serving: its start warm has ended and its hit ratio is high enough or no rows are requested, or the time for both is over";
    START_WARM = Gauge "bireme.io.start_warm.extents" "{extent}" ["state"] "Extents of open tables that the node fills before it is ready: `done`, `failed`, `left`";
    FILLS = Gauge "bireme.io.fills.under_way" "{fill}" [] "Fills that wait or are under way";
    FILLS_QUEUE = Gauge "bireme.io.fills.queue" "{fill}" [] "Fills that wait for their turn";
    FILLED = Counter "bireme.io.fills" "{fill}" ["outcome"] "Fills that ended, `done` or `failed`";
    BYTES_FILLED = Counter "bireme.io.fills.written" "By" [] "Bytes of extents filled";
    BYTES_KEPT = Counter "bireme.io.fills.kept" "By" [] "Bytes rewritten to keep extents when their segment was reclaimed";
    ENGINE = Gauge "bireme.io.engine" "{node}" ["engine"] "1 for the engine in use: `io_uring`, `pread`, `in place`, `simulated`";
}

/// The source of a node's metrics.
pub struct NodeMetrics {
    /// The state that the services of all cores share.
    pub shared: Arc<ServiceState>,
    /// The division of memory.
    pub memory: MemoryPlan,
    /// TLS for clients.
    pub tls: Option<Arc<ServerTls>>,
    /// Counts connections.
    pub connection_slots: Arc<ConnectionSlots>,
}

impl Source for NodeMetrics {
    async fn collect(&self) -> Samples {
        let node = &self.shared.node;
        let cores = node.snapshots().await;
        let mut samples = Samples::default();
        traffic(&mut samples, self, &cores);
        rings(&mut samples, &cores);
        drives(&mut samples, node, &cores);
        ram(&mut samples, node, &cores);
        fills(&mut samples, self, &cores);
        shares(&mut samples, node).await;
        readiness(&mut samples, &self.shared);
        store_samples(&mut samples, &node.tables.store_use());
        cache_samples(&mut samples, &node.tables.cache_use().await);
        tls_samples(&mut samples, self.tls.as_ref().and_then(|tls| tls.expires()), None);
        handshake_samples(&mut samples, self.tls.iter().flat_map(|tls| tls.refusals()));
        process_samples(&mut samples);
        samples
    }

    fn is_ready(&self) -> bool {
        self.shared.readiness.is_ready()
    }

    async fn is_alive(&self) -> bool {
        // A core that has stopped does not answer.
        self.shared.node.snapshots().await.len() == self.shared.node.cores()
    }
}

fn traffic(samples: &mut Samples, metrics: &NodeMetrics, cores: &[CoreSnapshot]) {
    samples.add(&ROWS, &[], sum(cores, |core| core.rows));
    samples.add(&BATCHES, &[], sum(cores, |core| core.batches));
    let rows = together(cores.iter().map(|core| &core.histograms.batch_rows));
    samples.add(&BATCH_ROWS, &[], rows);
    for (at, name) in BATCH_STAGES.iter().enumerate() {
        let times = together(cores.iter().filter_map(|core| core.histograms.stages.get(at)));
        samples.add(&BATCH_DURATION, &[name], times);
    }
    samples.add(&BATCH_DURATION, &[&"all"], batch_times(cores));
    samples.add(&SHED, &[], sum(cores, |core| core.shed));
    samples.add(&DROPPED, &[], sum(cores, |core| core.dropped));
    samples.add(&TABLE_ROWS, &[], sum(cores, |core| core.table_rows));
    samples.add(&FILE_SECTORS, &[], sum(cores, |core| core.file_sectors));
    samples.add(&STORED_SECTORS, &[], sum(cores, |core| core.stored_sectors));
    samples.add(&TABLE_QUEUE, &[], metrics.shared.node.table_reader.waiting() as u64);
    samples.add(&STREAMS, &[], sum(cores, |core| core.streams as u64));
    samples.add(&UNDER_WAY, &[], sum(cores, |core| core.batches_under_way as u64));
    samples.add(&TRAFFIC_MEMORY, &[], sum(cores, |core| core.traffic_bytes));
    samples.add(&TRAFFIC_MEMORY_LIMIT, &[], metrics.memory.traffic);
    let connections = metrics.connection_slots.counts();
    samples.add(&CONNECTIONS, &[], connections.open as u64);
    samples.add(&CONNECTIONS_LIMIT, &[], connections.max as u64);
    samples.add(&CONNECTIONS_EVICTED, &[], connections.evicted);
    samples.add(&CONNECTIONS_REFUSED, &[], connections.refused);
    for (cause, refused) in metrics.shared.peers.refused() {
        samples.add(&CALLS_REFUSED, &[&cause], refused);
    }
}

fn rings(samples: &mut Samples, cores: &[CoreSnapshot]) {
    for (number, core) in cores.iter().enumerate() {
        samples.add(&RING_READS, &[&number], core.ring.reads_submitted);
        samples.add(&RING_SUBMITS, &[&number], core.ring.submits);
        samples.add(&RING_IN_FLIGHT, &[&number], core.ring.in_flight);
        samples.add(&RING_QUEUE, &[&number], core.queued as u64);
        samples.add(&RING_READS_LIMIT, &[&number], u64::from(core.reads_limit));
        samples.add(&RING_TRANSFERS, &[&number], core.ring.transfer_queue_len);
        samples.add(&RING_DURATION, &[&number], together(core.histograms.reads.iter()));
        samples.add(&RING_RETRIES, &[&number], core.ring.retries);
        samples.add(&RING_DEFERRED, &[&number], core.ring.submits_deferred);
        samples.add(&RING_FAILED, &[&number], core.ring.transfers_failed);
        samples.add(&RING_PANICS, &[&number], core.ring.sink_panics);
    }
}

fn drives(samples: &mut Samples, node: &NodeState, cores: &[CoreSnapshot]) {
    for (at, slab) in node.slabs.iter().enumerate() {
        let drive = &drive_name(DriveNo(at as u16), slab.path());
        samples.add(&DRIVE_READS, &[drive], sum(cores, |core| core.drives[at].reads));
        samples.add(&DRIVE_BYTES, &[drive], sum(cores, |core| core.drives[at].read_bytes));
        samples.add(&DRIVE_FAILED, &[drive], sum(cores, |core| core.drives[at].failed));
        samples.add(&DRIVE_IN_FLIGHT, &[drive], sum(cores, |core| core.drives[at].in_flight));
        let times = together(cores.iter().map(|core| &core.histograms.reads[at]));
        samples.add(&DRIVE_DURATION, &[drive], times);
        samples.add(&DRIVE_CAPACITY, &[drive], slab.len());
        let number = DriveNo(at as u16);
        samples.add(&DRIVE_USAGE, &[drive], node.fills.used_bytes(number));
        let state = node.fills.drive_state(number);
        for (name, is_in) in [
            ("serving", state == DriveState::Serving),
            ("read_only", state == DriveState::ReadOnly),
            ("retired", state == DriveState::Retired),
        ] {
            samples.add(&DRIVE_STATE, &[drive, &name], u64::from(is_in));
        }
    }
    if let Some(core) = cores.first() {
        samples.add(&ENGINE, &[&core.engine], 1u64);
    }
    samples.add(&WRITTEN, &[], sum(cores, |core| core.ring.write_bytes));
    let duplicates = sum(cores, |core| core.duplicate_pieces);
    samples.add(&SHARED, &[&"deduplicated"], duplicates);
    samples.add(&SHARED, &[&"merged"], sum(cores, |core| core.shared_pieces) - duplicates);
    samples.add(&BAD_SECTORS, &[], sum(cores, |core| core.bad_sectors));
    samples.add(&LATE, &[], sum(cores, |core| core.late_reads));
}

fn ram(samples: &mut Samples, node: &NodeState, cores: &[CoreSnapshot]) {
    samples.add(&RAM_HITS, &[], sum(cores, |core| core.ram_hits));
    samples.add(&RAM_MISSES, &[], sum(cores, |core| core.ram_misses));
    samples.add(&RAM_ADMITTED, &[], sum(cores, |core| core.ram_admitted));
    samples.add(&RAM_EVICTED, &[], sum(cores, |core| core.ram_evicted));
    let bytes = sum(cores, |core| core.ram_sectors) * SECTOR_BYTES as u64;
    samples.add(&RAM_USAGE, &[], bytes);
    samples.add(&RAM_LIMIT, &[], node.config.ram_tier.as_u64());
}

fn fills(samples: &mut Samples, metrics: &NodeMetrics, cores: &[CoreSnapshot]) {
    let stats = metrics.shared.node.fills.stats();
    let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
    samples.add(&EXTENTS, &[], now(&stats.extents));
    samples.add(&EXTENT_HITS, &[], sum(cores, |core| core.extent_hits));
    samples.add(&EXTENT_MISSES, &[], sum(cores, |core| core.extent_misses));
    for (number, core) in cores.iter().enumerate() {
        for (heat, &extents) in core.heats.iter().enumerate() {
            samples.add(&EXTENT_HEAT, &[&number, &heat], extents);
        }
    }
    samples.add(&EVICTED, &[], now(&stats.evicted));
    samples.add(&EXTENTS_BAD, &[], now(&stats.dropped));
    samples.add(&SCRUBBED, &[], now(&stats.scrubbed));
    samples.add(&DIRECTORY, &[], now(&stats.directory_bytes));
    samples.add(&DIRECTORY_LIMIT, &[], metrics.memory.directory);
    samples.add(&FILLS, &[], now(&stats.running));
    samples.add(&FILLS_QUEUE, &[], now(&stats.waiting));
    samples.add(&FILLED, &[&"done"], now(&stats.done));
    samples.add(&FILLED, &[&"failed"], now(&stats.failed));
    samples.add(&BYTES_FILLED, &[], now(&stats.bytes_filled));
    samples.add(&BYTES_KEPT, &[], now(&stats.bytes_kept));
}

/// Adds the usage and limits of the tables that have a share in the configuration. Other tables get no series, so the
/// configuration bounds the number of series.
async fn shares(samples: &mut Samples, node: &NodeState) {
    let configs = &node.config.shares;
    if configs.is_empty() {
        return;
    }
    // Without an answer there are no samples: 0 would look as if all extents were gone.
    let Some(holdings) = node.fills.tables().await else { return };
    let holdings: HashMap<_, _> = holdings.into_iter().collect();
    // The shares were checked when the node started.
    for (config, (tag, _)) in configs.iter().zip(config::shares(&node.config).unwrap_or_default()) {
        let holding = holdings.get(&tag).copied().unwrap_or_default();
        let label = config.label();
        let labels: &[&dyn Display] = &[&label];
        samples.add(&SHARE_USAGE, labels, holding.sectors * SECTOR_BYTES as u64);
        samples.add(&SHARE_HELD, labels, holding.held_sectors * SECTOR_BYTES as u64);
        samples.add(&SHARE_MINIMUM, labels, config.minimum.as_u64());
        if let Some(maximum) = config.maximum {
            samples.add(&SHARE_MAXIMUM, labels, maximum.as_u64());
        }
    }
}

fn readiness(samples: &mut Samples, shared: &ServiceState) {
    samples.add(&READY, &[], u64::from(shared.readiness.is_ready()));
    let warms = shared.start_warms.warms();
    if warms.is_empty() {
        return;
    }
    let progress = || warms.iter().filter_map(|warm| warm.progress.as_ref());
    let (total, done): (u64, u64) = progress()
        .fold((0, 0), |(total, done), it| (total + it.extents_total, done + it.extents_done));
    let failed = progress().map(|it| it.extents_failed).sum::<u64>();
    samples.add(&START_WARM, &[&"done"], done);
    samples.add(&START_WARM, &[&"failed"], failed);
    samples.add(&START_WARM, &[&"left"], total.saturating_sub(done + failed));
}
