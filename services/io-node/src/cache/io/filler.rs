//! The filler: one task that owns which chunks are cached, which are being filled, and which space is free.
//!
//! A miss requests a fill. A request for a chunk that is already being filled joins that fill, so each chunk is scanned
//! once however many requests there are. Fills run in the background, a bounded number at a time. Their steps
//! (`task.rs`) report back to the filler, which does all bookkeeping without a lock.

mod allocate;
mod faults;
mod reclaim;
mod record;
mod shares;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use address::{DriveNo, ExtentKey, SECTOR_BYTES};
use ring::WriteError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::reclaim::Reclaim;
use super::chunk::Chunk;
use super::handle::{
    DriveGauges, FillHandle, FillOutcome, FillRequest, FillStats, FillerMessage, Waiter,
};
use super::restore;
use super::steps::Steps;
use super::task::{self, Purpose, Step, publish, scan};
use super::threads::FillThreads;
use super::transfer_bufs::TransferBufs;
use super::transfers::Transfers;
use crate::cache::books::{
    Eviction, Pace, Placed, SEGMENTS_SAVED, Scrub, Segments, Shares, Unrecorded, WaitingFills,
    record_sectors,
};
use crate::config::Admission;
use crate::drive::{DriveState, Health, is_drive_fault};
use crate::drive::{FoundJournal, Superblock};
use crate::extent::{Extent, SegmentNo};
use crate::shard::mailbox::Mailbox;

/// Chunks scanned together have at most a segment's bytes divided by this: a fill may hold a segment in memory, and the
/// table's columns take more space in memory than in the table.
const SCAN_SHARE: u64 = 2;

/// After a chunk's first failed fill, misses do not request it again for this long. The delay doubles with each further
/// failure.
const HOLD_OFF_MIN: Duration = Duration::from_secs(1);

/// The longest such delay.
const HOLD_OFF_MAX: Duration = Duration::from_secs(300);

/// Why a chunk of a pinned table is not filled: the table is at its quota, and nothing of it is evicted.
const FULL: &str =
    "its table is pinned and has its `maximum` of the drives: raise `maximum` in `shares`";

/// Restored extents that the filler records before it yields to other tasks.
const TAKEN_OVER_AT_ONCE: usize = 16 << 10;

/// Failed chunks that are remembered. When there are more, all are forgotten and may be tried again.
const FAILED_MAX: usize = 1 << 16;

/// Why a chunk can't be filled once no drive takes writes.
const NO_DRIVE: &str = "no drive takes writes";

/// The filler's limits.
#[derive(Clone, Copy, Debug)]
pub struct FillLimits {
    /// Fills that run at the same time.
    pub fills_max: usize,
    /// Fills that wait.
    pub queue_max: usize,
    /// Which misses request a fill.
    pub admission: Admission,
    /// Bytes that fills write per second; 0 for no limit.
    pub fill_rate: u64,
    /// Bytes that the scrubber reads per second; 0 turns it off.
    pub scrub_rate: u64,
    /// Bytes of RAM that the directory may use.
    pub directory_bytes_max: u64,
}

/// The filler's state; [`Filler::run`] is its task.
pub struct Filler {
    requests: mpsc::Receiver<FillRequest>,
    messages: mpsc::Receiver<FillerMessage>,
    /// For the filler's own steps.
    own_messages: mpsc::WeakSender<FillerMessage>,
    cores: Arc<[Mailbox]>,
    limits: FillLimits,
    slabs: Vec<Superblock>,
    segments: Segments,
    segment_sectors: u64,
    stats: Arc<FillStats>,
    gauges: Arc<[DriveGauges]>,
    steps: Steps,
    /// Fills that wait to be scanned.
    queued: WaitingFills<Box<dyn Chunk>>,
    /// Fills from request to end, and who waits for each.
    under_way: HashMap<ExtentKey, Vec<Waiter>>,
    /// Threads for steps that take long.
    threads: FillThreads,
    scanning: usize,
    /// Writes under way on each drive.
    writing: Vec<usize>,
    /// Each drive's transfer buffers.
    bufs: Vec<Arc<TransferBufs>>,
    /// Chunks that could not be filled: when they may be tried again, and how long that delay was.
    failed: HashMap<ExtentKey, (Instant, Duration)>,
    /// Chunks that are longer than a segment, and their bytes. They are not scanned again, since they can never fit.
    too_long: HashMap<ExtentKey, u64>,
    /// Encoded extents that await space on a drive.
    awaiting_space: VecDeque<(ExtentKey, pack::Extent)>,
    eviction: Eviction,
    shares: Shares,
    pace: Pace,
    scrub: Scrub,
    reclaiming: Option<Reclaim>,
    /// Extents found on the drives at the start, until the filler has recorded them.
    restored: Arc<[Arc<Extent>]>,
    /// Extents that every core's directory has.
    placed: Placed,
    /// Extents placed in each segment. Some may have been dropped or placed elsewhere since.
    by_segment: HashMap<SegmentNo, Vec<Arc<Extent>>>,
    /// For each drive, the extents that are not in its journal yet, and whether a block is being written.
    unrecorded: Vec<(Unrecorded, bool)>,
    health: Vec<Health>,
    stopping: Option<oneshot::Sender<()>>,
    next_core: usize,
}

impl Filler {
    /// Creates a filler over these slabs, which are all divided into segments of the same length. It knows nothing of
    /// their contents before [`Filler::restore`].
    ///
    /// Steps that take long run on `threads`, the others where [`Filler::run`] does. `epoch_min` is higher than any
    /// epoch this node has given out: the epochs of journals that can't be read are unknown.
    pub fn new(
        cores: Arc<[Mailbox]>,
        slabs: Vec<Superblock>,
        limits: FillLimits,
        shares: Shares,
        threads: FillThreads,
        epoch_min: u64,
    ) -> (Self, FillHandle) {
        let stats = Arc::new(FillStats::default());
        let gauges: Arc<[DriveGauges]> = slabs.iter().map(|_| DriveGauges::default()).collect();
        let (handle, requests, messages) =
            FillHandle::new(limits.queue_max, Arc::clone(&stats), Arc::clone(&gauges));
        let segment_sectors = slabs.first().map_or(1, |slab| slab.segment_sectors);
        let sectors: Vec<_> = slabs.iter().map(|slab| slab.sectors).collect();
        let bytes_under_way = limits.fills_max as u64 * segment_sectors * SECTOR_BYTES as u64;
        let placed = Placed::new(cores.len(), !shares.is_empty());
        let filler = Self {
            requests,
            messages,
            own_messages: handle.own_messages(),
            cores,
            limits,
            segments: Segments::new(segment_sectors, &sectors, epoch_min),
            segment_sectors,
            stats,
            gauges,
            steps: Steps::default(),
            queued: WaitingFills::new(segment_sectors * SECTOR_BYTES as u64 / SCAN_SHARE),
            under_way: HashMap::new(),
            threads,
            scanning: 0,
            writing: vec![0; slabs.len()],
            bufs: slabs.iter().map(|_| Arc::new(TransferBufs::new(bytes_under_way))).collect(),
            failed: HashMap::new(),
            too_long: HashMap::new(),
            awaiting_space: VecDeque::new(),
            eviction: Eviction::new(segment_sectors * SEGMENTS_SAVED),
            shares,
            pace: Pace::new(limits.fill_rate, Instant::now()),
            scrub: Scrub::new(limits.scrub_rate, Instant::now()),
            reclaiming: None,
            restored: Arc::default(),
            placed,
            by_segment: HashMap::new(),
            unrecorded: slabs.iter().map(|_| Default::default()).collect(),
            health: slabs.iter().map(|_| Health::default()).collect(),
            slabs,
            stopping: None,
            next_core: 0,
        };
        (filler, handle)
    }

    /// Enters all extents on the slabs into every core's directory, and returns how many there are. Call it first.
    ///
    /// The filler's own records follow in [`run`](Self::run): rows can be served without them.
    pub async fn restore(&mut self, found: Vec<Vec<FoundJournal>>) -> usize {
        let restored = restore::plan(found, self.segment_sectors);
        self.segments.restore(restored.segments);
        for segment in restored.unreadable {
            self.segments.distrust(segment);
        }
        self.restored = restored.extents.into();
        let extents = task::restore(&self.cores, &self.restored).await;
        for drive in 0..self.slabs.len() {
            self.count_used(DriveNo(drive as u16));
        }
        self.stats.extents.store(extents as u64, Ordering::Relaxed);
        extents
    }

    /// Enters the restored extents into the filler's own records.
    async fn take_over(&mut self) {
        let restored = std::mem::take(&mut self.restored);
        self.placed.reserve(restored.len());
        for extents in restored.chunks(TAKEN_OVER_AT_ONCE) {
            extents.iter().for_each(|extent| drop(self.placed.insert(Arc::clone(extent))));
            // This may be the process's only thread, and connections wait to be accepted.
            tokio::task::yield_now().await;
        }
        for extents in restored.chunks(TAKEN_OVER_AT_ONCE) {
            for extent in extents {
                if self.placed.has(extent) {
                    self.by_segment.entry(extent.segment).or_default().push(Arc::clone(extent));
                    self.count_restored(extent);
                }
            }
            tokio::task::yield_now().await;
        }
        self.keep_to_shares();
        self.scrub.begin(self.by_segment.keys().copied().collect(), Instant::now());
    }

    /// Runs until it receives a stop message, or all handles are dropped.
    pub async fn run(mut self) {
        self.take_over().await;
        // Tables over their quota have had extents evicted.
        self.update_stats();
        while self.stopping.is_none() || self.is_busy() {
            let takes = self.stopping.is_none() && self.queued.len() < self.limits.queue_max;
            let wake = self.wake();
            // Polled in this order so that a simulated run repeats. Steps are few, so requests do not wait long.
            tokio::select! {
                biased;
                Some(step) = self.steps.next() => self.stepped(step),
                // Messages are taken even when the queue of fills is full.
                Some(message) = self.messages.recv() => match message {
                    FillerMessage::BadExtent(extent, error) => self.drop_extent(&extent, error),
                    FillerMessage::Late(drive) => self.late(drive),
                    FillerMessage::Slow(drive) => self.slow(drive),
                    // The receiver may be gone.
                    FillerMessage::Tables(to) => drop(to.send(self.shares.holdings().collect())),
                    FillerMessage::Stop(stopped) => self.stopping = Some(stopped),
                },
                request = self.requests.recv(), if takes => match request {
                    Some(FillRequest { name, chunk, waiter }) => self.requested(name, chunk, waiter),
                    None => break,
                },
                // The branch is enabled only if `wake` is a time.
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)),
                    if wake.is_some() => {}
                else => break,
            }
            if self.stopping.is_none() {
                // Placing comes first: it may end fills and so allow scans that no step's report would start.
                self.allocate();
                self.start_scans();
                self.scrub();
            }
            self.record();
            self.update_stats();
        }
    }

    fn update_stats(&self) {
        self.stats.running.store(self.under_way.len() as u64, Ordering::Relaxed);
        self.stats.waiting.store(self.queued.len() as u64, Ordering::Relaxed);
        self.stats.extents.store(self.placed.len() as u64, Ordering::Relaxed);
    }

    /// The time of the next work that neither a step nor a message announces.
    fn wake(&self) -> Option<Instant> {
        if self.stopping.is_some() {
            return None;
        }
        let fill = self.awaiting_space.front().and_then(|_| self.pace.wait(Instant::now()));
        [fill, self.scrub.wait()].into_iter().flatten().min()
    }

    /// Whether an extent is being written, or waits to be recorded.
    fn is_busy(&self) -> bool {
        self.writing.iter().any(|&writes| writes > 0)
            || self.unrecorded.iter().any(|(waiting, busy)| *busy || waiting.len() > 0)
    }

    /// Whether nothing is under way that could free space.
    fn is_idle(&self) -> bool {
        self.reclaiming.is_none() && !self.is_busy()
    }

    fn requested(&mut self, name: ExtentKey, chunk: Box<dyn Chunk>, waiter: Option<Waiter>) {
        if self.segments.is_closed() {
            let outcome = FillOutcome::Failed(NO_DRIVE.into());
            waiter.into_iter().for_each(|w| drop(w.send(outcome.clone())));
        } else if self.placed.contains(name) {
            waiter.into_iter().for_each(|w| drop(w.send(FillOutcome::Found)));
        } else if let Some(waiters) = self.under_way.get_mut(&name) {
            waiters.extend(waiter);
        } else if self.shares.is_full(name) {
            let outcome = FillOutcome::Failed(FULL.into());
            waiter.into_iter().for_each(|w| drop(w.send(outcome.clone())));
        } else if let Some(&bytes) = self.too_long.get(&name) {
            let outcome = FillOutcome::Failed(too_long(bytes, self.segment_bytes()).into());
            waiter.into_iter().for_each(|w| drop(w.send(outcome.clone())));
        } else if waiter.is_none() && self.failed.get(&name).is_some_and(|f| f.0 > Instant::now()) {
            // A miss does not retry yet. A fill that somebody waits for (Warm) does.
        } else if waiter.is_none()
            && self.limits.admission == Admission::SecondTouch
            && !self.eviction.is_second_touch(name, self.placed.len())
        {
            // The first touch only counts; the second one fills the chunk.
        } else {
            self.under_way.insert(name, waiter.into_iter().collect());
            self.queued.push(name, chunk.scan_bytes(), chunk);
        }
    }

    fn start_scans(&mut self) {
        // An extent counts from its scan until it is written, because it is in memory that long.
        while self.scanning + self.awaiting_space.len() + self.writing.iter().sum::<usize>()
            < self.limits.fills_max
        {
            let Some(run) = self.queued.pop() else { break };
            if self.segments.is_closed() {
                for (name, _) in run {
                    self.end(name, FillOutcome::Failed(NO_DRIVE.into()));
                }
                continue;
            }
            self.scanning += 1;
            self.stats.scans.fetch_add(1, Ordering::Relaxed);
            let names: Vec<_> = run.iter().map(|(name, _)| *name).collect();
            let scan = scan(run, self.segment_bytes());
            let failed = |name| (name, Err("reading the table panicked".to_owned()));
            let instead =
                move || Step::Scanned { extents: names.into_iter().map(failed).collect() };
            self.steps.spawn_on(self.threads.next(), "scan", scan, instead);
        }
    }

    fn stepped(&mut self, step: Step) {
        match step {
            Step::Scanned { extents } => {
                self.scanning -= 1;
                for (name, extent) in extents {
                    match extent {
                        Ok(extent) => self.awaiting_space.push_back((name, extent)),
                        Err(why) => self.end(name, FillOutcome::Failed(why.into())),
                    }
                }
            }
            Step::Heated { segment, heats } => self.heated(segment, heats),
            Step::Scrubbed { extent, outcome } => {
                self.scrub.read();
                self.stats.scrubbed.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = outcome
                    && error.means_bad_data()
                {
                    self.drop_extent(&extent, error);
                }
            }
            Step::Reread { extent, copy } => match copy {
                Ok(copy) => self.keep(extent.segment, extent.key, copy),
                Err(error) => {
                    if error.means_bad_data() {
                        self.drop_extent(&extent, error);
                    }
                    if !self.not_due(extent.segment, extent.key) {
                        self.eviction.refund(extent.index.sectors().into());
                    }
                    self.moved(extent.segment);
                }
            },
            Step::Written { extent, purpose, bytes, outcome } => {
                self.written(extent, purpose, bytes, outcome);
            }
            Step::Published { key, purpose, bytes } => match purpose {
                Purpose::Fill => {
                    self.eviction.filled(key, bytes / SECTOR_BYTES as u64);
                    self.stats.bytes_filled.fetch_add(bytes, Ordering::Relaxed);
                    self.end(key, FillOutcome::Filled(bytes));
                }
                Purpose::Keep { from, .. } => {
                    self.stats.bytes_kept.fetch_add(bytes, Ordering::Relaxed);
                    self.moved(from);
                }
            },
            Step::Recorded { segment, extents, record_sectors, outcome } => {
                self.unrecorded[usize::from(segment.drive.0)].1 = false;
                self.segments.settle(segment, extents, record_sectors);
                self.count_used(segment.drive);
                self.journal_written(segment.drive, outcome);
                self.retry_out_of_space();
            }
            Step::Emptied { segment, outcome } => {
                // If this segment's drive was retired meanwhile, another segment may be being reclaimed.
                self.reclaiming.take_if(|reclaim| reclaim.segment == segment);
                if self.journal_written(segment.drive, outcome) {
                    self.segments.release(segment);
                }
            }
        }
    }

    fn written(
        &mut self,
        extent: Arc<Extent>,
        purpose: Purpose,
        bytes: u64,
        outcome: Result<(), WriteError>,
    ) {
        let drive = usize::from(extent.drive.0);
        self.writing[drive] = self.writing[drive].saturating_sub(1);
        match outcome {
            // An extent that was evicted while it was being moved stays evicted.
            Ok(())
                if matches!(purpose, Purpose::Keep { .. }) && !self.placed.contains(extent.key) =>
            {
                self.segments.settle(extent.segment, 1, record_sectors(&extent.index));
                if let Purpose::Keep { from, .. } = purpose {
                    self.moved(from);
                }
            }
            Ok(()) if self.health[drive].state() != DriveState::Retired => {
                self.health[drive].written();
                self.publish(&extent);
                self.count_published(&extent, purpose);
                let (broadcast, key) = (publish(&self.cores, &extent), extent.key);
                let published = move || Step::Published { key, purpose, bytes };
                let work = async move {
                    broadcast.wait().await;
                    published()
                };
                // If the wait panics, the cores still have the message, so the step counts as done.
                self.steps.spawn("publish", work, published);
            }
            outcome => {
                self.segments.settle(extent.segment, 1, record_sectors(&extent.index));
                let failed = outcome.err();
                let why = match &failed {
                    Some(error) if self.health[drive].state() != DriveState::Retired => {
                        error.to_string()
                    }
                    _ => "its drive is retired".to_owned(),
                };
                if let Some(error) = &failed
                    && self.health[drive].write_failed(error)
                {
                    self.degrade(extent.drive, error);
                }
                match purpose {
                    Purpose::Fill => {
                        self.uncount(extent.key, extent.index.sectors().into());
                        self.end(extent.key, FillOutcome::Failed(why.into()));
                    }
                    Purpose::Keep { from, is_due } => {
                        if is_due && failed.as_ref().is_none_or(is_drive_fault) {
                            self.keep_once_more(from, extent.key);
                        }
                        self.moved(from);
                    }
                }
            }
        }
    }

    /// Records an extent as placed in the same step that sends it to the cores. From then on, reports about the extent
    /// that had its name before are recognised as late.
    fn publish(&mut self, extent: &Arc<Extent>) {
        let drive = usize::from(extent.drive.0);
        self.by_segment.entry(extent.segment).or_default().push(Arc::clone(extent));
        if self.health[drive].state() == DriveState::Serving {
            self.unrecorded[drive].0.push(Arc::clone(extent));
        }
        self.segments.live(extent.segment, extent.index.sectors().into());
        if let Some(replaced) = self.placed.insert(Arc::clone(extent)) {
            self.segments.gone(replaced.segment, replaced.index.sectors().into());
        }
    }

    fn count_used(&self, drive: DriveNo) {
        let used = self.segments.used_sectors(drive) * SECTOR_BYTES as u64;
        self.gauges[usize::from(drive.0)].used_bytes.store(used, Ordering::Relaxed);
    }

    /// Returns transfers to a drive through the next core in turn.
    fn transfers(&mut self, drive: DriveNo) -> Transfers {
        self.next_core = (self.next_core + 1) % self.cores.len();
        Transfers {
            core: self.cores[self.next_core].clone(),
            drive,
            bufs: Arc::clone(&self.bufs[usize::from(drive.0)]),
            gauges: Arc::clone(&self.gauges),
            filler: self.own_messages.clone(),
        }
    }

    /// Ends a fill whose extent is longer than a segment, and remembers it so that later requests fail at once.
    fn end_too_long(&mut self, name: ExtentKey, bytes: u64) {
        if self.too_long.len() >= FAILED_MAX {
            self.too_long.clear();
        }
        self.too_long.insert(name, bytes);
        self.end(name, FillOutcome::Failed(too_long(bytes, self.segment_bytes()).into()));
    }

    fn segment_bytes(&self) -> u64 {
        self.segment_sectors * SECTOR_BYTES as u64
    }

    /// Delays the next attempt of a chunk that can't be filled, so that misses do not scan it again at once.
    fn hold_off(&mut self, name: ExtentKey) {
        if self.failed.len() >= FAILED_MAX {
            self.failed.clear();
        }
        let last = self.failed.get(&name).map_or(HOLD_OFF_MIN / 2, |(_, last)| *last);
        let next = (last * 2).min(HOLD_OFF_MAX);
        self.failed.insert(name, (Instant::now() + next, next));
    }

    fn end(&mut self, name: ExtentKey, outcome: FillOutcome) {
        match &outcome {
            FillOutcome::Failed(why) => {
                tracing::warn!(extent = ?name, why = %why, "a chunk can't be filled");
                self.hold_off(name);
                self.stats.failed.fetch_add(1, Ordering::Relaxed);
            }
            FillOutcome::Found | FillOutcome::Filled(_) => {
                self.failed.remove(&name);
                self.stats.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        for waiter in self.under_way.remove(&name).unwrap_or_default() {
            let _ = waiter.send(outcome.clone());
        }
    }
}

/// The reason given for a chunk that is longer than a segment.
fn too_long(bytes: u64, segment_bytes: u64) -> String {
    format!(
        "a chunk of {bytes} bytes doesn't fit a segment of {segment_bytes}: its rows come from the table; raise `segment`, which empties the drives"
    )
}
