//! The reader: gets pieces of rows from the RAM tier or, through the ring, from drives.
//!
//! Each core has one queue of waiting pieces (`queue.rs`), whichever requests they belong to. Once all tasks that are
//! ready have run, pieces leave the queue, one for each free slot. Pieces whose sectors are being read for others join
//! that read (`join.rs`). The rest are coalesced (`coalesce.rs`), and go to the ring in one submission. The reader hands
//! over no more reads than there are slots, so the ring's own queue stays short. The reader's queue serves flows in
//! proportion to their weights. While several flows are active, a core may use only a part of its slots (`depth.rs`). If
//! a piece's request has ended or missed its deadline when the piece leaves the queue, the piece is not read.
//!
//! The reader does not answer requests. It returns requests that have no pieces left, and requests that are late, to
//! its caller (`read_events.rs`).

mod checks;
mod deliver;
mod depth;
mod enqueue;
mod join;
mod queue;
mod timeouts;

use std::cell::{Cell, RefCell};
use std::mem::take;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use address::{DriveNo, SECTOR_BYTES, SectorNo};
use ring::{ReadError, ReadSink, Ring};
use scheduler::{Cost, Flow, Priority};
use telemetry::InBucket;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::deliver::{deliver, mark_piece_undelivered, mark_undelivered};
pub use self::depth::Depth;
use self::join::Started;
use self::queue::Queue;
use super::coalesce::{PlannedRead, Want, plan_reads};
use super::ram_tier::{RamTier, SectorName};
use super::requests::Requests;
use crate::cache::FillHandle;
use crate::drive::ExtentError;
use crate::extent::{Directory, Extent, ExtentNo};
use crate::shard::{CoreHistograms, CoreStats, DriveCounts, RequestNo};

/// Consecutive bytes of one row, within one read.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    request: RequestNo,
    extent: ExtentNo,
    part: u16,
    position: u32,
    /// The offset of the piece's first byte in the row.
    row_offset: u32,
    /// The offset of the piece's first byte in the extent.
    offset: u32,
    len: u32,
}

/// A read in flight.
struct InFlight {
    drive: DriveNo,
    first: SectorNo,
    sectors: u32,
    since: Instant,
    /// Whether one check has found the read late. The next one abandons the read (`timeouts.rs`).
    is_suspect: bool,
    /// Whether pieces were still waiting after the read was started. Only then does the read's duration show the effect
    /// of the limit of reads in flight.
    is_bound: bool,
    /// The pieces that the read serves. Empty once the read was abandoned.
    wants: Vec<Want<Piece>>,
    /// The extents of the pieces that an abandoned read served, so that they can be reported if it fails in the end.
    abandoned: Vec<Arc<Extent>>,
}

/// When a read was submitted and ended, and its duration. Reads that were submitted together and whose completions were
/// collected together share all three, so the duration is computed once for them.
#[derive(Clone, Copy)]
struct TimedRead {
    since: Instant,
    ended: Instant,
    duration: InBucket,
}

/// The waiting pieces of a core, and its reads in flight.
pub struct Reader {
    waiting: RefCell<Queue<Piece>>,
    depth: RefCell<Depth>,
    in_flight: RefCell<InFlightTable>,
    started: RefCell<Started>,
    /// The number of reads in flight, including abandoned ones.
    busy: Cell<u32>,
    slots: u32,
    sectors_max: u32,
    sink: Rc<dyn ReadSink>,
    /// Notified when pieces wait and slots may be free.
    work: Arc<Notify>,
    /// Whether `work` was notified and the task that waits for it has not run since.
    woken: Cell<bool>,
    /// The number of abandoned reads in flight, by drive.
    stuck: RefCell<Vec<u32>>,
    /// The counts of each drive's reads.
    drives: RefCell<Vec<DriveCounts>>,
    /// The times and duration of the read that ended last.
    last_timed: Cell<Option<TimedRead>>,
    /// `pieces`, `wants` and `planned` are kept to reuse their allocations.
    pieces: RefCell<Vec<(Piece, SectorName)>>,
    wants: RefCell<Vec<Want<Piece>>>,
    planned: RefCell<Vec<PlannedRead>>,
}

/// The parts of a core that the reader works on.
pub struct ReadContext<'a> {
    /// Batches under way.
    pub requests: &'a RefCell<Requests>,
    /// The core's replica of the directory.
    pub directory: &'a RefCell<Directory>,
    /// The core's ring.
    pub ring: &'a Ring,
    /// The core's RAM tier.
    pub ram: &'a RamTier,
    /// Counters.
    pub stats: &'a CoreStats,
    /// The core's histograms.
    pub histograms: &'a CoreHistograms,
    /// The filler, to which bad extents and late drives are reported.
    pub fills: &'a FillHandle,
}

/// The requests that a submission has found to be late or without pieces left.
pub struct Submission {
    /// Requests whose deadline has passed before their rows were read, each once.
    pub late: Vec<RequestNo>,
    /// Requests that have no pieces left.
    pub ended: Vec<RequestNo>,
}

/// Requests and pieces that left the queue without a read.
#[derive(Default)]
struct Popped {
    /// Requests whose deadline has passed.
    late: Vec<RequestNo>,
    /// Pieces on drives that do not answer.
    stuck: Vec<Piece>,
}

/// The reads in flight. A read's tag is its index in `entries`.
#[derive(Default)]
struct InFlightTable {
    entries: Vec<InFlight>,
    free: Vec<u32>,
}

impl Cost for Piece {
    fn cost(&self) -> u32 {
        1
    }
}

impl Piece {
    fn first_sector(&self) -> u32 {
        self.offset / SECTOR_BYTES as u32
    }

    fn sectors(&self) -> u32 {
        (self.offset % SECTOR_BYTES as u32 + self.len).div_ceil(SECTOR_BYTES as u32)
    }

    /// Returns the range of bytes that the piece needs from its first sector.
    fn in_first_sector(&self) -> Range<usize> {
        let start = self.offset as usize % SECTOR_BYTES;
        start..(start + self.len as usize).min(SECTOR_BYTES)
    }
}

impl Reader {
    /// Creates a reader of `drives` drives, with at most `slots` reads in flight of at most `read_max` bytes, which is
    /// a multiple of the sector size. `depth` limits the reads in flight further while several flows are active. `sink`
    /// passes the completion of each read to [`done`](Self::done).
    pub fn new(
        slots: u32,
        read_max: usize,
        drives: usize,
        depth: Depth,
        sink: Rc<dyn ReadSink>,
    ) -> Self {
        Self {
            waiting: RefCell::default(),
            depth: RefCell::new(depth),
            in_flight: RefCell::default(),
            started: RefCell::new(Started::new(slots)),
            busy: Cell::new(0),
            slots,
            sectors_max: (read_max / SECTOR_BYTES) as u32,
            sink,
            work: Arc::default(),
            woken: Cell::new(false),
            stuck: RefCell::default(),
            drives: RefCell::new(vec![DriveCounts::default(); drives]),
            last_timed: Cell::new(None),
            pieces: RefCell::default(),
            wants: RefCell::default(),
            planned: RefCell::default(),
        }
    }

    /// Returns the notification that pieces wait. Once sent, it is not sent again until [`woke_up`](Self::woke_up) is
    /// called.
    pub fn work(&self) -> Arc<Notify> {
        Arc::clone(&self.work)
    }

    /// Records that the task that waits for [`work`](Self::work) runs, so that later work notifies it again.
    pub fn woke_up(&self) {
        self.woken.set(false);
    }

    /// Notifies [`work`](Self::work), unless it was notified since the last [`woke_up`](Self::woke_up).
    fn wake(&self) {
        if !self.woken.replace(true) {
            self.work.notify_one();
        }
    }

    /// Returns the number of waiting pieces.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Returns the counts of each drive's reads.
    pub fn drives(&self) -> Vec<DriveCounts> {
        self.drives.borrow().clone()
    }

    /// Returns the number of waiting pieces of a flow.
    pub fn waiting_of(&self, flow: Flow) -> usize {
        self.waiting.borrow().len_of(flow)
    }

    /// Estimates how long a new piece of a flow would wait.
    pub fn wait(&self, flow: Flow, priority: Priority) -> Duration {
        self.waiting.borrow().wait(flow, priority)
    }

    /// Returns the present maximum number of reads in flight.
    pub fn limit(&self) -> u32 {
        self.depth.borrow_mut().limit(Instant::now())
    }

    /// Returns the number of reads that may be started now.
    fn room(&self, now: Instant) -> u32 {
        let busy = self.busy.get();
        let limit = self.depth.borrow_mut().limit(now);
        // Abandoned reads keep their slots. They do not count towards the limit, because their drives do not answer.
        let stuck: u32 = if limit < self.slots { self.stuck.borrow().iter().sum() } else { 0 };
        (self.slots - busy).min(limit.saturating_sub(busy - stuck))
    }

    /// Hands waiting pieces to the ring: at most one for each read that may be started now. Returns `None` if no piece
    /// waits or no read may be started.
    pub fn submit(&self, core: &ReadContext<'_>) -> Option<Submission> {
        if self.busy.get() >= self.slots || self.waiting.borrow().is_empty() {
            return None;
        }
        let now = Instant::now();
        let room = self.room(now);
        if room == 0 {
            return None;
        }
        let Popped { mut late, stuck } = self.pop(core, now, room as usize);
        let is_bound = !self.waiting.borrow().is_empty();
        let mut ended = Vec::new();
        let mut wants = self.wants.borrow_mut();
        let mut planned = self.planned.borrow_mut();
        planned.clear();
        plan_reads(&mut wants, self.sectors_max, &mut planned);
        for read in planned.iter() {
            self.start(core, read, (now, is_bound), &wants[read.wants.clone()], &mut ended);
        }
        late.sort_unstable_by_key(|no| no.serial);
        late.dedup();
        stuck.into_iter().for_each(|piece| mark_piece_undelivered(core, piece, None, &mut ended));
        Some(Submission { late, ended })
    }

    /// Moves at most `room` pieces to `wants`, besides those that join a read in flight. Returns the requests that are
    /// too late, and the pieces whose drives hang.
    fn pop(&self, core: &ReadContext<'_>, now: Instant, room: usize) -> Popped {
        let mut popped = Popped::default();
        let mut requests = core.requests.borrow_mut();
        let directory = core.directory.borrow();
        let mut waiting = self.waiting.borrow_mut();
        let mut wants = self.wants.borrow_mut();
        wants.clear();
        let mut joined = 0;
        while wants.len() < room {
            let is_wanted = |piece: &Piece| match requests.get_mut(piece.request) {
                Some(request) if request.deadline <= now => {
                    popped.late.push(piece.request);
                    false
                }
                request => request.is_some(),
            };
            let Some(piece) = waiting.pop_wanted(is_wanted) else { break };
            match want_of(&directory, piece) {
                Some(want) if self.is_stuck(want.drive) => popped.stuck.push(piece),
                Some(want) if self.join(&mut requests, want, now) => joined += 1,
                want => wants.extend(want),
            }
        }
        core.stats.shared_pieces.add(joined as u64);
        core.stats.duplicate_pieces.add(joined as u64);
        waiting.submitted(wants.len() + joined, now);
        popped
    }

    /// Starts a read. If the ring refuses it, the requests that have no pieces left are added to `ended`.
    fn start(
        &self,
        core: &ReadContext<'_>,
        read: &PlannedRead,
        (since, is_bound): (Instant, bool),
        wants: &[Want<Piece>],
        ended: &mut Vec<RequestNo>,
    ) {
        let tag = {
            let mut table = self.in_flight.borrow_mut();
            let PlannedRead { drive, first, sectors, .. } = *read;
            let of = |wants| InFlight {
                drive,
                first,
                sectors,
                since,
                is_suspect: false,
                is_bound,
                wants,
                abandoned: Vec::new(),
            };
            let tag = table.free.pop().unwrap_or_else(|| {
                table.entries.push(of(Vec::new()));
                table.entries.len() as u32 - 1
            });
            let entry = &mut table.entries[tag as usize];
            *entry = of(take(&mut entry.wants));
            entry.wants.extend_from_slice(wants);
            let mut started = self.started.borrow_mut();
            wants.iter().for_each(|want| started.add(drive, want.first, tag));
            tag
        };
        if let Some(request) = core.requests.borrow_mut().get_mut(wants[0].piece.request) {
            request.times.reading.get_or_insert(since);
            request.times.drive_reads += 1;
            request.times.drive_bytes += u64::from(read.sectors) * SECTOR_BYTES as u64;
        }
        core.stats.shared_pieces.add(wants.len() as u64 - 1);
        core.stats.duplicate_pieces.add(read.duplicates.into());
        self.busy.set(self.busy.get() + 1);
        self.drives.borrow_mut()[usize::from(read.drive.0)].read_started(since);
        let len = read.sectors as usize * SECTOR_BYTES;
        let asked =
            core.ring.read(&self.sink, read.drive, read.first.byte_offset(), len, tag.into());
        if let Err(error) = asked {
            self.done(core, tag as usize, Err(error), since, ended);
        }
    }

    fn count(
        &self,
        core: &ReadContext<'_>,
        drive: DriveNo,
        (since, ended): (Instant, Instant),
        outcome: &Result<&[u8], ReadError>,
    ) {
        let at = usize::from(drive.0);
        let counts = &mut self.drives.borrow_mut()[at];
        counts.read_ended(ended);
        match outcome {
            Ok(bytes) => {
                counts.reads += 1;
                counts.read_bytes += bytes.len() as u64;
            }
            Err(_) => counts.failed += 1,
        }
        core.histograms.reads[at].record_in_bucket(self.duration(since, ended));
    }

    /// Returns the time from `since` to `ended`.
    fn duration(&self, since: Instant, ended: Instant) -> InBucket {
        if let Some(last) = self.last_timed.get()
            && (last.since, last.ended) == (since, ended)
        {
            return last.duration;
        }
        let duration = InBucket::time(ended - since);
        self.last_timed.set(Some(TimedRead { since, ended, duration }));
        duration
    }

    /// Handles the completion of the read with this tag, at the time `at`. Adds requests that have no pieces left to
    /// `ended`.
    pub fn done(
        &self,
        core: &ReadContext<'_>,
        tag: usize,
        outcome: Result<&[u8], ReadError>,
        at: Instant,
        ended: &mut Vec<RequestNo>,
    ) {
        self.busy.set(self.busy.get() - 1);
        if !self.waiting.borrow().is_empty() {
            self.wake();
        }
        let (drive, first, since, is_bound, mut wants, abandoned) = {
            let entry = &mut self.in_flight.borrow_mut().entries[tag];
            let (wants, abandoned) = (take(&mut entry.wants), take(&mut entry.abandoned));
            (entry.drive, entry.first, entry.since, entry.is_bound, wants, abandoned)
        };
        if is_bound {
            self.depth.borrow_mut().ended(since, at);
        }
        self.count(core, drive, (since, at), &outcome);
        if wants.is_empty() {
            self.stuck.borrow_mut()[usize::from(drive.0)] -= 1;
        }
        match outcome {
            Ok(bytes) => deliver(core, first, bytes, &wants, ended),
            Err(error) => {
                core.stats.bad_sectors.add(1);
                let trouble = ExtentError::from(error);
                if trouble.means_bad_data() {
                    abandoned.iter().for_each(|extent| core.fills.bad_extent(extent, trouble));
                }
                mark_undelivered(core, &wants, Some(trouble), ended);
            }
        }
        wants.clear();
        let mut table = self.in_flight.borrow_mut();
        table.entries[tag].wants = wants;
        table.free.push(tag as u32);
    }
}

/// Returns the sectors that a piece needs, or `None` if its extent is gone, which cannot happen because of the grace
/// period.
fn want_of(directory: &Directory, piece: Piece) -> Option<Want<Piece>> {
    let extent = directory.extent(piece.extent)?;
    extent.index.prefetch_sum(piece.first_sector());
    let first = extent.first.plus(piece.first_sector().into());
    Some(Want { drive: extent.drive, first, sectors: piece.sectors(), piece })
}
