//! The reader: fetches pieces of rows from the RAM tier or, through the ring, from drives.
//!
//! Each core has one queue of waiting pieces (`queue.rs`), whichever requests they belong to. Once the tasks that are
//! ready have run, as many pieces as there are free slots leave the queue, are coalesced (`coalesce.rs`), and go to the
//! ring in one submission. A piece whose request has ended or missed its deadline by then costs no read.
//!
//! The reader answers no request: it returns the requests that have no pieces left, and those that are late, to its
//! caller (`read_events.rs`).

mod checks;
mod queue;
mod timeouts;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use address::{DriveNo, SECTOR_BYTES, SectorNo};
use pack::PackError;
use ring::{ReadError, ReadSink, Ring};
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::Fault;

use self::checks::Checks;
pub use self::queue::Priority;
use self::queue::Queue;
use super::coalesce::{PlannedRead, Want, plan_reads};
use super::ram_tier::{RamTier, SectorName};
use super::requests::{Gather, Request, Requests, RowSource};
use crate::cache::FillHandle;
use crate::drive::ExtentError;
use crate::error::{NodeError, fault_of};
use crate::extent::{Directory, ExtentNo};
use crate::shard::{CoreHistograms, CoreStats, DriveCounts, RequestNo};

/// How many pieces ahead bytes of the RAM tier are prefetched: scoring a piece takes a tenth of the time that memory
/// takes to answer.
const RAM_AHEAD: usize = 8;

/// Consecutive bytes of one row, within one read.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    request: RequestNo,
    extent: ExtentNo,
    part: u16,
    position: u32,
    /// The offset of its first byte in the row.
    row_offset: u32,
    /// The offset of its first byte in the extent.
    offset: u32,
    len: u32,
}

/// A read in flight.
struct InFlight {
    drive: DriveNo,
    first: SectorNo,
    since: Instant,
    /// Whether it was found late once.
    is_suspect: bool,
    /// Empty once the read was abandoned.
    wants: Vec<Want<Piece>>,
}

/// The waiting pieces of a core, and its reads in flight.
pub struct Reader {
    waiting: RefCell<Queue<Piece>>,
    in_flight: RefCell<InFlightTable>,
    busy: Cell<u32>,
    slots: u32,
    sectors_max: u32,
    sink: Rc<dyn ReadSink>,
    /// Notified when pieces wait and slots may be free.
    work: Arc<Notify>,
    /// Whether it was notified, and the task that waits for it has not run since.
    woken: Cell<bool>,
    /// The number of abandoned reads in flight, by drive.
    stuck: RefCell<Vec<u32>>,
    /// The reads of each drive.
    drives: RefCell<Vec<DriveCounts>>,
    /// These three are kept to reuse their allocations.
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
    /// Cached sectors.
    pub ram: &'a RamTier,
    /// Counters.
    pub stats: &'a CoreStats,
    /// Histograms of durations.
    pub histograms: &'a CoreHistograms,
    /// The filler, to which bad extents and late drives are reported.
    pub fills: &'a FillHandle,
}

/// Requests that a submission has found to be over.
pub struct Submission {
    /// Requests whose deadline has passed before their rows were read, each once.
    pub late: Vec<RequestNo>,
    /// Requests that have no pieces left.
    pub ended: Vec<RequestNo>,
}

/// Pieces that left the queue and are not read.
#[derive(Default)]
struct Popped {
    /// Requests whose deadline has passed.
    late: Vec<RequestNo>,
    /// Pieces on drives that do not answer.
    stuck: Vec<Piece>,
}

/// The reads in flight. A read's tag is its place.
#[derive(Default)]
struct InFlightTable {
    places: Vec<InFlight>,
    free: Vec<u32>,
}

/// Puts a piece if all of its sectors, from `first`, are in RAM. Returns whether they were.
fn put_from_ram(
    core: &ReadContext<'_>,
    first: SectorName,
    piece: &Piece,
    gather: &mut Gather,
) -> Result<bool, PackError> {
    let mut put = |bytes: &[u8]| {
        let (part, position) = (piece.part.into(), piece.position as usize);
        gather.put(part, position, piece.row_offset as usize, bytes)
    };
    let sectors = piece.sectors();
    let start = piece.offset as usize % SECTOR_BYTES;
    let row = start..start + piece.len as usize;
    if sectors == 1 {
        let Some(placed) = core.ram.with_sector(first, |sector| put(&sector[row])) else {
            core.stats.ram_misses.add(1);
            return Ok(false);
        };
        core.stats.ram_hits.add(1);
        return placed.map(|()| true);
    }
    // A vector is scored in one call, so its bytes are joined first.
    let mut joined = Vec::with_capacity(sectors as usize * SECTOR_BYTES);
    for sector in 0..sectors {
        let joins = |bytes: &[u8]| joined.extend_from_slice(bytes);
        if core.ram.with_sector(first.plus(sector), joins).is_none() {
            core.stats.ram_misses.add(u64::from(sectors));
            return Ok(false);
        }
    }
    core.stats.ram_hits.add(u64::from(sectors));
    put(&joined[row]).map(|()| true)
}

impl Piece {
    fn first_sector(&self) -> u32 {
        self.offset / SECTOR_BYTES as u32
    }

    fn sectors(&self) -> u32 {
        (self.offset % SECTOR_BYTES as u32 + self.len).div_ceil(SECTOR_BYTES as u32)
    }

    /// Returns the range of bytes that it needs of its first sector.
    fn in_first_sector(&self) -> Range<usize> {
        let start = self.offset as usize % SECTOR_BYTES;
        start..(start + self.len as usize).min(SECTOR_BYTES)
    }
}

impl Reader {
    /// Creates a reader of `drives` drives, with at most `slots` reads in flight of at most `read_max` bytes, which is
    /// a multiple of the sector size. `sink` passes the completion of each read to [`done`](Self::done).
    pub fn new(slots: u32, read_max: usize, drives: usize, sink: Rc<dyn ReadSink>) -> Self {
        Self {
            waiting: RefCell::default(),
            in_flight: RefCell::default(),
            busy: Cell::new(0),
            slots,
            sectors_max: (read_max / SECTOR_BYTES) as u32,
            sink,
            work: Arc::default(),
            woken: Cell::new(false),
            stuck: RefCell::default(),
            drives: RefCell::new(vec![DriveCounts::default(); drives]),
            pieces: RefCell::default(),
            wants: RefCell::default(),
            planned: RefCell::default(),
        }
    }

    /// Returns the notification that pieces wait. It is sent once until [`woke_up`](Self::woke_up) is called.
    pub fn work(&self) -> Arc<Notify> {
        Arc::clone(&self.work)
    }

    /// Notes that the task that waits for [`work`](Self::work) runs: later work notifies it again.
    pub fn woke_up(&self) {
        self.woken.set(false);
    }

    /// Notifies [`work`](Self::work), once for any number of completions.
    fn wake(&self) {
        if !self.woken.replace(true) {
            self.work.notify_one();
        }
    }

    /// Returns the number of waiting pieces.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// The reads of each drive.
    pub fn drives(&self) -> Vec<DriveCounts> {
        self.drives.borrow().clone()
    }

    /// Estimates how long another piece would wait.
    pub fn wait(&self, priority: Priority) -> Duration {
        self.waiting.borrow().wait(priority)
    }

    /// Returns the maximum number of bytes that one read can return from `offset` of an extent.
    fn piece_len_max(&self, offset: u32) -> u32 {
        self.sectors_max * SECTOR_BYTES as u32 - offset % SECTOR_BYTES as u32
    }

    /// Queues the pieces of a request. Pieces in the RAM tier are put at once.
    ///
    /// # Errors
    /// A row cannot be decoded.
    pub fn enqueue(&self, core: &ReadContext<'_>, no: RequestNo) -> Result<(), Fault> {
        let mut requests = core.requests.borrow_mut();
        let Some(request) = requests.get_mut(no) else { return Ok(()) };
        let Some(mut gather) = request.gather.take() else { return Ok(()) };
        let wanted = self.enqueue_parts(core, no, request, &mut gather);
        request.gather = Some(gather);
        request.times.located = Some(Instant::now());
        wanted.map_err(|error| fault_of(&NodeError::from(error)))
    }

    fn enqueue_parts(
        &self,
        core: &ReadContext<'_>,
        no: RequestNo,
        request: &mut Request,
        gather: &mut Gather,
    ) -> Result<(), PackError> {
        let mut pieces = self.pieces.borrow_mut();
        pieces.clear();
        let mut waiting = self.waiting.borrow_mut();
        let directory = core.directory.borrow();
        for (part, sources) in request.sources.iter().enumerate() {
            if let Some(image) = &request.images[part] {
                gather.put_image(part, image, sources)?;
            }
            for (position, source) in sources.iter().enumerate() {
                let RowSource::Extent(extent_no, row) = *source else { continue };
                let Some(extent) = directory.read_by(extent_no, no.serial) else { continue };
                if extent.index.is_null(row) {
                    continue;
                }
                let Some(span) = extent.index.span(row) else { continue };
                let mut from = 0;
                while from < span.len {
                    let offset = span.offset + from;
                    let len = (span.len - from).min(self.piece_len_max(offset));
                    let piece = Piece {
                        request: no,
                        extent: extent_no,
                        part: part as u16,
                        position: position as u32,
                        row_offset: from,
                        offset,
                        len,
                    };
                    from += len;
                    if !core.ram.is_on() {
                        request.pieces_left += 1;
                        waiting.push(piece, request.priority);
                        continue;
                    }
                    let name = SectorName::new(extent.key, piece.first_sector());
                    core.ram.prefetch_entry(name);
                    pieces.push((piece, name));
                }
            }
        }
        for (at, (piece, name)) in pieces.iter().enumerate() {
            if let Some((later, name)) = pieces.get(at + RAM_AHEAD) {
                core.ram.prefetch_bytes(*name, later.in_first_sector());
            }
            match put_from_ram(core, *name, piece, gather)? {
                true => request.times.ram_hits += piece.sectors(),
                false => {
                    request.pieces_left += 1;
                    waiting.push(*piece, request.priority);
                }
            }
        }
        if !waiting.is_empty() {
            self.wake();
        }
        Ok(())
    }

    /// Hands waiting pieces to the ring as far as slots are free. Returns `None` if no piece waits or no slot is free.
    pub fn submit(&self, core: &ReadContext<'_>) -> Option<Submission> {
        if self.busy.get() >= self.slots || self.waiting.borrow().is_empty() {
            return None;
        }
        let now = Instant::now();
        let Popped { mut late, stuck } = self.pop(core, now);
        let mut ended = Vec::new();
        let mut wants = self.wants.borrow_mut();
        let mut planned = self.planned.borrow_mut();
        planned.clear();
        plan_reads(&mut wants, self.sectors_max, &mut planned);
        for read in planned.iter() {
            self.start(core, read, now, &wants[read.wants.clone()], &mut ended);
        }
        late.sort_unstable_by_key(|no| no.serial);
        late.dedup();
        stuck.into_iter().for_each(|piece| refuse_piece(core, piece, None, &mut ended));
        Some(Submission { late, ended })
    }

    /// Moves as many pieces as there are free slots to `wants`. Returns the pieces that are not to be read.
    fn pop(&self, core: &ReadContext<'_>, now: Instant) -> Popped {
        let mut popped = Popped::default();
        let mut requests = core.requests.borrow_mut();
        let directory = core.directory.borrow();
        let mut waiting = self.waiting.borrow_mut();
        let mut wants = self.wants.borrow_mut();
        wants.clear();
        let room = (self.slots - self.busy.get()) as usize;
        while wants.len() < room {
            let Some(piece) = waiting.pop() else { break };
            let Some(request) = requests.get_mut(piece.request) else { continue };
            if request.deadline <= now {
                popped.late.push(piece.request);
                continue;
            }
            match place(&directory, piece) {
                Some(want) if self.is_stuck(want.drive) => popped.stuck.push(piece),
                want => wants.extend(want),
            }
        }
        waiting.submitted(wants.len(), now);
        popped
    }

    /// Starts a read. If the ring refuses it, the requests that have no pieces left are added to `ended`.
    fn start(
        &self,
        core: &ReadContext<'_>,
        read: &PlannedRead,
        since: Instant,
        wants: &[Want<Piece>],
        ended: &mut Vec<RequestNo>,
    ) {
        let tag = {
            let mut table = self.in_flight.borrow_mut();
            let (drive, first, is_suspect) = (read.drive, read.first, false);
            let tag = table.free.pop().unwrap_or_else(|| {
                let wants = Vec::new();
                table.places.push(InFlight { drive, first, since, is_suspect, wants });
                table.places.len() as u32 - 1
            });
            let entry = &mut table.places[tag as usize];
            (entry.drive, entry.first, entry.since, entry.is_suspect) =
                (drive, first, since, is_suspect);
            entry.wants.extend_from_slice(wants);
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
        core.histograms.reads[at].record_time(ended - since);
    }

    /// Handles the completion of a read at `at`. Adds requests that have no pieces left to `ended`.
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
        let (drive, first, since, mut wants) = {
            let entry = &mut self.in_flight.borrow_mut().places[tag];
            (entry.drive, entry.first, entry.since, std::mem::take(&mut entry.wants))
        };
        self.count(core, drive, (since, at), &outcome);
        if wants.is_empty() {
            self.stuck.borrow_mut()[usize::from(drive.0)] -= 1;
        }
        match outcome {
            Ok(bytes) => deliver(core, first, bytes, &wants, ended),
            Err(error) => {
                core.stats.bad_sectors.add(1);
                refuse(core, &wants, Some(error.into()), ended);
            }
        }
        wants.clear();
        let mut table = self.in_flight.borrow_mut();
        table.places[tag].wants = wants;
        table.free.push(tag as u32);
    }
}

/// Returns the sectors of a piece, or `None` if its extent is gone, which the grace period rules out.
fn place(directory: &Directory, piece: Piece) -> Option<Want<Piece>> {
    let extent = directory.extent(piece.extent)?;
    extent.index.prefetch_sum(piece.first_sector());
    let first = extent.first.plus(piece.first_sector().into());
    Some(Want { drive: extent.drive, first, sectors: piece.sectors(), piece })
}

/// Checks the sectors of a read and puts its pieces. Adds requests that have no more pieces left to `ended`.
fn deliver(
    core: &ReadContext<'_>,
    first: SectorNo,
    bytes: &[u8],
    wants: &[Want<Piece>],
    ended: &mut Vec<RequestNo>,
) {
    let mut requests = core.requests.borrow_mut();
    let directory = core.directory.borrow();
    let mut checks = Checks::default();
    for want in wants {
        let piece = &want.piece;
        let Some(request) = requests.get_mut(piece.request) else { continue };
        let Some(extent) = directory.extent(piece.extent) else { continue };
        let skipped = (want.first.0 - first.0) as usize;
        if !checks.verify(core, extent, piece, skipped, bytes) {
            request.refused[usize::from(piece.part)].insert(piece.position);
        } else if let Some(gather) = &mut request.gather {
            let start = skipped * SECTOR_BYTES + piece.offset as usize % SECTOR_BYTES;
            let row = &bytes[start..start + piece.len as usize];
            let (part, position) = (piece.part.into(), piece.position as usize);
            if let Err(error) = gather.put(part, position, piece.row_offset as usize, row) {
                // The checksum is right, so the bytes were wrong when they were written.
                let trace = request.span.map(|span| span.trace_id());
                tracing::error!(trace_id = trace, %error, extent = ?extent.key, "a row can't be decoded");
                core.fills.bad_extent(extent, ExtentError::Undecodable);
                request.refused[usize::from(piece.part)].insert(piece.position);
            }
        }
        request.pieces_left -= 1;
        if request.pieces_left == 0 {
            ended.push(piece.request);
        }
    }
}

/// Refuses pieces that could not be read: their rows are read from the table instead.
fn refuse(
    core: &ReadContext<'_>,
    wants: &[Want<Piece>],
    trouble: Option<ExtentError>,
    ended: &mut Vec<RequestNo>,
) {
    for want in wants {
        refuse_piece(core, want.piece, trouble, ended);
    }
}

fn refuse_piece(
    core: &ReadContext<'_>,
    piece: Piece,
    trouble: Option<ExtentError>,
    ended: &mut Vec<RequestNo>,
) {
    if let Some(trouble) = trouble.filter(ExtentError::means_bad_data)
        && let Some(extent) = core.directory.borrow().extent(piece.extent)
    {
        core.fills.bad_extent(extent, trouble);
    }
    let mut requests = core.requests.borrow_mut();
    let Some(request) = requests.get_mut(piece.request) else { return };
    request.refused[usize::from(piece.part)].insert(piece.position);
    request.pieces_left -= 1;
    if request.pieces_left == 0 {
        ended.push(piece.request);
    }
}
