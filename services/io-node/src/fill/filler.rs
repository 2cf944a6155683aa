//! The filler: the one owner of what is filled, what is being filled, and where there is room.
//!
//! Whoever misses a chunk asks; asks for what is under way already join it, so that a chunk is
//! scanned once however many ask. Fills run in the background, a bounded number at a time; their
//! steps (`task.rs`) report back here, where all bookkeeping is done without a lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use address::{ChunkId, DriveNo, ExtentKey, SECTOR_BYTES, SectorNo};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::segments::{Allocation, Room, SegmentNo, Segments};
use super::task::{Step, forget, publish, scan, write};
use crate::core::mailbox::Mailbox;
use crate::directory::Extent;
use crate::slab::HEAD_SECTORS;
use crate::table::OpenTable;

/// A chunk of one of a table's packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FillKey {
    /// The pack's number in the table.
    pub pack: usize,
    /// The chunk.
    pub chunk: ChunkId,
}

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
    /// Bytes written since the start.
    pub bytes_written: AtomicU64,
    /// Segments reclaimed since the start.
    pub reclaimed: AtomicU64,
}

/// How full each drive's slab is, in bytes.
#[derive(Debug)]
pub struct SlabUse(Vec<AtomicU64>);

/// Asks of the filler, from any thread.
#[derive(Clone)]
pub struct FillHandle {
    asks: mpsc::Sender<Ask>,
    stats: Arc<FillStats>,
    slabs: Arc<SlabUse>,
}

/// How long a chunk that could not be filled is let be after the first failure; twice as long after each
/// further one.
const HOLD_OFF_MIN: Duration = Duration::from_secs(1);

/// The longest that it is let be.
const HOLD_OFF_MAX: Duration = Duration::from_secs(300);

/// Failed chunks that are remembered; past that all are forgotten, and tried again.
const FAILED_MAX: usize = 1 << 16;

type Waiter = oneshot::Sender<FillOutcome>;

enum Ask {
    Fill { table: Arc<OpenTable>, key: FillKey, waiter: Option<Waiter> },
    Bad(Arc<Extent>),
}

impl FillHandle {
    /// Has a chunk filled some time. Does not wait; when too many wait already the next miss asks
    /// again.
    pub fn ask(&self, table: &Arc<OpenTable>, key: FillKey) {
        let table = Arc::clone(table);
        let _ = self.asks.try_send(Ask::Fill { table, key, waiter: None });
    }

    /// Has a chunk filled and says when that is done. Waits for a place in the queue.
    pub async fn fill(&self, table: &Arc<OpenTable>, key: FillKey) -> FillOutcome {
        let (waiter, outcome) = oneshot::channel();
        let ask = Ask::Fill { table: Arc::clone(table), key, waiter: Some(waiter) };
        let stopped = || FillOutcome::Failed("the node is shutting down".into());
        if self.asks.send(ask).await.is_err() {
            return stopped();
        }
        outcome.await.unwrap_or_else(|_| stopped())
    }

    /// Drops an extent whose bytes are wrong; the next miss fills it again, elsewhere.
    pub fn bad_extent(&self, extent: &Arc<Extent>) {
        let _ = self.asks.try_send(Ask::Bad(Arc::clone(extent)));
    }

    /// What the filler counts.
    pub fn stats(&self) -> &FillStats {
        &self.stats
    }

    /// Bytes of a drive that hold extents.
    pub fn used_bytes(&self, drive: DriveNo) -> u64 {
        self.slabs.0[usize::from(drive.0)].load(Ordering::Relaxed)
    }
}

/// The owner's state; [`Filler::run`] is its life.
pub struct Filler {
    asks: mpsc::Receiver<Ask>,
    cores: Arc<[Mailbox]>,
    fills_max: usize,
    queue_max: usize,
    segments: Segments,
    segment_bytes: u64,
    stats: Arc<FillStats>,
    slabs: Arc<SlabUse>,
    steps: JoinSet<Step>,
    /// Fills that wait for their turn.
    queued: VecDeque<(ExtentKey, Arc<OpenTable>, FillKey)>,
    /// Fills from ask to end, with who wants to know.
    under_way: HashMap<ExtentKey, Vec<Waiter>>,
    scanning: usize,
    writing: usize,
    /// Chunks that could not be filled, until when they are not tried again, and how long that was.
    failed: HashMap<ExtentKey, (Instant, Duration)>,
    /// Encoded extents that wait for room.
    homeless: VecDeque<(ExtentKey, pack::Extent)>,
    reclaiming: Option<SegmentNo>,
    placed: HashMap<ExtentKey, (SegmentNo, SectorNo)>,
    by_segment: HashMap<SegmentNo, Vec<ExtentKey>>,
    next_core: usize,
}

impl Filler {
    /// A filler over drives of these many sectors, at first empty.
    pub fn new(
        cores: Arc<[Mailbox]>,
        segment_sectors: u64,
        drive_sectors: &[u64],
        fills_max: usize,
        queue_max: usize,
    ) -> (Self, FillHandle) {
        let (sender, asks) = mpsc::channel(queue_max);
        let stats = Arc::new(FillStats::default());
        let slabs = Arc::new(SlabUse(drive_sectors.iter().map(|_| AtomicU64::new(0)).collect()));
        let handle =
            FillHandle { asks: sender, stats: Arc::clone(&stats), slabs: Arc::clone(&slabs) };
        let filler = Self {
            asks,
            cores,
            fills_max,
            queue_max,
            segments: Segments::new(HEAD_SECTORS, segment_sectors, drive_sectors),
            segment_bytes: segment_sectors * SECTOR_BYTES as u64,
            stats,
            slabs,
            steps: JoinSet::new(),
            queued: VecDeque::new(),
            under_way: HashMap::new(),
            scanning: 0,
            writing: 0,
            failed: HashMap::new(),
            homeless: VecDeque::new(),
            reclaiming: None,
            placed: HashMap::new(),
            by_segment: HashMap::new(),
            next_core: 0,
        };
        (filler, handle)
    }

    /// Fills until nobody can ask any more.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                ask = self.asks.recv(), if self.queued.len() < self.queue_max => match ask {
                    Some(Ask::Fill { table, key, waiter }) => self.asked(table, key, waiter),
                    Some(Ask::Bad(extent)) => self.drop_extent(&extent),
                    None => break,
                },
                Some(step) = self.steps.join_next() => match step {
                    Ok(step) => self.stepped(step),
                    Err(error) => tracing::error!(%error, "a step of a fill panicked"),
                },
            }
            self.start_scans();
            self.house();
            self.stats.running.store(self.under_way.len() as u64, Ordering::Relaxed);
            self.stats.extents.store(self.placed.len() as u64, Ordering::Relaxed);
        }
    }

    fn asked(&mut self, table: Arc<OpenTable>, key: FillKey, waiter: Option<Waiter>) {
        let Some(fragment) = table.fragment(key.chunk.fragment) else { return };
        let name = fragment.extent(key.pack, key.chunk.index);
        if self.placed.contains_key(&name) {
            waiter.into_iter().for_each(|w| drop(w.send(FillOutcome::Found)));
        } else if let Some(waiters) = self.under_way.get_mut(&name) {
            waiters.extend(waiter);
        } else if waiter.is_none() && self.failed.get(&name).is_some_and(|f| f.0 > Instant::now()) {
            // A miss; who asks by Warm gets another try.
        } else {
            self.under_way.insert(name, waiter.into_iter().collect());
            self.queued.push_back((name, table, key));
        }
    }

    fn start_scans(&mut self) {
        // What is scanned counts until it is written: it is in memory.
        while self.scanning + self.homeless.len() + self.writing < self.fills_max {
            let Some((name, table, key)) = self.queued.pop_front() else { break };
            self.scanning += 1;
            self.steps.spawn(scan(name, table, key, self.segment_bytes));
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
            Step::Written { extent, bytes, outcome } => {
                self.writing -= 1;
                match outcome {
                    Ok(()) => {
                        let told = publish(&self.cores, &extent);
                        self.steps.spawn(async move {
                            told.wait().await;
                            Step::Published { extent, bytes }
                        });
                    }
                    Err(why) => {
                        self.segments.written(extent.segment);
                        self.end(extent.key, FillOutcome::Failed(why.into()));
                    }
                }
            }
            Step::Published { extent, bytes } => {
                self.segments.written(extent.segment);
                self.placed.insert(extent.key, (extent.segment, extent.first));
                self.by_segment.entry(extent.segment).or_default().push(extent.key);
                self.stats.bytes_written.fetch_add(bytes, Ordering::Relaxed);
                self.end(extent.key, FillOutcome::Filled(bytes));
            }
            Step::Forgotten { segment } => {
                self.reclaiming = None;
                self.stats.reclaimed.fetch_add(1, Ordering::Relaxed);
                self.segments.release(segment);
            }
        }
    }

    /// Gives extents that wait for room a place, and reclaims where there is none.
    fn house(&mut self) {
        while let Some((_, extent)) = self.homeless.front() {
            match self.segments.allocate(u64::from(extent.index.sectors())) {
                Allocation::Room(room) => {
                    if let Some((name, extent)) = self.homeless.pop_front() {
                        self.place(name, extent, room);
                    }
                }
                Allocation::TooLong => {
                    if let Some((name, extent)) = self.homeless.pop_front() {
                        let bytes = extent.bytes.len();
                        let why = format!("a chunk of {bytes} bytes is longer than a segment");
                        self.end(name, FillOutcome::Failed(why.into()));
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

    fn place(&mut self, name: ExtentKey, extent: pack::Extent, room: Room) {
        let used = self.segments.used_sectors(room.segment.drive) * SECTOR_BYTES as u64;
        self.slabs.0[usize::from(room.segment.drive.0)].store(used, Ordering::Relaxed);
        self.writing += 1;
        self.next_core = (self.next_core + 1) % self.cores.len();
        let core = self.cores[self.next_core].clone();
        let placed = Extent {
            key: name,
            index: extent.index,
            drive: room.segment.drive,
            first: room.first,
            segment: room.segment,
        };
        self.steps.spawn(write(core, Arc::new(placed), extent.bytes));
    }

    fn reclaim(&mut self, segment: SegmentNo) {
        self.reclaiming = Some(segment);
        let keys = self.by_segment.remove(&segment).unwrap_or_default();
        self.placed.retain(|_, (place, _)| *place != segment);
        let told = forget(&self.cores, keys);
        self.steps.spawn(async move {
            told.wait().await;
            Step::Forgotten { segment }
        });
    }

    fn drop_extent(&mut self, extent: &Extent) {
        let (key, segment) = (extent.key, extent.segment);
        // A late report may be of bytes that were replaced since.
        if self.placed.get(&key) != Some(&(segment, extent.first)) {
            return;
        }
        self.placed.remove(&key);
        if let Some(keys) = self.by_segment.get_mut(&segment) {
            keys.retain(|k| *k != key);
        }
        // Its room comes back with its segment, so nobody waits for this.
        drop(forget(&self.cores, vec![key]));
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
