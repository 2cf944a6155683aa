//! Where extents go on a drive: a log of segments, reclaimed whole.
//!
//! ```text
//! slab   | head | segment 0 | segment 1 | segment 2 | ... each `segment_sectors` long
//! segment| extent | extent |    extent    | unused tail   filled front to back
//! ```
//!
//! Pure bookkeeping, one owner. A segment is free, open (one a drive, being filled) or sealed.
//! When a drive has no free segment its oldest sealed one without writes under way is reclaimed: the
//! caller first makes every core forget its extents, then gives it back with [`Segments::release`].

use std::collections::VecDeque;

use address::{DriveNo, SectorNo};

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

/// What came of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Room, with a write counted as under way in its segment until [`Segments::written`].
    Room(Room),
    /// There is none until this segment, the oldest, is emptied and released.
    Reclaim(SegmentNo),
    /// There is none, and every segment has writes under way: try again after one has ended.
    Busy,
    /// The extent is longer than a segment.
    TooLong,
}

/// The segments of all drives.
#[derive(Debug)]
pub struct Segments {
    head_sectors: u64,
    segment_sectors: u64,
    drives: Vec<DriveSegments>,
    next_drive: usize,
}

#[derive(Debug)]
struct DriveSegments {
    free: VecDeque<u32>,
    open: Option<u32>,
    /// Oldest first.
    sealed: VecDeque<u32>,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    used_sectors: u64,
    writes: u32,
}

impl Segments {
    /// All segments free. `drive_sectors` has each drive's slab length; the first `head_sectors` are
    /// left alone, and a tail shorter than a segment is unused.
    pub fn new(head_sectors: u64, segment_sectors: u64, drive_sectors: &[u64]) -> Self {
        let drives = drive_sectors
            .iter()
            .map(|&sectors| {
                let count = sectors.saturating_sub(head_sectors) / segment_sectors;
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                DriveSegments {
                    free: (0..count).collect(),
                    open: None,
                    sealed: VecDeque::new(),
                    segments: vec![Segment::default(); count as usize],
                }
            })
            .collect();
        Self { head_sectors, segment_sectors, drives, next_drive: 0 }
    }

    /// Room for an extent of `sectors`, on the drives in turn; a drive that would have to reclaim
    /// is passed over while another has room.
    pub fn allocate(&mut self, sectors: u64) -> Allocation {
        if sectors > self.segment_sectors {
            return Allocation::TooLong;
        }
        let count = self.drives.len();
        for turn in 0..count {
            let at = (self.next_drive + turn) % count;
            if let Some((index, first)) = self.drives[at].append(sectors, self.segment_sectors) {
                self.next_drive = (at + 1) % count;
                let drive = DriveNo(at as u16);
                let start = self.head_sectors + u64::from(index) * self.segment_sectors;
                let first = SectorNo(start + first);
                return Allocation::Room(Room { segment: SegmentNo { drive, index }, first });
            }
        }
        for turn in 0..count {
            let at = (self.next_drive + turn) % count;
            if let Some(index) = self.drives[at].oldest_idle() {
                return Allocation::Reclaim(SegmentNo { drive: DriveNo(at as u16), index });
            }
        }
        Allocation::Busy
    }

    /// A write into `segment` has ended, well or not.
    pub fn written(&mut self, segment: SegmentNo) {
        let segment = &mut self.drive(segment).segments[segment.index as usize];
        segment.writes = segment.writes.saturating_sub(1);
    }

    /// Takes an emptied segment back, after no core knows an extent in it any more.
    pub fn release(&mut self, segment: SegmentNo) {
        let drive = self.drive(segment);
        drive.sealed.retain(|&index| index != segment.index);
        drive.segments[segment.index as usize] = Segment::default();
        drive.free.push_back(segment.index);
    }

    /// Bytes of `drive` that extents were given, reclaimed segments not counted.
    pub fn used_sectors(&self, drive: DriveNo) -> u64 {
        self.drives[usize::from(drive.0)].segments.iter().map(|s| s.used_sectors).sum()
    }

    fn drive(&mut self, segment: SegmentNo) -> &mut DriveSegments {
        &mut self.drives[usize::from(segment.drive.0)]
    }
}

impl DriveSegments {
    /// Room in the open segment, or in a free one that becomes it: the segment and the sector in it.
    fn append(&mut self, sectors: u64, segment_sectors: u64) -> Option<(u32, u64)> {
        let index = match self.open {
            Some(open)
                if self.segments[open as usize].used_sectors + sectors <= segment_sectors =>
            {
                open
            }
            full => {
                let next = self.free.pop_front()?;
                self.sealed.extend(full);
                self.open = Some(next);
                next
            }
        };
        let segment = &mut self.segments[index as usize];
        let first = segment.used_sectors;
        segment.used_sectors += sectors;
        segment.writes += 1;
        Some((index, first))
    }

    /// The oldest segment that nothing is being written to; the open one if it is the only one.
    fn oldest_idle(&mut self) -> Option<u32> {
        let idle = |&index: &u32| self.segments[index as usize].writes == 0;
        if let Some(index) = self.sealed.iter().copied().find(idle) {
            return Some(index);
        }
        let open = self.open.filter(idle)?;
        self.open = None;
        self.sealed.push_back(open);
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(drive: u16, index: u32, first: u64) -> Allocation {
        let segment = SegmentNo { drive: DriveNo(drive), index };
        Allocation::Room(Room { segment, first: SectorNo(first) })
    }

    #[test]
    fn extents_fill_segments_front_to_back_on_the_drives_in_turn() {
        let mut segments = Segments::new(3, 10, &[28, 23]);
        let given: Vec<_> = [6, 6, 4, 5, 10].map(|s| segments.allocate(s)).into();
        let expected =
            [room(0, 0, 3), room(1, 0, 3), room(0, 0, 9), room(1, 1, 13), room(0, 1, 13)];
        assert_eq!(given, expected);
        assert_eq!(segments.used_sectors(DriveNo(0)), 20);
        assert_eq!(segments.allocate(11), Allocation::TooLong);
    }

    #[test]
    fn the_oldest_segment_without_writes_is_reclaimed() {
        let mut segments = Segments::new(0, 10, &[20]);
        assert_eq!(segments.allocate(10), room(0, 0, 0));
        assert_eq!(segments.allocate(10), room(0, 1, 10));
        assert_eq!(segments.allocate(1), Allocation::Busy);
        let second = SegmentNo { drive: DriveNo(0), index: 1 };
        segments.written(second);
        assert_eq!(segments.allocate(1), Allocation::Reclaim(second));
        segments.release(second);
        assert_eq!(segments.allocate(1), room(0, 1, 10));
        assert_eq!(segments.used_sectors(DriveNo(0)), 11);
    }
}
