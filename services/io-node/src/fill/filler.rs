//! The filler: the one owner of what is filled, what is being filled, and where there is room.
//!
//! Whoever misses a chunk asks; asks for what is under way already join it, so that a chunk is
//! scanned once however many ask. Fills run in the background, a bounded number at a time; their
//! steps (`task.rs`) report back here, where all bookkeeping is done without a lock.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use address::{DriveNo, ExtentKey, SECTOR_BYTES};
use ring::WriteError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::chunk::{Chunk, FillKey, TableChunk};
use super::eviction::{Candidate, Eviction, Log};
use super::health::{DriveState, Health, Trouble};
use super::restore;
use super::segments::{Allocation, BlockRoom, Room, SegmentNo, Segments};
use super::task::{self, Purpose, Step, forget, publish, scan, write};
use super::unrecorded::{Unrecorded, record_sectors};
use crate::config::Admission;
use crate::core::mailbox::Mailbox;
use crate::directory::{Extent, KeyHasher};
use crate::slab::journal::{BlockId, Record, block_sectors, record_bytes, to_block};
use crate::slab::{Found, Superblock, segment_start};
use crate::table::OpenTable;

/// What came of an ask.
#[derive(Clone, Debug)]
pub enum FillOutcome {
    /// The extent was on a drive already.
    Found,
    /// It is now; bytes written.
    Filled(u64),
    /// It can't be filled; why.
    Failed(Arc<str>),
}

/// What the filler counts, for other threads to read.
#[derive(Debug, Default)]
pub struct FillStats {
    /// Extents on the drives.
    pub extents: AtomicU64,
    /// Fills waiting or under way.
    pub running: AtomicU64,
    /// Fills done since the start.
    pub done: AtomicU64,
    /// Fills failed since the start.
    pub failed: AtomicU64,
    /// Bytes of extents filled since the start.
    pub bytes_filled: AtomicU64,
    /// Bytes of extents written once more since the start, to keep them.
    pub bytes_kept: AtomicU64,
    /// Extents dropped since the start because their bytes could not be served.
    pub dropped: AtomicU64,
    /// Segments reclaimed since the start.
    pub reclaimed: AtomicU64,
}

/// One drive, for other threads to read.
#[derive(Debug, Default)]
struct DriveGauges {
    used_bytes: AtomicU64,
    /// A [`DriveState`].
    state: AtomicU8,
}

/// Asks of the filler, from any thread.
#[derive(Clone)]
pub struct FillHandle {
    asks: mpsc::Sender<Ask>,
    stats: Arc<FillStats>,
    drives: Arc<[DriveGauges]>,
}

/// How many segments' worth of allowance for keeping can be saved up.
pub const SEGMENTS_SAVED: u64 = 4;

/// How long a chunk that could not be filled is let be after the first failure; twice as long after each
/// further one.
const HOLD_OFF_MIN: Duration = Duration::from_secs(1);

/// The longest that it is let be.
const HOLD_OFF_MAX: Duration = Duration::from_secs(300);

/// Failed chunks that are remembered; past that all are forgotten, and tried again.
const FAILED_MAX: usize = 1 << 16;

type Waiter = oneshot::Sender<FillOutcome>;

enum Ask {
    Fill { name: ExtentKey, chunk: Box<dyn Chunk>, waiter: Option<Waiter> },
    Bad(Arc<Extent>, Trouble),
    Late(DriveNo),
    Stop(oneshot::Sender<()>),
}

impl FillHandle {
    /// Has a chunk filled some time. Does not wait; when too many wait already the next miss asks
    /// again.
    pub fn ask(&self, table: &Arc<OpenTable>, key: FillKey) {
        if let Some((name, chunk)) = TableChunk::new(table, key) {
            let _ = self.asks.try_send(Ask::Fill { name, chunk: Box::new(chunk), waiter: None });
        }
    }

    /// Has a chunk filled and says when that is done. Waits for a place in the queue.
    pub async fn fill(&self, table: &Arc<OpenTable>, key: FillKey) -> FillOutcome {
        match TableChunk::new(table, key) {
            Some((name, chunk)) => self.fill_with(name, Box::new(chunk)).await,
            None => FillOutcome::Failed("the table has no such fragment".into()),
        }
    }

    /// Has an extent filled with a chunk.
    pub(super) async fn fill_with(&self, name: ExtentKey, chunk: Box<dyn Chunk>) -> FillOutcome {
        let (waiter, outcome) = oneshot::channel();
        let ask = Ask::Fill { name, chunk, waiter: Some(waiter) };
        let stopped = || FillOutcome::Failed("the node is shutting down".into());
        if self.asks.send(ask).await.is_err() {
            return stopped();
        }
        outcome.await.unwrap_or_else(|_| stopped())
    }

    /// Drops an extent whose bytes can't be served; the next miss fills it again, elsewhere. When too many
    /// wait already the next read of it says so again.
    pub fn bad_extent(&self, extent: &Arc<Extent>, trouble: Trouble) {
        let _ = self.asks.try_send(Ask::Bad(Arc::clone(extent), trouble));
    }

    /// Says that a drive did not answer reads in time.
    pub fn late(&self, drive: DriveNo) {
        let _ = self.asks.try_send(Ask::Late(drive));
    }

    /// Has what is written already recorded in the drives' journals, and nothing begun any more. Done when
    /// what it returns says so.
    pub fn stop(&self) -> oneshot::Receiver<()> {
        let (stopped, done) = oneshot::channel();
        let asks = self.asks.clone();
        // The queue may be full, and drains.
        if let Err(mpsc::error::TrySendError::Full(ask)) = asks.try_send(Ask::Stop(stopped))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { drop(asks.send(ask).await) });
        }
        done
    }

    /// What the filler counts.
    pub fn stats(&self) -> &FillStats {
        &self.stats
    }

    /// Bytes of a drive that hold extents and journals.
    pub fn used_bytes(&self, drive: DriveNo) -> u64 {
        self.drives[usize::from(drive.0)].used_bytes.load(Ordering::Relaxed)
    }

    /// How a drive is used.
    pub fn drive_state(&self, drive: DriveNo) -> DriveState {
        match self.drives[usize::from(drive.0)].state.load(Ordering::Relaxed) {
            0 => DriveState::Serving,
            1 => DriveState::ReadOnly,
            _ => DriveState::Retired,
        }
    }
}

/// What bounds the filler.
#[derive(Clone, Copy, Debug)]
pub struct FillLimits {
    /// Fills at the same time.
    pub fills_max: usize,
    /// Fills that wait.
    pub queue_max: usize,
    /// Which misses fill.
    pub admission: Admission,
}

/// The owner's state; [`Filler::run`] is its life.
pub struct Filler {
    asks: mpsc::Receiver<Ask>,
    cores: Arc<[Mailbox]>,
    limits: FillLimits,
    slabs: Vec<Superblock>,
    segments: Segments,
    segment_sectors: u64,
    stats: Arc<FillStats>,
    gauges: Arc<[DriveGauges]>,
    steps: JoinSet<Step>,
    /// Fills that wait for their turn.
    queued: VecDeque<(ExtentKey, Box<dyn Chunk>)>,
    /// Fills from ask to end, with who wants to know.
    under_way: HashMap<ExtentKey, Vec<Waiter>>,
    scanning: usize,
    writing: usize,
    /// Chunks that could not be filled, until when they are not tried again, and how long that was.
    failed: HashMap<ExtentKey, (Instant, Duration)>,
    /// Encoded extents that wait for room.
    homeless: VecDeque<(ExtentKey, pack::Extent)>,
    eviction: Eviction,
    /// The segment that is being reclaimed, and how many of its extents are on their way elsewhere.
    reclaiming: Option<(SegmentNo, usize)>,
    /// What every core finds.
    placed: HashMap<ExtentKey, Arc<Extent>, BuildHasherDefault<KeyHasher>>,
    /// What was placed in each segment, some of it perhaps dropped or placed elsewhere since.
    by_segment: HashMap<SegmentNo, Vec<Arc<Extent>>>,
    /// Of each drive: what isn't in its journal yet, and whether a block is being written.
    unrecorded: Vec<(Unrecorded, bool)>,
    health: Vec<Health>,
    stopping: Option<oneshot::Sender<()>>,
    next_core: usize,
}

impl Filler {
    /// A filler over these slabs, all divided into segments of the same length. It knows nothing of what
    /// they hold before [`Filler::restore`].
    pub fn new(
        cores: Arc<[Mailbox]>,
        slabs: Vec<Superblock>,
        limits: FillLimits,
    ) -> (Self, FillHandle) {
        let (sender, asks) = mpsc::channel(limits.queue_max);
        let stats = Arc::new(FillStats::default());
        let gauges: Arc<[DriveGauges]> = slabs.iter().map(|_| DriveGauges::default()).collect();
        let handle =
            FillHandle { asks: sender, stats: Arc::clone(&stats), drives: Arc::clone(&gauges) };
        let segment_sectors = slabs.first().map_or(1, |slab| slab.segment_sectors);
        let sectors: Vec<_> = slabs.iter().map(|slab| slab.sectors).collect();
        // Epochs of journals that can't be read are unknown; by the clock none comes twice.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let filler = Self {
            asks,
            cores,
            limits,
            segments: Segments::new(segment_sectors, &sectors, since.as_micros() as u64),
            segment_sectors,
            stats,
            gauges,
            steps: JoinSet::new(),
            queued: VecDeque::new(),
            under_way: HashMap::new(),
            scanning: 0,
            writing: 0,
            failed: HashMap::new(),
            homeless: VecDeque::new(),
            eviction: Eviction::new(segment_sectors * SEGMENTS_SAVED),
            reclaiming: None,
            placed: HashMap::default(),
            by_segment: HashMap::new(),
            unrecorded: slabs.iter().map(|_| Default::default()).collect(),
            health: slabs.iter().map(|_| Health::default()).collect(),
            slabs,
            stopping: None,
            next_core: 0,
        };
        (filler, handle)
    }

    /// Takes over what the slabs hold, and makes every core find it. To be called first; how many extents.
    pub async fn restore(&mut self, found: Vec<Vec<Found>>) -> usize {
        let restored = restore::plan(found, self.segment_sectors);
        self.segments.restore(restored.kept);
        for segment in restored.unreadable {
            self.segments.distrust(segment);
        }
        self.placed.reserve(restored.extents.len());
        for extent in restored.extents.iter() {
            self.placed.insert(extent.key, Arc::clone(extent));
            self.by_segment.entry(extent.segment).or_default().push(Arc::clone(extent));
        }
        task::restore(&self.cores, &restored.extents).wait().await;
        for drive in 0..self.slabs.len() {
            self.count_used(DriveNo(drive as u16));
        }
        self.stats.extents.store(self.placed.len() as u64, Ordering::Relaxed);
        restored.extents.len()
    }

    /// Fills until it is told to stop, or nobody can ask any more.
    pub async fn run(mut self) {
        while self.stopping.is_none() || self.is_busy() {
            let takes = self.stopping.is_none() && self.queued.len() < self.limits.queue_max;
            tokio::select! {
                ask = self.asks.recv(), if takes => match ask {
                    Some(Ask::Fill { name, chunk, waiter }) => self.asked(name, chunk, waiter),
                    Some(Ask::Bad(extent, trouble)) => self.drop_extent(&extent, trouble),
                    Some(Ask::Late(drive)) => self.late(drive),
                    Some(Ask::Stop(stopped)) => self.stopping = Some(stopped),
                    None => break,
                },
                Some(step) = self.steps.join_next() => match step {
                    Ok(step) => self.stepped(step),
                    Err(error) => tracing::error!(%error, "a step of a fill panicked"),
                },
            }
            if self.stopping.is_none() {
                self.start_scans();
                self.house();
            }
            self.record();
            self.stats.running.store(self.under_way.len() as u64, Ordering::Relaxed);
            self.stats.extents.store(self.placed.len() as u64, Ordering::Relaxed);
        }
    }

    /// Whether something is written, or waits to be recorded.
    fn is_busy(&self) -> bool {
        self.writing > 0 || self.unrecorded.iter().any(|(waiting, busy)| *busy || waiting.len() > 0)
    }

    fn asked(&mut self, name: ExtentKey, chunk: Box<dyn Chunk>, waiter: Option<Waiter>) {
        if self.placed.contains_key(&name) {
            waiter.into_iter().for_each(|w| drop(w.send(FillOutcome::Found)));
        } else if let Some(waiters) = self.under_way.get_mut(&name) {
            waiters.extend(waiter);
        } else if waiter.is_none() && self.failed.get(&name).is_some_and(|f| f.0 > Instant::now()) {
            // A miss; who asks by Warm gets another try.
        } else if waiter.is_none()
            && self.limits.admission == Admission::SecondTouch
            && !self.eviction.is_second_touch(name, self.placed.len())
        {
            // The next one fills it.
        } else {
            self.under_way.insert(name, waiter.into_iter().collect());
            self.queued.push_back((name, chunk));
        }
    }

    fn start_scans(&mut self) {
        // What is scanned counts until it is written: it is in memory.
        while self.scanning + self.homeless.len() + self.writing < self.limits.fills_max {
            let Some((name, chunk)) = self.queued.pop_front() else { break };
            self.scanning += 1;
            self.steps.spawn(scan(name, chunk, self.segment_sectors * SECTOR_BYTES as u64));
        }
    }

    fn stepped(&mut self, step: Step) {
        match step {
            Step::Scanned { name, extent } => {
                self.scanning -= 1;
                match extent {
                    Ok(extent) => self.homeless.push_back((name, extent)),
                    Err(why) => self.end(name, FillOutcome::Failed(why.into())),
                }
            }
            Step::Heated { segment, heats } => self.heated(segment, heats),
            Step::Reread { extent, copy } => match copy {
                Ok(copy) => self.keep(extent.key, copy),
                Err(trouble) => {
                    if trouble.is_of_the_drive() {
                        self.drop_extent(&extent, trouble);
                    }
                    self.moved();
                }
            },
            Step::Written { extent, purpose, bytes, outcome } => {
                self.writing -= 1;
                match outcome {
                    Ok(()) => {
                        self.health[usize::from(extent.drive.0)].written();
                        let told = publish(&self.cores, &extent);
                        self.steps.spawn(async move {
                            told.wait().await;
                            Step::Published { extent, purpose, bytes }
                        });
                    }
                    Err(error) => {
                        self.segments.settle(extent.segment, 1, record_sectors(&extent.index));
                        if self.health[usize::from(extent.drive.0)].write_failed(&error) {
                            self.degrade(extent.drive, &error);
                        }
                        match purpose {
                            Purpose::Fill => {
                                let why = error.to_string().into();
                                self.end(extent.key, FillOutcome::Failed(why));
                            }
                            Purpose::Keep => self.moved(),
                        }
                    }
                }
            }
            Step::Published { extent, purpose, bytes } => {
                let key = extent.key;
                self.published(extent);
                match purpose {
                    Purpose::Fill => {
                        self.eviction.filled(key, bytes / SECTOR_BYTES as u64);
                        self.stats.bytes_filled.fetch_add(bytes, Ordering::Relaxed);
                        self.end(key, FillOutcome::Filled(bytes));
                    }
                    Purpose::Keep => {
                        self.stats.bytes_kept.fetch_add(bytes, Ordering::Relaxed);
                        self.moved();
                    }
                }
            }
            Step::Recorded { segment, extents, record_sectors, outcome } => {
                self.unrecorded[usize::from(segment.drive.0)].1 = false;
                self.segments.settle(segment, extents, record_sectors);
                self.count_used(segment.drive);
                self.journal_written(segment.drive, outcome);
            }
            Step::Emptied { segment, outcome } => {
                self.reclaiming = None;
                if self.journal_written(segment.drive, outcome) {
                    self.stats.reclaimed.fetch_add(1, Ordering::Relaxed);
                    self.segments.release(segment);
                }
            }
        }
    }

    /// Whether a journal was written; a drive on which that fails takes nothing more.
    fn journal_written(&mut self, drive: DriveNo, outcome: Result<(), WriteError>) -> bool {
        if let Err(error) = &outcome
            && self.health[usize::from(drive.0)].journal_failed(error)
        {
            self.degrade(drive, error);
        }
        outcome.is_ok()
    }

    /// A drive is used less from now on, or not at all.
    fn degrade(&mut self, drive: DriveNo, why: &dyn std::fmt::Display) {
        let state = self.health[usize::from(drive.0)].state();
        self.gauges[usize::from(drive.0)].state.store(state as u8, Ordering::Relaxed);
        self.segments.close(drive);
        // What isn't in its journal yet will not be.
        self.unrecorded[usize::from(drive.0)].0 = Unrecorded::default();
        if state != DriveState::Retired {
            tracing::error!(drive = drive.0, %why, "the drive takes no more writes; what it has is served");
            return;
        }
        let keys: Vec<_> =
            self.placed.extract_if(|_, extent| extent.drive == drive).map(|(key, _)| key).collect();
        self.by_segment.retain(|segment, _| segment.drive != drive);
        let extents = keys.len();
        tracing::error!(drive = drive.0, %why, extents, "the drive is retired; its rows come from the table until they are filled elsewhere");
        drop(forget(&self.cores, keys));
    }

    fn published(&mut self, extent: Arc<Extent>) {
        let drive = usize::from(extent.drive.0);
        match self.health[drive].state() {
            DriveState::Retired => drop(forget(&self.cores, vec![extent.key])),
            state => {
                self.by_segment.entry(extent.segment).or_default().push(Arc::clone(&extent));
                if state == DriveState::Serving {
                    self.unrecorded[drive].0.push(Arc::clone(&extent));
                }
                self.placed.insert(extent.key, extent);
            }
        }
    }

    /// Starts to write what waits for it into the drives' journals, one block a drive at a time.
    fn record(&mut self) {
        for drive in 0..self.unrecorded.len() {
            let (waiting, busy) = &mut self.unrecorded[drive];
            let Some((segment, extents)) = (!*busy).then(|| waiting.take()).flatten() else {
                continue;
            };
            *busy = true;
            let start = segment_start(segment.index, self.segment_sectors);
            let records: Vec<_> = extents
                .iter()
                .map(|extent| {
                    let first = (extent.first.0 - start.0) as u32;
                    Record { key: extent.key, first, index: &extent.index }
                })
                .collect();
            let reserved = extents.iter().map(|extent| record_sectors(&extent.index)).sum();
            let bytes = extents.iter().map(|extent| record_bytes(&extent.index)).sum();
            let room = self.segments.next_block(segment, block_sectors(bytes));
            let block = to_block(&self.block_id(segment, &room), &records);
            let (core, drive) = (self.any_core(), segment.drive);
            let extents = extents.len() as u32;
            self.steps.spawn(async move {
                let outcome = task::record(&core, drive, room.first, block).await;
                Step::Recorded { segment, extents, record_sectors: reserved, outcome }
            });
        }
    }

    fn block_id(&self, segment: SegmentNo, room: &BlockRoom) -> BlockId {
        let uuid = self.slabs[usize::from(segment.drive.0)].uuid;
        let (epoch, number, log) = (room.epoch, room.number, room.log as u32);
        BlockId { uuid, segment: segment.index, epoch, number, log }
    }

    /// Gives extents that wait for room a place, and reclaims where there is none.
    fn house(&mut self) {
        while let Some((name, extent)) = self.homeless.front() {
            let record = record_sectors(&extent.index);
            let log = self.eviction.log_for(*name);
            match self.segments.allocate(log, u64::from(extent.index.sectors()), record) {
                Allocation::Room(room) => {
                    if let Some((name, extent)) = self.homeless.pop_front() {
                        self.place(name, extent, room, Purpose::Fill);
                    }
                }
                Allocation::TooLong => {
                    if let Some((name, extent)) = self.homeless.pop_front() {
                        let bytes = extent.bytes.len();
                        let why = format!("a chunk of {bytes} bytes is longer than a segment");
                        self.end(name, FillOutcome::Failed(why.into()));
                    }
                }
                Allocation::NoDrive => {
                    if let Some((name, _)) = self.homeless.pop_front() {
                        self.end(name, FillOutcome::Failed("no drive takes writes".into()));
                    }
                }
                Allocation::Reclaim(segment) => {
                    if self.reclaiming.is_none() {
                        self.reclaim(segment);
                    }
                    break;
                }
                Allocation::Busy => break,
            }
        }
    }

    fn place(&mut self, name: ExtentKey, extent: pack::Extent, room: Room, purpose: Purpose) {
        self.count_used(room.segment.drive);
        self.writing += 1;
        let core = self.any_core();
        let placed = Extent {
            key: name,
            index: extent.index,
            drive: room.segment.drive,
            first: room.first,
            segment: room.segment,
        };
        self.steps.spawn(write(core, Arc::new(placed), purpose, extent.bytes));
    }

    fn count_used(&self, drive: DriveNo) {
        let used = self.segments.used_sectors(drive) * SECTOR_BYTES as u64;
        self.gauges[usize::from(drive.0)].used_bytes.store(used, Ordering::Relaxed);
    }

    /// The cores in turn.
    fn any_core(&mut self) -> Mailbox {
        self.next_core = (self.next_core + 1) % self.cores.len();
        self.cores[self.next_core].clone()
    }

    /// Begins to reclaim a segment: asks which of its extents are worth keeping.
    fn reclaim(&mut self, segment: SegmentNo) {
        self.reclaiming = Some((segment, 0));
        let extents = self.by_segment.get(&segment).into_iter().flatten();
        let extents = extents.filter(|extent| self.is_placed(extent)).cloned().collect();
        self.steps.spawn(task::heat(Arc::clone(&self.cores), segment, extents));
    }

    fn is_placed(&self, extent: &Arc<Extent>) -> bool {
        self.placed.get(&extent.key).is_some_and(|placed| Arc::ptr_eq(placed, extent))
    }

    /// Goes on to read what is worth keeping.
    fn heated(&mut self, segment: SegmentNo, heats: Vec<(Arc<Extent>, u32)>) {
        let candidate = |(extent, heat): &(Arc<Extent>, u32)| Candidate {
            key: extent.key,
            sectors: extent.index.sectors().into(),
            heat: *heat,
        };
        let candidates: Vec<_> = heats.iter().map(candidate).collect();
        let log = self.segments.log_of(segment);
        let kept = self.eviction.keep(log, &candidates, self.placed.len());
        for &at in &kept {
            let core = self.any_core();
            self.steps.spawn(task::reread(core, Arc::clone(&heats[at].0)));
        }
        // One more for this step itself.
        self.reclaiming = Some((segment, kept.len() + 1));
        self.moved();
    }

    /// Writes what is kept into the main log, if that has room.
    fn keep(&mut self, name: ExtentKey, copy: pack::Extent) {
        let (sectors, record) = (copy.index.sectors().into(), record_sectors(&copy.index));
        match self.segments.allocate(Log::Main, sectors, record) {
            Allocation::Room(room) => self.place(name, copy, room, Purpose::Keep),
            _ => self.moved(),
        }
    }

    /// One less of the reclaimed segment's extents is on its way elsewhere. After the last of them the rest
    /// is forgotten.
    fn moved(&mut self) {
        let Some((segment, moving)) = &mut self.reclaiming else { return };
        *moving -= 1;
        if *moving > 0 {
            return;
        }
        let segment = *segment;
        let extents = self.by_segment.remove(&segment).unwrap_or_default();
        let keys: Vec<_> =
            extents.iter().filter(|extent| self.is_placed(extent)).map(|it| it.key).collect();
        for key in &keys {
            self.placed.remove(key);
        }
        // Also for the kept ones' old places: who holds one of those began before.
        let told = forget(&self.cores, keys);
        let room = self.segments.empty(segment);
        let block = to_block(&self.block_id(segment, &room), &[]);
        let core = self.any_core();
        self.steps.spawn(async move {
            told.wait().await;
            let outcome = task::empty(&core, segment.drive, room.first, block).await;
            Step::Emptied { segment, outcome }
        });
    }

    fn drop_extent(&mut self, extent: &Arc<Extent>, trouble: Trouble) {
        let drive = extent.drive;
        // A late report may be of bytes that were replaced since.
        if self.is_placed(extent) {
            tracing::warn!(drive = drive.0, sector = extent.first.0, key = ?extent.key, %trouble, "an extent is dropped; its rows come from the table until it is filled again");
            self.placed.remove(&extent.key);
            self.stats.dropped.fetch_add(1, Ordering::Relaxed);
            // Its room comes back with its segment, so nobody waits for this. The journal still has it: found
            // again after a restart, it is found wrong again.
            drop(forget(&self.cores, vec![extent.key]));
            if self.health[usize::from(drive.0)].read_failed(trouble, Instant::now()) {
                self.degrade(drive, &trouble);
            }
        }
    }

    fn late(&mut self, drive: DriveNo) {
        if self.health[usize::from(drive.0)].was_late(Instant::now()) {
            self.degrade(drive, &"it does not answer in time");
        }
    }

    /// Keeps misses of a chunk that can't be filled from scanning it again at once.
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
