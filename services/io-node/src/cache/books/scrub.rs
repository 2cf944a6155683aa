//! The scrubber's schedule: every extent is read in turn, at a limited rate, in one pass after another.

use std::time::Duration;

use address::DriveNo;
use tokio::time::Instant;

use super::pace::Pace;
use crate::extent::SegmentNo;

/// The minimum time between the beginnings of two passes, so that a small cache isn't read all the time.
const PASS_MIN: Duration = Duration::from_secs(3600);

/// The state of the current pass.
#[derive(Debug)]
pub struct Scrub {
    is_on: bool,
    pace: Pace,
    began: Instant,
    /// The segments that this pass has not finished, in reverse order: the current one is the last.
    segments: Vec<SegmentNo>,
    /// The index of the next extent in the current segment.
    extent: usize,
    /// The drive whose extent is being read.
    reading: Option<DriveNo>,
}

impl Scrub {
    /// Creates a scrubber that reads `bytes_per_s` bytes per second; 0 turns it off.
    pub fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            is_on: bytes_per_s > 0,
            pace: Pace::new(bytes_per_s, now),
            began: now,
            segments: Vec::new(),
            extent: 0,
            reading: None,
        }
    }

    /// Begins a pass over these segments.
    pub fn begin(&mut self, segments: Vec<SegmentNo>, now: Instant) {
        self.begin_at(0, segments, now);
    }

    /// Begins the first pass after a start, at a segment that `place` chooses. A pass may take weeks. If each start began
    /// one at the first drive, a node that restarts more often would never read the last one.
    pub fn begin_at(&mut self, place: u64, mut segments: Vec<SegmentNo>, now: Instant) {
        segments.sort_unstable_by_key(|segment| (segment.drive, segment.index));
        let first = place % segments.len().max(1) as u64;
        segments.rotate_left(first as usize);
        segments.reverse();
        (self.segments, self.extent, self.began) = (segments, 0, now);
    }

    /// The time at which the next extent or pass is due; `None` if the scrubber is off or an extent is being read.
    pub fn wait(&self) -> Option<Instant> {
        let next = match self.segments.is_empty() {
            true => self.began + PASS_MIN,
            false => self.pace.wait(self.began).unwrap_or(self.began),
        };
        (self.is_on && self.reading.is_none()).then_some(next)
    }

    /// The extent to read now, as a segment and an index; `len` returns how many extents a segment has. `None` if the
    /// pass is over, the rate does not allow a read yet, an extent is being read, or the scrubber is off.
    pub fn next(
        &mut self,
        now: Instant,
        len: impl Fn(SegmentNo) -> usize,
    ) -> Option<(SegmentNo, usize)> {
        if !self.is_on || self.reading.is_some() || self.pace.wait(now).is_some() {
            return None;
        }
        while let Some(&segment) = self.segments.last() {
            let at = self.extent;
            if at < len(segment) {
                self.extent += 1;
                return Some((segment, at));
            }
            self.segments.pop();
            self.extent = 0;
        }
        None
    }

    /// Records that an extent was removed from a segment's extents, so that those behind it have moved up by one.
    pub fn removed(&mut self, segment: SegmentNo, at: usize) {
        if self.segments.last() == Some(&segment) && at < self.extent {
            self.extent -= 1;
        }
    }

    /// Whether a new pass is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_on && self.segments.is_empty() && now >= self.began + PASS_MIN
    }

    /// Records that an extent of `bytes` bytes is being read from a drive.
    pub fn reading(&mut self, drive: DriveNo, bytes: u64, now: Instant) {
        self.reading = Some(drive);
        self.pace.spend(bytes, now);
    }

    /// Records that an extent was read from a drive, or that a read from this drive is no longer waited for. If the
    /// extent that is being read is on another drive, this changes nothing.
    pub fn read(&mut self, drive: DriveNo) {
        self.reading.take_if(|reading| *reading == drive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pass_begins_anywhere_and_reads_every_segment() {
        let now = Instant::now();
        let segment = |drive, index| SegmentNo { drive: DriveNo(drive), index };
        let all = [segment(0, 0), segment(0, 1), segment(1, 0)];
        for (place, order) in [(0, [0, 1, 2]), (1, [1, 2, 0]), (5, [2, 0, 1])] {
            let mut scrub = Scrub::new(1000, now);
            scrub.begin_at(place, all.to_vec(), now);
            let read = order.map(|at| all[at]);
            assert!(read.into_iter().all(|it| scrub.next(now, |_| 1) == Some((it, 0))), "{place}");
            assert_eq!(scrub.next(now, |_| 1), None);
        }
        Scrub::new(1000, now).begin_at(7, Vec::new(), now);
    }

    #[test]
    fn every_extent_comes_once_a_pass_and_one_at_a_time() {
        let start = Instant::now();
        let segment = |index| SegmentNo { drive: DriveNo(0), index };
        let len = |segment: SegmentNo| [2, 0, 1][segment.index as usize];
        let mut scrub = Scrub::new(1000, start);
        scrub.begin(vec![segment(2), segment(0), segment(1)], start);
        let mut now = start;
        for expected in [(segment(0), 0), (segment(0), 1), (segment(2), 0)] {
            assert_eq!(scrub.wait(), Some(now));
            assert_eq!(scrub.next(now, len), Some(expected));
            scrub.reading(DriveNo(0), 500, now);
            // Another drive was retired, or its late answer arrives.
            scrub.read(DriveNo(1));
            assert_eq!((scrub.wait(), scrub.next(now, len)), (None, None));
            scrub.read(DriveNo(0));
            now += Duration::from_millis(500);
        }
        assert_eq!(scrub.next(now, len), None);
        assert_eq!(scrub.wait(), Some(start + PASS_MIN));
        assert!(!scrub.is_due(now) && scrub.is_due(start + PASS_MIN));
        assert_eq!(Scrub::new(0, start).wait(), None);
    }

    #[test]
    fn no_extent_is_skipped_when_others_are_removed() {
        let start = Instant::now();
        let segment = |index| SegmentNo { drive: DriveNo(0), index };
        let mut scrub = Scrub::new(1000, start);
        scrub.begin(vec![segment(0), segment(1)], start);
        assert_eq!(scrub.next(start, |_| 5), Some((segment(0), 0)));
        assert_eq!(scrub.next(start, |_| 5), Some((segment(0), 1)));
        scrub.removed(segment(0), 0);
        assert_eq!(scrub.next(start, |_| 4), Some((segment(0), 1)));
        scrub.removed(segment(0), 2);
        scrub.removed(segment(1), 0);
        assert_eq!(scrub.next(start, |_| 3), Some((segment(0), 2)));
    }
}
