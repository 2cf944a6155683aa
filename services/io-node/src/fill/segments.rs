//! Where extents go on a drive: a log of segments, reclaimed whole.
//!
//! ```text
//! slab   | head | segment 0 | segment 1 | segment 2 | ... each `segment_sectors` long
//! segment| extent | extent |  free  | journal           extents front to back, the journal back to front
//! ```
//!
//! Pure bookkeeping, one owner. A segment is free, open (one a log and drive, being filled) or sealed.
//! When a drive is full the oldest sealed segment of one of its logs, of the small one if that is longer
//! than its share, is reclaimed: the caller keeps what is worth it ([`super::eviction`]), makes every core
//! forget its extents, empties its journal on the drive ([`Segments::empty`]), then gives it back with
//! [`Segments::release`].

use std::collections::VecDeque;

use address::{DriveNo, SectorNo};

use super::eviction::Log;
use crate::slab;

/// One segment of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentNo {
    /// The drive.
    pub drive: DriveNo,
    /// Which segment of it, from 0.
    pub index: u32,
}

/// Room for one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The segment it lies in.
    pub segment: SegmentNo,
    /// Its first sector on the drive.
    pub first: SectorNo,
}

/// Room for a block of a segment's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRoom {
    /// The segment's use.
    pub epoch: u64,
    /// The log it is in.
    pub log: Log,
    /// Which block of it.
    pub number: u32,
    /// Checksum of the block before.
    pub previous: u32,
    /// The block's first sector on the drive.
    pub first: SectorNo,
}

/// What came of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Room, with an extent counted as under way in its segment until [`Segments::settle`].
    Room(Room),
    /// There is none until this segment, the oldest, is emptied and released.
    Reclaim(SegmentNo),
    /// There is none, and every segment has extents under way: try again after one has ended.
    Busy,
    /// The extent with its record is longer than a segment.
    TooLong,
    /// No drive takes extents any more.
    NoDrive,
}

/// The segments of all drives.
#[derive(Debug)]
pub struct Segments {
    segment_sectors: u64,
    drives: Vec<DriveSegments>,
    next_drive: usize,
    /// Higher than that of every segment in use.
    next_epoch: u64,
}

#[derive(Debug)]
struct DriveSegments {
    free: VecDeque<u32>,
    /// Of each log.
    open: [Option<u32>; 2],
    /// Of each log, oldest first.
    sealed: [VecDeque<u32>; 2],
    segments: Vec<Segment>,
    /// Of all segments together, journals included.
    used_sectors: u64,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// 0 before its first use.
    epoch: u64,
    /// The log it is in, unless it is free.
    log: Log,
    /// Of extents, from its front.
    used_sectors: u64,
    /// Of the journal's blocks, from its end.
    journal_sectors: u64,
    blocks: u32,
    /// Checksum of the last of them.
    sum: u32,
    /// Kept free for the records of extents under way.
    reserved_sectors: u64,
    under_way: u32,
}

/// A segment as its journal has it.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Which.
    pub segment: SegmentNo,
    /// Its use.
    pub epoch: u64,
    /// The log it is in.
    pub log: Log,
    /// From its front to the end of its last extent.
    pub used_sectors: u64,
    /// Of its journal.
    pub journal_sectors: u64,
    /// Blocks of its journal.
    pub blocks: u32,
    /// Checksum of the last of them.
    pub sum: u32,
}

impl Segments {
    /// All segments free, over slabs of these many sectors; a tail shorter than a segment is unused.
    /// Epochs begin at `first_epoch`.
    pub fn new(segment_sectors: u64, drive_sectors: &[u64], first_epoch: u64) -> Self {
        let drives = drive_sectors
            .iter()
            .map(|&sectors| {
                let count = slab::segments(sectors, segment_sectors);
                DriveSegments {
                    free: (0..count).collect(),
                    open: [None; 2],
                    sealed: Default::default(),
                    segments: vec![Segment::default(); count as usize],
                    used_sectors: 0,
                    is_closed: false,
                }
            })
            .collect();
        Self { segment_sectors, drives, next_drive: 0, next_epoch: first_epoch.max(1) }
    }

    /// Takes over segments that were filled before, in any order; to be called once, first. The newest of
    /// a drive is filled on.
    pub fn restore(&mut self, mut kept: Vec<Kept>) {
        kept.sort_by_key(|kept| kept.epoch);
        for &Kept { segment, epoch, log, used_sectors, journal_sectors, blocks, sum } in &kept {
            self.next_epoch = self.next_epoch.max(epoch + 1);
            let drive = self.drive(segment);
            let place = &mut drive.segments[segment.index as usize];
            *place = Segment {
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
            for log in [Log::Small, Log::Main] {
                drive.open[log as usize] = drive.sealed[log as usize].pop_back();
            }
        }
    }

    /// Keeps a segment from use until it is reclaimed, since nobody knows what its journal says.
    pub fn distrust(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        drive.free.retain(|&free| free != segment.index);
        drive.sealed[Log::Small as usize].push_front(segment.index);
    }

    /// Gives a drive no extents any more, and takes none of it back.
    pub fn close(&mut self, drive: DriveNo) {
        self.drives[usize::from(drive.0)].is_closed = true;
    }

    /// Room in a log for an extent of `sectors` whose record takes up to `record_sectors`, on the drives in
    /// turn; a drive that would have to reclaim is passed over while another has room. `takes_spare` is for
    /// what is kept of a reclaimed segment: one segment of a drive is left for that alone.
    pub fn allocate(
        &mut self,
        log: Log,
        sectors: u64,
        record_sectors: u64,
        takes_spare: bool,
    ) -> Allocation {
        // What an emptied segment's journal begins with.
        if sectors + record_sectors + EMPTY_BLOCK_SECTORS > self.segment_sectors {
            return Allocation::TooLong;
        }
        if self.is_closed() {
            return Allocation::NoDrive;
        }
        let count = self.drives.len();
        for turn in 0..count {
            let at = (self.next_drive + turn) % count;
            let spare = if takes_spare { 0 } else { self.drives[at].spare() };
            let drive = &mut self.drives[at];
            if let Some((index, first)) =
                drive.append(log, sectors, record_sectors, spare, self.segment_sectors)
            {
                let segment = &mut self.drives[at].segments[index as usize];
                if segment.epoch == 0 {
                    segment.epoch = self.next_epoch;
                    self.next_epoch += 1;
                }
                self.next_drive = (at + 1) % count;
                let start = slab::segment_start(index, self.segment_sectors);
                let segment = SegmentNo { drive: DriveNo(at as u16), index };
                return Allocation::Room(Room { segment, first: start.plus(first) });
            }
        }
        self.reclaim()
    }

    /// The segment to reclaim next, on the drives in turn, though there may be room.
    pub fn reclaim(&self) -> Allocation {
        if self.is_closed() {
            return Allocation::NoDrive;
        }
        let count = self.drives.len();
        for turn in 0..count {
            let at = (self.next_drive + turn) % count;
            if let Some(index) = self.drives[at].next_reclaimed() {
                return Allocation::Reclaim(SegmentNo { drive: DriveNo(at as u16), index });
            }
        }
        Allocation::Busy
    }

    /// Whether no drive takes extents any more.
    pub fn is_closed(&self) -> bool {
        self.drives.iter().all(|drive| drive.is_closed)
    }

    /// Fills a segment no further, as it is going to be reclaimed.
    pub fn seal(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        for log in [Log::Small, Log::Main] {
            if drive.open[log as usize] == Some(segment.index) {
                drive.open[log as usize] = None;
                drive.sealed[log as usize].push_back(segment.index);
            }
        }
    }

    /// Room for a block of `sectors` in a segment with extents under way, of what was kept for their records.
    pub fn next_block(&mut self, segment: SegmentNo, sectors: u64) -> BlockRoom {
        let end =
            slab::segment_start(segment.index, self.segment_sectors).plus(self.segment_sectors);
        self.drive(segment).used_sectors += sectors;
        let place = self.segment(segment);
        place.journal_sectors += sectors;
        place.blocks += 1;
        let first = SectorNo(end.0 - place.journal_sectors);
        let (number, previous) = (place.blocks - 1, place.sum);
        BlockRoom { epoch: place.epoch, log: place.log, number, previous, first }
    }

    /// The block that was given room has this checksum.
    pub fn chain(&mut self, segment: SegmentNo, sum: u32) {
        self.segment(segment).sum = sum;
    }

    /// `extents` in `segment` are under way no more, written down or given up; so much had been kept for
    /// their records.
    pub fn settle(&mut self, segment: SegmentNo, extents: u32, record_sectors: u64) {
        let place = self.segment(segment);
        place.under_way = place.under_way.saturating_sub(extents);
        place.reserved_sectors = place.reserved_sectors.saturating_sub(record_sectors);
    }

    /// Forgets what a segment held, and gives it the next epoch: the block to be written, of
    /// [`EMPTY_BLOCK_SECTORS`], before it is released.
    pub fn empty(&mut self, segment: SegmentNo) -> BlockRoom {
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let was = std::mem::take(self.segment(segment));
        self.drive(segment).used_sectors -= was.used_sectors + was.journal_sectors;
        self.segment(segment).epoch = epoch;
        self.next_block(segment, EMPTY_BLOCK_SECTORS)
    }

    /// Takes an emptied segment back.
    pub fn release(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        drive.sealed.iter_mut().for_each(|log| log.retain(|&index| index != segment.index));
        drive.free.push_back(segment.index);
    }

    /// The log that a segment in use is in.
    pub fn log_of(&self, segment: SegmentNo) -> Log {
        self.drives[usize::from(segment.drive.0)].segments[segment.index as usize].log
    }

    /// Sectors of `drive` that extents and journals were given, reclaimed segments not counted.
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

/// Length of a block without records.
pub const EMPTY_BLOCK_SECTORS: u64 = 1;

/// Of the segments of a full drive, one in so many is the small log's.
const SMALL_SHARE: usize = 10;

/// Drives of fewer segments keep nothing of what they reclaim: there is none to spare.
const SEGMENTS_TO_KEEP: usize = 4;

impl DriveSegments {
    /// Room in the log's open segment, or in a free one that becomes it: the segment and the sector in it.
    fn append(
        &mut self,
        log: Log,
        sectors: u64,
        record_sectors: u64,
        spare: usize,
        segment_sectors: u64,
    ) -> Option<(u32, u64)> {
        if self.is_closed {
            return None;
        }
        let fits = |open: &u32| {
            self.segments[*open as usize].taken() + sectors + record_sectors <= segment_sectors
        };
        let index = match self.open[log as usize].filter(fits) {
            Some(open) => open,
            None => {
                if self.free.len() <= spare {
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

    /// The segment to reclaim: the oldest that nothing is being written to, of the log whose turn it is, or
    /// else of the other; an open one if there is no sealed one.
    fn next_reclaimed(&self) -> Option<u32> {
        if self.is_closed {
            return None;
        }
        let is_idle = |index: &u32| self.segments[*index as usize].under_way == 0;
        let small = self.sealed[Log::Small as usize].len();
        let turn = match small >= (self.segments.len() / SMALL_SHARE).max(1) {
            true => [Log::Small, Log::Main],
            false => [Log::Main, Log::Small],
        };
        let sealed =
            turn.iter().find_map(|&log| self.sealed[log as usize].iter().copied().find(is_idle));
        sealed.or_else(|| turn.iter().find_map(|&log| self.open[log as usize].filter(is_idle)))
    }
}

impl Segment {
    /// Sectors that are in use, or kept for use.
    fn taken(&self) -> u64 {
        self.used_sectors + self.journal_sectors + self.reserved_sectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::HEAD_SECTORS;

    /// Over slabs of these many sectors behind the head.
    fn segments(segment_sectors: u64, lens: &[u64]) -> Segments {
        let lens: Vec<_> = lens.iter().map(|len| HEAD_SECTORS + len).collect();
        Segments::new(segment_sectors, &lens, 1)
    }

    fn segment(drive: u16, index: u32) -> SegmentNo {
        SegmentNo { drive: DriveNo(drive), index }
    }

    fn room(drive: u16, index: u32, first: u64) -> Allocation {
        let first = SectorNo(HEAD_SECTORS + first);
        Allocation::Room(Room { segment: segment(drive, index), first })
    }

    #[test]
    fn extents_fill_segments_front_to_back_and_drives_in_turn() {
        // The last 3 sectors of drive 1 are too few for a segment.
        let mut segments = segments(10, &[20, 13]);
        let given = [5, 5, 4, 4, 7].map(|sectors| segments.allocate(Log::Small, sectors, 1, false));
        let last = Allocation::Busy;
        assert_eq!(given, [room(0, 0, 0), room(1, 0, 0), room(0, 1, 10), room(0, 1, 14), last]);
        assert_eq!(segments.used_sectors(DriveNo(0)), 13);
        assert_eq!(segments.allocate(Log::Small, 9, 1, false), Allocation::TooLong);
    }

    #[test]
    fn journals_grow_from_the_end_in_the_room_kept_for_them() {
        let mut segments = segments(10, &[10]);
        assert_eq!(segments.allocate(Log::Small, 3, 1, false), room(0, 0, 0));
        assert_eq!(segments.allocate(Log::Small, 2, 2, false), room(0, 0, 3));
        // 5 of extents, 3 kept: there is room for a sector and its record, and not for more.
        assert_eq!(segments.allocate(Log::Small, 2, 1, false), Allocation::Busy);
        let block = |epoch, number, first: u64| BlockRoom {
            epoch,
            log: Log::Small,
            number,
            previous: 0,
            first: SectorNo(HEAD_SECTORS + first),
        };
        // Both in one block, of less than was kept.
        assert_eq!(segments.next_block(segment(0, 0), 2), block(1, 0, 8));
        segments.settle(segment(0, 0), 2, 3);
        assert_eq!(segments.allocate(Log::Small, 2, 1, false), room(0, 0, 5));
        assert_eq!(segments.next_block(segment(0, 0), 1), block(1, 1, 7));
        assert_eq!(segments.used_sectors(DriveNo(0)), 10);
    }

    #[test]
    fn the_oldest_segment_with_nothing_under_way_is_reclaimed() {
        let mut segments = segments(10, &[20]);
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), room(0, 0, 0));
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), room(0, 1, 10));
        assert_eq!(segments.allocate(Log::Small, 1, 1, false), Allocation::Busy);
        segments.next_block(segment(0, 1), 1);
        segments.settle(segment(0, 1), 1, 1);
        assert_eq!(segments.allocate(Log::Small, 1, 1, false), Allocation::Reclaim(segment(0, 1)));
        // The third use of a segment, and so the third epoch.
        let first = SectorNo(HEAD_SECTORS + 19);
        let block = BlockRoom { epoch: 3, log: Log::Small, number: 0, previous: 0, first };
        segments.seal(segment(0, 1));
        assert_eq!(segments.empty(segment(0, 1)), block);
        segments.release(segment(0, 1));
        assert_eq!(segments.allocate(Log::Small, 1, 1, false), room(0, 1, 10));
        assert_eq!(segments.used_sectors(DriveNo(0)), 10);
    }

    #[test]
    fn a_closed_drive_is_passed_over() {
        let mut segments = segments(10, &[10, 10]);
        segments.close(DriveNo(0));
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), room(1, 0, 0));
        segments.settle(segment(1, 0), 1, 0);
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), Allocation::Reclaim(segment(1, 0)));
        segments.close(DriveNo(1));
        assert_eq!(segments.allocate(Log::Small, 1, 1, false), Allocation::NoDrive);
    }

    #[test]
    fn a_log_has_its_own_segments_and_the_small_one_leaves_a_segment_to_keep_things_in() {
        let mut segments = segments(10, &[50]);
        let all_settled = |segments: &mut Segments| {
            (0..5).for_each(|index| segments.settle(segment(0, index), 9, 99));
        };
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), room(0, 0, 0));
        assert_eq!(segments.allocate(Log::Main, 4, 1, true), room(0, 1, 10));
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), room(0, 2, 20));
        assert_eq!(segments.allocate(Log::Main, 8, 1, true), room(0, 3, 30));
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), Allocation::Busy);
        all_settled(&mut segments);
        // The small log has its share, one sealed segment, and so it is its turn.
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), Allocation::Reclaim(segment(0, 0)));
        assert_eq!(segments.log_of(segment(0, 0)), Log::Small);
        assert_eq!(segments.allocate(Log::Main, 8, 1, true), room(0, 4, 40));
        segments.seal(segment(0, 0));
        segments.empty(segment(0, 0));
        segments.release(segment(0, 0));
        all_settled(&mut segments);
        // None of the small log is sealed now.
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), Allocation::Reclaim(segment(0, 1)));
        segments.seal(segment(0, 1));
        segments.empty(segment(0, 1));
        segments.release(segment(0, 1));
        assert_eq!(segments.allocate(Log::Small, 8, 1, false), room(0, 0, 0));
    }

    #[test]
    fn what_was_filled_before_is_filled_on_and_reclaimed_in_its_order() {
        let mut segments = segments(10, &[50]);
        let kept = |index, epoch, used_sectors| Kept {
            segment: segment(0, index),
            epoch,
            log: Log::Small,
            used_sectors,
            journal_sectors: 1,
            blocks: 1,
            sum: 0,
        };
        // The third was emptied, and not used since.
        segments.restore(vec![kept(0, 7, 4), kept(1, 5, 8), kept(2, 8, 0)]);
        segments.distrust(segment(0, 3));
        assert_eq!(segments.allocate(Log::Small, 4, 1, false), room(0, 0, 4));
        assert_eq!(segments.allocate(Log::Small, 7, 1, false), room(0, 2, 20));
        assert_eq!(segments.next_block(segment(0, 2), 1).epoch, 8);
        assert_eq!(segments.allocate(Log::Small, 7, 1, false), Allocation::Reclaim(segment(0, 3)));
        assert_eq!(segments.empty(segment(0, 3)).epoch, 9);
        segments.release(segment(0, 3));
        assert_eq!(segments.allocate(Log::Small, 7, 1, false), room(0, 4, 40));
        assert_eq!(segments.allocate(Log::Small, 7, 1, false), Allocation::Reclaim(segment(0, 1)));
    }
}
