//! The I/O node's metrics: what they are, and how they are collected.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use address::{DriveNo, SECTOR_BYTES};
use tables::{cache_samples, store_samples};
use telemetry::{Buckets, Samples, Source, process_samples, tls_samples};
use wire::BATCH_STAGES;

use crate::config;
use crate::core::CoreSnapshot;
use crate::fill::DriveState;
use crate::node::Shared;
use crate::slab::drive_name;

telemetry::metrics! {
    pub static METRICS;
    ROWS = Counter "bireme.io.rows" "{row}" [] "Rows served";
    BATCHES = Counter "bireme.io.batches" "{batch}" [] "Batches served";
    BATCH_ROWS = Histogram "bireme.io.batch.rows" "{row}" [] "Rows of the batches that came";
    BATCH_DURATION = Histogram "bireme.io.batch.duration" "s" ["stage"]
        "Where batches' time goes: `locate`, `queue` (until the first read is asked of a drive), `read`, `assemble`; `all` from arrival to reply";
    SHED = Counter "bireme.io.batches.shed" "{batch}" [] "Batches, streams and connections refused because a queue or the memory for them was full, or a deadline could not be kept";
    DROPPED = Counter "bireme.io.batches.dropped" "{batch}" [] "Batches dropped because their deadline had passed or their caller had gone";
    TABLE_ROWS = Counter "bireme.io.rows.from_table" "{row}" [] "Rows answered from the table itself, because no drive had them";
    TABLE_QUEUE = Gauge "bireme.io.table.queue" "{batch}" [] "Batches that wait for the table to be read";
    STREAMS = Gauge "bireme.io.streams" "{stream}" [] "Fetch streams that are open";
    UNDER_WAY = Gauge "bireme.io.batches.under_way" "{batch}" [] "Batches under way";
    TRAFFIC_MEMORY = Gauge "bireme.io.traffic_memory.usage" "By" [] "Memory held for clients: connections, streams, batches, and replies until they are sent";
    TRAFFIC_MEMORY_LIMIT = Gauge "bireme.io.traffic_memory.limit" "By" [] "What it may come to";
    CONNECTIONS = Gauge "bireme.io.connections" "{connection}" [] "Connections of clients";
    CONNECTIONS_LIMIT = Gauge "bireme.io.connections.limit" "{connection}" [] "How many there may be; a newcomer has the place of one that is idle";
    CONNECTIONS_EVICTED = Counter "bireme.io.connections.evicted" "{connection}" [] "Idle connections that were closed for newcomers";
    CONNECTIONS_REFUSED = Counter "bireme.io.connections.refused" "{connection}" [] "Newcomers that were refused: all connections had streams, or half of them were their address's";
    RING_READS = Counter "bireme.io.ring.reads" "{read}" ["core"] "Reads that a core's ring was given";
    RING_SUBMITS = Counter "bireme.io.ring.submits" "{submit}" ["core"] "Times that the kernel was entered to submit; reads by submits is the size of a batch";
    RING_IN_FLIGHT = Gauge "bireme.io.ring.in_flight" "{operation}" ["core"] "Operations of a ring that are in flight";
    RING_QUEUE = Gauge "bireme.io.ring.queue" "{piece}" ["core"] "Pieces of rows that wait for a read on a core";
    RING_TRANSFERS = Gauge "bireme.io.ring.transfers.queue" "{operation}" ["core"] "Writes, flushes, and reads of extents to keep or check that wait for their turn on a core";
    RING_DURATION = Histogram "bireme.io.ring.read.duration" "s" ["core"] "From a read's submission to its completion, by core";
    RING_RETRIES = Counter "bireme.io.ring.retries" "{operation}" ["core"] "Operations submitted once more, after a short transfer or a shortage of the kernel's";
    DRIVE_READS = Counter "bireme.io.drive.reads" "{read}" ["drive"] "Reads of a drive that ended well; rows by reads is what coalescing brings";
    DRIVE_BYTES = Counter "bireme.io.drive.read" "By" ["drive"] "Bytes of those reads";
    DRIVE_FAILED = Counter "bireme.io.drive.failures" "{read}" ["drive"] "Reads of a drive that failed";
    DRIVE_IN_FLIGHT = Gauge "bireme.io.drive.in_flight" "{read}" ["drive"] "Reads asked of a drive and not answered yet";
    DRIVE_DURATION = Histogram "bireme.io.drive.read.duration" "s" ["drive"] "From a read's submission to its completion, by drive";
    DRIVE_CAPACITY = Gauge "bireme.io.drive.capacity" "By" ["drive"] "Size of a drive's slab";
    DRIVE_USAGE = Gauge "bireme.io.drive.usage" "By" ["drive"] "Bytes of it that hold extents and journals";
    DRIVE_STATE = Gauge "bireme.io.drive.state" "{drive}" ["drive", "state"] "1 for the state that a drive is in: `serving`, `read_only`, `retired`";
    WRITTEN = Counter "bireme.io.drives.written" "By" [] "Bytes written to the drives";
    SHARED = Counter "bireme.io.coalesced" "{piece}" ["how"] "Pieces of rows that another piece's read brought along: `merged` with sectors of their own, next to its, `deduplicated` where all were read for others already";
    BAD_SECTORS = Counter "bireme.io.sectors.bad" "{sector}" [] "Sectors whose checksum was wrong, and reads that failed";
    LATE = Counter "bireme.io.reads.late" "{read}" [] "Reads given up because the drive did not answer in time";
    RAM_HITS = Counter "bireme.io.ram.hits" "{sector}" [] "Sectors found in the RAM tier";
    RAM_MISSES = Counter "bireme.io.ram.misses" "{sector}" [] "Sectors not found there";
    RAM_ADMITTED = Counter "bireme.io.ram.admitted" "{sector}" [] "Sectors let into the RAM tier";
    RAM_EVICTED = Counter "bireme.io.ram.evicted" "{sector}" [] "Sectors of the RAM tier let go for others";
    RAM_USAGE = Gauge "bireme.io.ram.usage" "By" [] "Bytes of sectors in the RAM tier";
    RAM_LIMIT = Gauge "bireme.io.ram.limit" "By" [] "Size of the RAM tier";
    EXTENTS = Gauge "bireme.io.extents" "{extent}" [] "Extents on the drives";
    EXTENT_HITS = Counter "bireme.io.extents.hits" "{row}" [] "Rows of batches that a drive had when they were located; of columns kept in several extents, once for each";
    EXTENT_MISSES = Counter "bireme.io.extents.misses" "{row}" [] "The same that no drive had";
    EXTENT_HEAT = Gauge "bireme.io.extents.heat" "{extent}" ["core", "heat"] "Extents by how many batches of a core have read them since they were placed, `3` for that many and more: what is kept when a segment is reclaimed goes by it";
    EVICTED = Counter "bireme.io.extents.evicted" "{extent}" [] "Extents let go to make room";
    EXTENTS_BAD = Counter "bireme.io.extents.dropped" "{extent}" [] "Extents dropped because their bytes could not be served";
    SCRUBBED = Counter "bireme.io.extents.scrubbed" "{extent}" [] "Extents that the scrubber has looked at";
    DIRECTORY = Gauge "bireme.io.directory.usage" "By" [] "Memory of the directory, over all cores";
    DIRECTORY_LIMIT = Gauge "bireme.io.directory.limit" "By" [] "What `memory` leaves the directory; when it is full, extents go though drives have room";
    SHARE_USAGE = Gauge "bireme.io.share.usage" "By" ["table"] "Bytes of extents of a table that has a share in the configuration";
    SHARE_HELD = Gauge "bireme.io.share.held" "By" ["table"] "Of those, the bytes that others' fills leave alone";
    SHARE_MINIMUM = Gauge "bireme.io.share.minimum" "By" ["table"] "Bytes that the table may count on, once they are there; 0 for none";
    SHARE_MAXIMUM = Gauge "bireme.io.share.maximum" "By" ["table"] "Bytes that it has at most; absent where there is no bound";
    READY = Gauge "bireme.io.ready" "{node}" [] "1 while the node's health says that it serves: its start is warm and enough comes from its drives, or that took too long";
    START_WARM = Gauge "bireme.io.start_warm.extents" "{extent}" ["state"] "Extents that the node fills before it is ready, of tables that are open: `done`, `failed`, `left`";
    FILLS = Gauge "bireme.io.fills.under_way" "{fill}" [] "Fills that wait or are under way";
    FILLS_QUEUE = Gauge "bireme.io.fills.queue" "{fill}" [] "Those of them that wait for their turn";
    FILLED = Counter "bireme.io.fills" "{fill}" ["outcome"] "Fills that ended, `done` or `failed`";
    BYTES_FILLED = Counter "bireme.io.fills.written" "By" [] "Bytes of extents filled";
    BYTES_KEPT = Counter "bireme.io.fills.kept" "By" [] "Bytes written once more, because their segment was reclaimed and they had been read";
    ENGINE = Gauge "bireme.io.engine" "{node}" ["engine"] "1 for what carries reads out: `io_uring`, `pread`, `in place`, `simulated`";
}

/// A node, to be asked for its metrics.
pub struct NodeMetrics(pub Arc<Shared>);

impl Source for NodeMetrics {
    async fn collect(&self) -> Samples {
        let shared = &self.0;
        let cores = shared.snapshots().await;
        let mut samples = Samples::default();
        traffic(&mut samples, shared, &cores);
        rings(&mut samples, &cores);
        drives(&mut samples, shared, &cores);
        ram(&mut samples, shared, &cores);
        fills(&mut samples, shared, &cores);
        shares(&mut samples, shared).await;
        readiness(&mut samples, shared);
        store_samples(&mut samples, &shared.tables.store_use());
        cache_samples(&mut samples, &shared.tables.cache_use().await);
        tls_samples(&mut samples, shared.tls.as_ref().and_then(|tls| tls.expires()), None);
        process_samples(&mut samples);
        samples
    }

    fn is_ready(&self) -> bool {
        self.0.readiness.is_ready()
    }

    async fn is_alive(&self) -> bool {
        // A core that has ended says nothing.
        self.0.snapshots().await.len() == self.0.cores()
    }
}

fn sum(cores: &[CoreSnapshot], count: impl Fn(&CoreSnapshot) -> u64) -> u64 {
    cores.iter().map(count).sum()
}

/// Those of all cores, or drives, as one.
fn together<'a>(all: impl Iterator<Item = &'a Buckets>) -> Buckets {
    all.fold(Buckets::default(), |mut sum, buckets| {
        sum.add(buckets);
        sum
    })
}

/// From batches' arrival to their replies.
pub fn batch_times(cores: &[CoreSnapshot]) -> Buckets {
    together(cores.iter().map(|core| &core.histograms.batch))
}

/// From reads' submission to their completion, over all drives.
pub fn read_times(cores: &[CoreSnapshot]) -> Buckets {
    together(cores.iter().flat_map(|core| &core.histograms.reads))
}

/// Memory of the directory: each core's replica, and what they share.
pub fn directory_bytes(cores: &[CoreSnapshot]) -> u64 {
    let shared_bytes = cores.first().map_or(0, |core| core.directory_shared_bytes as u64);
    sum(cores, |core| core.replica_bytes as u64) + shared_bytes
}

fn traffic(samples: &mut Samples, shared: &Shared, cores: &[CoreSnapshot]) {
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
    samples.add(&TABLE_QUEUE, &[], shared.table_reader.waiting() as u64);
    samples.add(&STREAMS, &[], sum(cores, |core| core.streams as u64));
    samples.add(&UNDER_WAY, &[], sum(cores, |core| core.batches_under_way as u64));
    samples.add(&TRAFFIC_MEMORY, &[], sum(cores, |core| core.reply_bytes));
    samples.add(&TRAFFIC_MEMORY_LIMIT, &[], shared.memory.traffic);
    let connections = shared.connection_slots.counts();
    samples.add(&CONNECTIONS, &[], connections.open as u64);
    samples.add(&CONNECTIONS_LIMIT, &[], connections.max as u64);
    samples.add(&CONNECTIONS_EVICTED, &[], connections.evicted);
    samples.add(&CONNECTIONS_REFUSED, &[], connections.refused);
}

fn rings(samples: &mut Samples, cores: &[CoreSnapshot]) {
    for (number, core) in cores.iter().enumerate() {
        samples.add(&RING_READS, &[&number], core.ring.reads_submitted);
        samples.add(&RING_SUBMITS, &[&number], core.ring.submits);
        samples.add(&RING_IN_FLIGHT, &[&number], core.ring.in_flight);
        samples.add(&RING_QUEUE, &[&number], core.queued as u64);
        samples.add(&RING_TRANSFERS, &[&number], core.ring.transfer_queue_len);
        samples.add(&RING_DURATION, &[&number], together(core.histograms.reads.iter()));
        samples.add(&RING_RETRIES, &[&number], core.ring.retries);
    }
}

fn drives(samples: &mut Samples, shared: &Shared, cores: &[CoreSnapshot]) {
    for (at, slab) in shared.slabs.iter().enumerate() {
        let drive = &drive_name(DriveNo(at as u16), slab.path());
        samples.add(&DRIVE_READS, &[drive], sum(cores, |core| core.drives[at].reads));
        samples.add(&DRIVE_BYTES, &[drive], sum(cores, |core| core.drives[at].read_bytes));
        samples.add(&DRIVE_FAILED, &[drive], sum(cores, |core| core.drives[at].failed));
        samples.add(&DRIVE_IN_FLIGHT, &[drive], sum(cores, |core| core.drives[at].in_flight));
        let times = together(cores.iter().map(|core| &core.histograms.reads[at]));
        samples.add(&DRIVE_DURATION, &[drive], times);
        samples.add(&DRIVE_CAPACITY, &[drive], slab.len());
        let number = DriveNo(at as u16);
        samples.add(&DRIVE_USAGE, &[drive], shared.fills.used_bytes(number));
        let state = shared.fills.drive_state(number);
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

fn ram(samples: &mut Samples, shared: &Shared, cores: &[CoreSnapshot]) {
    samples.add(&RAM_HITS, &[], sum(cores, |core| core.ram_hits));
    samples.add(&RAM_MISSES, &[], sum(cores, |core| core.ram_misses));
    samples.add(&RAM_ADMITTED, &[], sum(cores, |core| core.ram_admitted));
    samples.add(&RAM_EVICTED, &[], sum(cores, |core| core.ram_evicted));
    let bytes = sum(cores, |core| core.ram_sectors) * SECTOR_BYTES as u64;
    samples.add(&RAM_USAGE, &[], bytes);
    samples.add(&RAM_LIMIT, &[], shared.config.ram_tier.as_u64());
}

fn fills(samples: &mut Samples, shared: &Shared, cores: &[CoreSnapshot]) {
    let stats = shared.fills.stats();
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
    samples.add(&DIRECTORY, &[], directory_bytes(cores));
    samples.add(&DIRECTORY_LIMIT, &[], shared.memory.directory);
    samples.add(&FILLS, &[], now(&stats.running));
    samples.add(&FILLS_QUEUE, &[], now(&stats.waiting));
    samples.add(&FILLED, &[&"done"], now(&stats.done));
    samples.add(&FILLED, &[&"failed"], now(&stats.failed));
    samples.add(&BYTES_FILLED, &[], now(&stats.bytes_filled));
    samples.add(&BYTES_KEPT, &[], now(&stats.bytes_kept));
}

/// Of tables that the configuration names, so that there are no more series than it has entries.
async fn shares(samples: &mut Samples, shared: &Shared) {
    let configs = &shared.config.shares;
    if configs.is_empty() {
        return;
    }
    let holdings: HashMap<_, _> = shared.fills.tables().await.into_iter().collect();
    // Checked when the node started.
    for (config, (tag, _)) in configs.iter().zip(config::shares(&shared.config).unwrap_or_default())
    {
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

fn readiness(samples: &mut Samples, shared: &Shared) {
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
