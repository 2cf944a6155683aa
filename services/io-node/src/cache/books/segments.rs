//! Allocates space on drives in logs of segments. A segment is reclaimed as a whole.
//!
//! ```text
//! slab   | head | segment 0 | segment 1 | segment 2 | ... each `segment_sectors` long
//! segment| extent | extent |  free  | journal           extents front to back, the journal back to front
//! ```
//!
//! Pure bookkeeping with one owner. A segment is free, open (one per log and drive, being filled) or sealed. When a
//! drive is full, the oldest sealed segment of one of its logs is reclaimed: of the small log if this log has its share
//! of the segments, otherwise of the main log. A segment that is nearly empty is reclaimed before all others. The
//! caller moves the extents worth keeping ([`super::eviction`]), makes every core forget the others, empties the
//! segment's journal on the drive ([`Segments::empty`]), and then gives the segment back with [`Segments::release`].
//!
//! A segment of the held log is reclaimed when at most half of it is held. The held log may have all segments of a
//! drive but [`OTHERS_MIN`]. Once it has that many, a segment is reclaimed even if up to three quarters of it are held.
//! Such a segment exists as long as the guarantees of all tables sum to at most two thirds of the held log
//! ([`held_max_sectors`]).

use std::collections::VecDeque;

use address::{DriveNo, SectorNo};

use super::checked::less;
use super::eviction::{LOGS, Log};
use crate::extent::{self, SegmentNo};

/// Space for one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The segment in which the space lies.
    pub segment: SegmentNo,
    /// The space's first sector on the drive.
    pub first: SectorNo,
}

/// Space for a block of a segment's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRoom {
    /// The epoch of the segment's current use.
    pub epoch: u64,
    /// The segment's log.
    pub log: Log,
    /// The block's number in the journal.
    pub number: u32,
    /// The checksum of the block before.
    pub previous: u32,
    /// The block's first sector on the drive.
    pub first: SectorNo,
}

/// The purpose of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A fill, which leaves one segment of each drive free for the other purposes.
    Fill,
    /// An extent that is kept from a reclaimed segment. It may take the segment that fills leave free.
    Kept,
    /// An extent that is kept for its table's guarantee. It may use the same space as `Kept`, and the held log may
    /// exceed its maximum by one segment for a while.
    Due,
}

/// The outcome of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Space was allocated. The extent counts as under way in its segment until [`Segments::settle`].
    Room(Room),
    /// There is no space until this segment is emptied and released.
    Reclaim(SegmentNo),
    /// There is no space, and every segment that could be reclaimed has extents under way. Try again after one of these
    /// extents was recorded or given up.
    Busy,
    /// The extent and its record do not fit into a segment.
    TooLong,
    /// The held log has all the segments it may have, and too much of them is held to reclaim any.
    AllHeld,
    /// No drive takes extents any more.
    NoDrive,
}

/// The segments of all drives.
#[derive(Debug)]
pub struct Segments {
    segment_sectors: u64,
    drives: Vec<DriveSegments>,
    next_drive: usize,
    /// The epoch of the next use of a segment. It is higher than the epoch of every segment in use.
    next_epoch: u64,
}

#[derive(Debug)]
struct DriveSegments {
    free: VecDeque<u32>,
    /// The open segment of each log.
    open: [Option<u32>; LOGS],
    /// The sealed segments of each log, oldest first.
    sealed: [VecDeque<u32>; LOGS],
    segments: Vec<Segment>,
    /// Sectors used in all segments, including journals.
    used_sectors: u64,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// The epoch of the segment's current use, or of its next use if it was emptied; 0 before its first use.
    epoch: u64,
    /// The segment's log, unless it is free.
    log: Log,
    /// Sectors of extents, from the segment's front.
    used_sectors: u64,
    /// Sectors of the journal's blocks, from the segment's end.
    journal_sectors: u64,
    blocks: u32,
    /// The checksum of the last block.
    sum: u32,
    /// Sectors reserved for the records of extents under way.
    reserved_sectors: u64,
    /// Sectors of extents that are served.
    live_sectors: u64,
    /// Sectors of extents that are held.
    held_sectors: u64,
    under_way: u32,
}

/// A segment as its journal describes it.
#[derive(Clone, Copy, Debug)]
pub struct RestoredSegment {
    pub segment: SegmentNo,
    /// The epoch of its use.
    pub epoch: u64,
    /// The segment's log.
    pub log: Log,
    /// Sectors from its front to the end of its last extent.
    pub used_sectors: u64,
    /// Sectors of its journal.
    pub journal_sectors: u64,
    /// The number of blocks in its journal.
    pub blocks: u32,
    /// The checksum of the last block.
    pub sum: u32,
}

impl Segments {
    /// Creates the bookkeeping for slabs of these lengths (`drive_sectors`), with all segments free. A tail shorter
    /// than a segment is unused. Epochs begin at `first_epoch`.
    pub fn new(segment_sectors: u64, drive_sectors: &[u64], first_epoch: u64) -> Self {
        let drives = drive_sectors
            .iter()
            .map(|&sectors| {
                let count = extent::segments(sectors, segment_sectors);
                DriveSegments {
                    free: (0..count).collect(),
                    open: [None; LOGS],
                    sealed: Default::default(),
                    segments: vec![Segment::default(); count as usize],
                    used_sectors: 0,
                    is_closed: false,
                }
            })
            .collect();
        Self { segment_sectors, drives, next_drive: 0, next_epoch: first_epoch.max(1) }
    }

    /// Returns the epoch of the next use of a segment, which is another one after each restart.
    pub fn next_epoch(&self) -> u64 {
        self.next_epoch
    }

    /// Takes over segments that were filled before, in any order. Call it once, before any method that changes the
    /// segments. The newest segment of each log and drive is filled further.
    pub fn restore(&mut self, mut restored: Vec<RestoredSegment>) {
        restored.sort_by_key(|segment| segment.epoch);
        for &RestoredSegment { segment, epoch, log, used_sectors, journal_sectors, blocks, sum } in
            &restored
        {
            self.next_epoch = self.next_epoch.max(epoch + 1);
            let drive = self.drive(segment);
            drive.segments[segment.index as usize] = Segment {
                epoch,
                log,
                used_sectors,
                journal_sectors,
                blocks,
                sum,
                ..Segment::default()
            };
            drive.used_sectors += used_sectors + journal_sectors;
            if used_sectors > 0 {
                drive.sealed[log as usize].push_back(segment.index);
            }
        }
        for drive in &mut self.drives {
            let segments = &drive.segments;
            drive.free.retain(|&free| segments[free as usize].used_sectors == 0);
            for log in Log::ALL {
                drive.open[log as usize] = drive.sealed[log as usize].pop_back();
            }
        }
    }

    /// Leaves a segment unused until it is reclaimed, because its journal can't be read.
    pub fn distrust(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        drive.free.retain(|&free| free != segment.index);
        drive.sealed[Log::Small as usize].push_front(segment.index);
    }

    /// Closes a drive: no more space is allocated on it, and none of its segments is reclaimed.
    pub fn close(&mut self, drive: DriveNo) {
        self.drives[usize::from(drive.0)].is_closed = true;
    }

    /// Allocates space in a log for an extent of `sectors` whose record takes up to `record_sectors`, on the drives in
    /// turn. A drive without space is skipped as long as another one has some.
    pub fn allocate(
        &mut self,
        log: Log,
        sectors: u64,
        record_sectors: u64,
        for_use: Use,
    ) -> Allocation {
        // The last term is for the block with which the journal of an emptied segment begins.
        if sectors + record_sectors + EMPTY_BLOCK_SECTORS > self.segment_sectors {
            return Allocation::TooLong;
        }
        if self.is_closed() {
            return Allocation::NoDrive;
        }
        let count = self.drives.len();
        for turn in 0..count {
            let at = (self.next_drive + turn) % count;
            let drive = &mut self.drives[at];
            if let Some((index, first)) =
                drive.append(log, sectors, record_sectors, for_use, self.segment_sectors)
            {
                let segment = &mut self.drives[at].segments[index as usize];
                if segment.epoch == 0 {
                    segment.epoch = self.next_epoch;
                    self.next_epoch += 1;
                }
                self.next_drive = (at + 1) % count;
                let start = extent::segment_start(index, self.segment_sectors);
                let segment = SegmentNo { drive: DriveNo(at as u16), index };
                return Allocation::Room(Room { segment, first: start.plus(first) });
            }
        }
        let drives = self.drives.iter().filter(|drive| !drive.is_closed);
        match log {
            Log::Held if drives.clone().all(|drive| drive.is_held(self.segment_sectors)) => {
                Allocation::AllHeld
            }
            Log::Held => self.reclaim_of(|drive| match drive.has_held_max() {
                true => drive.least_held(self.segment_sectors),
                false => drive.next_reclaimed(self.segment_sectors),
            }),
            Log::Small | Log::Main => self.reclaim(),
        }
    }

    /// Returns the segment to reclaim next, even if there is free space: of the drive that is next in turn to get an
    /// extent, or of the first drive after it that has a segment to reclaim.
    pub fn reclaim(&self) -> Allocation {
        self.reclaim_of(|drive| drive.next_reclaimed(self.segment_sectors))
    }

    fn reclaim_of(&self, next: impl Fn(&DriveSegments) -> Option<u32>) -> Allocation {
        if self.is_closed() {
            return Allocation::NoDrive;
        }
        let count = self.drives.len();
        for turn in 0..count {
            let at = (self.next_drive + turn) % count;
            let drive = &self.drives[at];
            if let Some(index) = (!drive.is_closed).then(|| next(drive)).flatten() {
                return Allocation::Reclaim(SegmentNo { drive: DriveNo(at as u16), index });
            }
        }
        Allocation::Busy
    }

    /// Counts an extent of this segment as served.
    pub fn live(&mut self, segment: SegmentNo, sectors: u64) {
        let segment = self.segment(segment);
        segment.live_sectors += sectors;
        assert!(segment.live_sectors <= segment.used_sectors, "{segment:?}");
    }

    /// Stops counting an extent as served, because it was forgotten, or is served from another place now.
    pub fn gone(&mut self, segment: SegmentNo, sectors: u64) {
        let segment = self.segment(segment);
        segment.live_sectors = less(segment.live_sectors, sectors, "live sectors");
    }

    /// Counts an extent of this segment as held.
    pub fn hold(&mut self, segment: SegmentNo, sectors: u64) {
        let segment = self.segment(segment);
        segment.held_sectors += sectors;
        assert!(segment.held_sectors <= segment.used_sectors, "{segment:?}");
    }

    /// Stops counting an extent as held.
    pub fn release_held(&mut self, segment: SegmentNo, sectors: u64) {
        let segment = self.segment(segment);
        segment.held_sectors = less(segment.held_sectors, sectors, "held sectors");
    }

    /// Gives a segment that was to be reclaimed to the held log, without moving its extents. The segment's journal does
    /// not record this, because it gets no more blocks: after a restart, the segment is in its former log again.
    pub fn make_held(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        drive.sealed.iter_mut().for_each(|log| log.retain(|&index| index != segment.index));
        drive.sealed[Log::Held as usize].push_back(segment.index);
        self.segment(segment).log = Log::Held;
    }

    /// Returns whether a segment with `due_sectors` due sectors is given to the held log instead of being reclaimed.
    /// This is the case if more than half of its sectors are due, with two exceptions. A segment that is in the held
    /// log already is reclaimed, because it was chosen as the segment of that log whose reclaim frees the most space.
    /// And the held log gets no segment while it has as many segments of the drive as it may have.
    pub fn is_to_be_held(&self, segment: SegmentNo, due_sectors: u64) -> bool {
        let has_room = !self.drives[usize::from(segment.drive.0)].has_held_max();
        2 * due_sectors > self.segment_sectors && self.log_of(segment) != Log::Held && has_room
    }

    /// Whether no drive takes extents any more.
    pub fn is_closed(&self) -> bool {
        self.drives.iter().all(|drive| drive.is_closed)
    }

    /// Stops filling a segment that is going to be reclaimed.
    pub fn seal(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        for log in Log::ALL {
            if drive.open[log as usize] == Some(segment.index) {
                drive.open[log as usize] = None;
                drive.sealed[log as usize].push_back(segment.index);
            }
        }
    }

    /// Allocates a block of `sectors` in a segment with extents under way, out of the space reserved for their records,
    /// or in a segment that was just emptied.
    pub fn next_block(&mut self, segment: SegmentNo, sectors: u64) -> BlockRoom {
        let segment_sectors = self.segment_sectors;
        let end = extent::segment_start(segment.index, segment_sectors).plus(segment_sectors);
        self.drive(segment).used_sectors += sectors;
        let segment = self.segment(segment);
        segment.journal_sectors += sectors;
        assert!(segment.used_sectors + segment.journal_sectors <= segment_sectors, "{segment:?}");
        segment.blocks += 1;
        let first = SectorNo(end.0 - segment.journal_sectors);
        let (number, previous) = (segment.blocks - 1, segment.sum);
        BlockRoom { epoch: segment.epoch, log: segment.log, number, previous, first }
    }

    /// Records the checksum of the last allocated block, which the next block will contain.
    pub fn chain(&mut self, segment: SegmentNo, sum: u32) {
        self.segment(segment).sum = sum;
    }

    /// Stops counting `extents` extents as under way in `segment`, because they were recorded or given up, and ends the
    /// reservation of `record_sectors` for them.
    pub fn settle(&mut self, segment: SegmentNo, extents: u32, record_sectors: u64) {
        let segment = self.segment(segment);
        segment.under_way =
            less(segment.under_way.into(), extents.into(), "extents under way") as u32;
        segment.reserved_sectors =
            less(segment.reserved_sectors, record_sectors, "reserved sectors");
    }

    /// Forgets a segment's contents, and gives it the next epoch. Returns the space for the block of
    /// [`EMPTY_BLOCK_SECTORS`] that must be written before the segment is released.
    pub fn empty(&mut self, segment: SegmentNo) -> BlockRoom {
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let was = std::mem::take(self.segment(segment));
        assert!(was.under_way == 0 && was.live_sectors == 0 && was.held_sectors == 0, "{was:?}");
        let drive = self.drive(segment);
        drive.used_sectors =
            less(drive.used_sectors, was.used_sectors + was.journal_sectors, "used sectors");
        self.segment(segment).epoch = epoch;
        self.next_block(segment, EMPTY_BLOCK_SECTORS)
    }

    /// Makes a segment free after its journal was ended on the drive.
    pub fn release(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        let is_emptied = drive.segments[segment.index as usize].used_sectors == 0;
        assert!(
            is_emptied && !drive.free.contains(&segment.index),
            "{segment:?} is in use or free"
        );
        drive.sealed.iter_mut().for_each(|log| log.retain(|&index| index != segment.index));
        drive.free.push_back(segment.index);
    }

    /// The segments that have a journal, as their journals describe them.
    #[cfg(test)]
    pub fn in_use(&self) -> Vec<RestoredSegment> {
        let restored = |(drive, index): (usize, usize), it: &Segment| RestoredSegment {
            segment: SegmentNo { drive: DriveNo(drive as u16), index: index as u32 },
            epoch: it.epoch,
            log: it.log,
            used_sectors: it.used_sectors,
            journal_sectors: it.journal_sectors,
            blocks: it.blocks,
            sum: it.sum,
        };
        let drives = self.drives.iter().enumerate();
        let segments = drives.flat_map(|(drive, it)| {
            it.segments.iter().enumerate().map(move |(index, it)| ((drive, index), it))
        });
        let used = segments.filter(|(_, it)| it.blocks > 0);
        used.map(|(at, it)| restored(at, it)).collect()
    }

    /// Returns the log of a segment in use.
    pub fn log_of(&self, segment: SegmentNo) -> Log {
        self.drives[usize::from(segment.drive.0)].segments[segment.index as usize].log
    }

    /// Sectors of `drive` that extents and journals use. Of an emptied segment, only the one block of its journal
    /// counts.
    pub fn used_sectors(&self, drive: DriveNo) -> u64 {
        self.drives[usize::from(drive.0)].used_sectors
    }

    fn drive(&mut self, segment: SegmentNo) -> &mut DriveSegments {
        &mut self.drives[usize::from(segment.drive.0)]
    }

    fn segment(&mut self, segment: SegmentNo) -> &mut Segment {
        &mut self.drive(segment).segments[segment.index as usize]
    }
}

/// Sectors of a block without records.
pub const EMPTY_BLOCK_SECTORS: u64 = 1;

/// On a full drive, the small log has one in this many of the segments that are not in the held log, as in S3-FIFO. In
/// a first trial, three in ten did worse (`docs/performance.md`).
const SMALL_PART: usize = 10;

/// A segment is reclaimed before others if at most one in this many of its sectors is still served. So the space of
/// extents that a table evicts for its quota is used again before other tables lose extents. At most an eighth of a
/// segment is evicted too early by this.
const NEARLY_EMPTY_PART: u64 = 8;

/// On a drive with at least this many segments, fills leave one free for extents that are kept. A smaller drive has no
/// segment to spare.
const SEGMENTS_TO_KEEP: usize = 4;

/// The minimum number of segments of a drive that the held log leaves to the other logs: an open one for each, and
/// spare ones.
pub const OTHERS_MIN: usize = 4;

/// Returns the maximum sum of all tables' guarantees, in sectors, on slabs of these lengths (`drive_sectors`): two
/// thirds of what the held log may have, so that it always has a segment worth reclaiming.
pub fn held_max_sectors(segment_sectors: u64, drive_sectors: &[u64]) -> u64 {
    let segments = drive_sectors.iter().map(|&sectors| {
        u64::from(extent::segments(sectors, segment_sectors)).saturating_sub(OTHERS_MIN as u64)
    });
    segments.sum::<u64>() * segment_sectors * 2 / 3
}

impl DriveSegments {
    /// Allocates in the log's open segment, or in a free one, which becomes the open one. Returns the segment and the
    /// number of the space's first sector in it.
    fn append(
        &mut self,
        log: Log,
        sectors: u64,
        record_sectors: u64,
        for_use: Use,
        segment_sectors: u64,
    ) -> Option<(u32, u64)> {
        if self.is_closed {
            return None;
        }
        let spare = if for_use == Use::Fill { self.spare() } else { 0 };
        let fits = |open: &u32| {
            self.segments[*open as usize].taken() + sectors + record_sectors <= segment_sectors
        };
        let index = match self.open[log as usize].filter(fits) {
            Some(open) => open,
            None => {
                let held_max = self.held_max() + usize::from(for_use == Use::Due);
                let is_held_full = log == Log::Held && self.held_segments() >= held_max;
                if self.free.len() <= spare || is_held_full {
                    return None;
                }
                let next = self.free.pop_front()?;
                self.sealed[log as usize].extend(self.open[log as usize]);
                self.open[log as usize] = Some(next);
                self.segments[next as usize].log = log;
                next
            }
        };
        let segment = &mut self.segments[index as usize];
        let first = segment.used_sectors;
        self.used_sectors += sectors;
        segment.used_sectors += sectors;
        segment.reserved_sectors += record_sectors;
        segment.under_way += 1;
        Some((index, first))
    }

    fn spare(&self) -> usize {
        usize::from(self.segments.len() >= SEGMENTS_TO_KEEP)
    }

    /// Returns the segment to reclaim, which must not have extents under way: one that is nearly empty, or one of the
    /// held log with at most half of its sectors held. Otherwise it is the oldest sealed segment of the small log or
    /// the main log. The small log comes first if it has its share of the segments. If neither log has a sealed
    /// segment, it is an open one.
    fn next_reclaimed(&self, segment_sectors: u64) -> Option<u32> {
        let is_idle = |index: &u32| self.segments[*index as usize].under_way == 0;
        let is_nearly_empty = |index: &u32| {
            self.segments[*index as usize].live_sectors * NEARLY_EMPTY_PART <= segment_sectors
        };
        let mut sealed = self.sealed.iter().flatten().copied();
        if let Some(nearly_empty) = sealed.find(|index| is_idle(index) && is_nearly_empty(index)) {
            return Some(nearly_empty);
        }
        let held = self.sealed[Log::Held as usize].iter().copied().filter(is_idle);
        let held = held.min_by_key(|&index| self.segments[index as usize].held_sectors);
        let mostly_free =
            held.filter(|&it| 2 * self.segments[it as usize].held_sectors <= segment_sectors);
        if mostly_free.is_some() {
            return mostly_free;
        }
        let small = self.sealed[Log::Small as usize].len();
        let others = self.segments.len() - self.held_segments();
        let turn = match small >= (others / SMALL_PART).max(1) {
            true => [Log::Small, Log::Main],
            false => [Log::Main, Log::Small],
        };
        let sealed =
            turn.iter().find_map(|&log| self.sealed[log as usize].iter().copied().find(is_idle));
        sealed.or_else(|| turn.iter().find_map(|&log| self.open[log as usize].filter(is_idle)))
    }

    fn held_segments(&self) -> usize {
        let log = Log::Held as usize;
        self.sealed[log].len() + usize::from(self.open[log].is_some())
    }

    fn held_max(&self) -> usize {
        self.segments.len().saturating_sub(OTHERS_MIN)
    }

    fn has_held_max(&self) -> bool {
        self.held_segments() >= self.held_max()
    }

    /// Returns the segments of the held log with at most three quarters of their sectors held. They are worth
    /// reclaiming when the log has its maximum number of segments.
    fn worth_reclaiming(&self, segment_sectors: u64) -> impl Iterator<Item = u32> {
        let log = Log::Held as usize;
        let all = self.sealed[log].iter().copied().chain(self.open[log]);
        all.filter(move |&index| {
            4 * self.segments[index as usize].held_sectors <= 3 * segment_sectors
        })
    }

    /// Returns the segment with the fewest held sectors among those worth reclaiming that have no extents under way.
    fn least_held(&self, segment_sectors: u64) -> Option<u32> {
        let idle = self.worth_reclaiming(segment_sectors);
        let idle = idle.filter(|&index| self.segments[index as usize].under_way == 0);
        idle.min_by_key(|&index| self.segments[index as usize].held_sectors)
    }

    /// Whether the held log can get no more space on this drive.
    fn is_held(&self, segment_sectors: u64) -> bool {
        self.has_held_max() && self.worth_reclaiming(segment_sectors).next().is_none()
    }
}

impl Segment {
    /// The number of sectors in use or reserved.
    fn taken(&self) -> u64 {
        self.used_sectors + self.journal_sectors + self.reserved_sectors
    }
}
