//! Coalescing: combines waiting pieces into physical reads.
//!
//! Pure. Whichever requests the pieces belong to, pieces that share a sector share its read, and pieces in neighbouring
//! sectors become one read, unless that read would be longer than a slot. No piece is delayed in the hope that later ones
//! join it. Unrequested sectors are never read. Reading across a gap would
//! save a read, which would help, because a drive that reads 4 KiB at a time is limited by IOPS and not by bandwidth.
//! But the gap's sectors would occupy space in a slot.

use std::ops::Range;

use address::{DriveNo, SectorNo};

/// The sectors that a piece needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want<P> {
    pub drive: DriveNo,
    /// The first sector.
    pub first: SectorNo,
    /// The number of sectors, at most the `sectors_max` of [`plan_reads`].
    pub sectors: u32,
    pub piece: P,
}

/// One read of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRead {
    pub drive: DriveNo,
    /// The first sector.
    pub first: SectorNo,
    /// The number of sectors.
    pub sectors: u32,
    /// The wants that the read serves, as a range of the sorted list.
    pub wants: Range<usize>,
    /// The number of these wants that did not extend the read, because all of their sectors were read for others
    /// anyway.
    pub duplicates: u32,
}

/// Sorts `wants` by drive and sector, and appends the reads that serve them to `reads`, none longer than
/// `sectors_max` sectors.
pub fn plan_reads<P>(wants: &mut [Want<P>], sectors_max: u32, reads: &mut Vec<PlannedRead>) {
    wants.sort_unstable_by_key(|w| (w.drive, w.first));
    let start = reads.len();
    for (at, want) in wants.iter().enumerate() {
        if let Some(last) = reads[start..].last_mut()
            && let Some(sectors) = last.sectors_with(want)
            && sectors <= sectors_max
        {
            last.duplicates += u32::from(last.sectors == sectors);
            last.sectors = sectors;
            last.wants.end = at + 1;
            continue;
        }
        reads.push(PlannedRead {
            drive: want.drive,
            first: want.first,
            sectors: want.sectors,
            wants: at..at + 1,
            duplicates: 0,
        });
    }
}

impl PlannedRead {
    /// Returns the length in sectors that this read would have with `want`, or `None` if there is a gap between them or
    /// they are on different drives. On the same drive, `want` must not begin before the read.
    fn sectors_with<P>(&self, want: &Want<P>) -> Option<u32> {
        let offset = want.first.0 - self.first.0.min(want.first.0);
        if want.drive != self.drive || offset > u64::from(self.sectors) {
            return None;
        }
        // `offset` is at most `self.sectors`, so it fits into u32.
        Some(self.sectors.max(offset as u32 + want.sectors))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn want(drive: u16, first: u64, sectors: u32) -> Want<()> {
        Want { drive: DriveNo(drive), first: SectorNo(first), sectors, piece: () }
    }

    fn reads(wants: &[(u16, u64, u32)], max: u32) -> Vec<(u16, u64, u32, usize)> {
        let mut wants: Vec<_> = wants.iter().map(|&(d, f, s)| want(d, f, s)).collect();
        let mut reads = Vec::new();
        plan_reads(&mut wants, max, &mut reads);
        reads.into_iter().map(|r| (r.drive.0, r.first.0, r.sectors, r.wants.len())).collect()
    }

    #[test]
    fn one_sector_is_read_once() {
        assert_eq!(reads(&[(0, 7, 1), (0, 7, 1), (0, 7, 1)], 8), [(0, 7, 1, 3)]);
    }

    #[test]
    fn neighbours_are_merged_and_gaps_are_not() {
        assert_eq!(
            reads(&[(0, 9, 1), (0, 4, 1), (0, 5, 2), (0, 12, 1), (0, 8, 1)], 8),
            [(0, 4, 3, 2), (0, 8, 2, 2), (0, 12, 1, 1)]
        );
    }

    #[test]
    fn overlapping_wants_share_what_they_share() {
        assert_eq!(reads(&[(0, 4, 3), (0, 5, 4), (0, 5, 1)], 8), [(0, 4, 5, 3)]);
    }

    #[test]
    fn a_want_without_sectors_of_its_own_is_a_duplicate() {
        let duplicates = |wants: &[(u16, u64, u32)]| {
            let mut wants: Vec<_> = wants.iter().map(|&(d, f, s)| want(d, f, s)).collect();
            let mut reads = Vec::new();
            plan_reads(&mut wants, 8, &mut reads);
            reads.into_iter().map(|read| (read.wants.len(), read.duplicates)).collect::<Vec<_>>()
        };
        assert_eq!(duplicates(&[(0, 7, 1), (0, 7, 1), (0, 7, 1)]), [(3, 2)]);
        assert_eq!(duplicates(&[(0, 7, 1), (0, 8, 1), (0, 9, 1)]), [(3, 0)]);
        // The second piece lies within the first; only half of the third does.
        assert_eq!(duplicates(&[(0, 4, 3), (0, 5, 1), (0, 6, 2)]), [(3, 1)]);
        assert_eq!(duplicates(&[(0, 4, 1), (0, 6, 1), (0, 6, 1)]), [(1, 0), (2, 1)]);
    }

    #[test]
    fn reads_of_different_drives_are_not_merged() {
        assert_eq!(reads(&[(1, 5, 1), (0, 4, 1), (0, 5, 1)], 8), [(0, 4, 2, 2), (1, 5, 1, 1)]);
    }

    #[test]
    fn a_read_is_no_longer_than_a_slot() {
        assert_eq!(
            reads(&[(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 1)], 3),
            [(0, 0, 3, 3), (0, 3, 2, 2)]
        );
    }

    proptest! {
        #[test]
        fn every_want_lies_in_its_read_and_every_sector_read_is_wanted(
            wants in prop::collection::vec((0..2u16, 0..60u64, 1..4u32), 0..80),
            max in 4..12u32,
        ) {
            let mut wants: Vec<_> = wants.into_iter().map(|(d, f, s)| want(d, f, s)).collect();
            let mut reads = Vec::new();
            plan_reads(&mut wants, max, &mut reads);
            let mut next = 0;
            for read in &reads {
                prop_assert_eq!(read.wants.start, next);
                next = read.wants.end;
                prop_assert!(read.sectors <= max);
                let served = &wants[read.wants.clone()];
                for sector in read.first.0..read.first.0 + u64::from(read.sectors) {
                    let covers = |w: &Want<()>| {
                        (w.first.0..w.first.0 + u64::from(w.sectors)).contains(&sector)
                    };
                    prop_assert!(served.iter().any(covers));
                }
                for w in served {
                    prop_assert_eq!(w.drive, read.drive);
                    prop_assert!(w.first.0 >= read.first.0);
                    let end = w.first.0 + u64::from(w.sectors);
                    prop_assert!(end <= read.first.0 + u64::from(read.sectors));
                }
            }
            prop_assert_eq!(next, wants.len());
        }
    }
}
