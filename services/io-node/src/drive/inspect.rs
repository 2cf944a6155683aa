//! Inspects a slab while no node uses it: reads its journals, and checks that the bytes of the extents are intact.

use std::collections::HashSet;
use std::path::Path;

use address::{ExtentKey, SECTOR_BYTES};
use ring::{AlignedBuf, Direct, OpenOptions, SlabError, SlabFile};

use super::journal::{Entry, Journal};
use super::recover::{FoundJournal, in_parallel, recover};
use super::slab::owner;
use super::superblock::Superblock;
use crate::error::NodeError;
use crate::extent::{segment_start, segments};

/// Sectors per read of [`Inspection::verify`]. They are 1 MiB, so all readers of a drive (`READERS`) take 8 MiB of
/// memory.
const READ_SECTORS: u32 = 256;

/// A slab that is open for reading only.
pub struct Inspection {
    slab: SlabFile,
    superblock: Superblock,
    /// Segments that have a journal, in order.
    segments: Vec<SegmentState>,
}

/// A segment that has a journal.
#[derive(Debug)]
pub struct SegmentState {
    /// The segment's number.
    pub index: u32,
    /// Its journal, or why it can't be read.
    journal: std::io::Result<Journal>,
    /// The number of extents in the journal that were written again later, in this segment or another one.
    superseded: usize,
}

/// An extent whose bytes can't be read, or differ from the bytes that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadExtent {
    /// Its segment.
    pub segment: u32,
    /// Its name.
    pub key: ExtentKey,
    /// The number of its sectors that are wrong or can't be read.
    pub bad_sectors: u32,
    /// The number of its sectors.
    pub sectors: u32,
}

impl Inspection {
    /// Opens a slab and reads its journals.
    ///
    /// # Errors
    /// The slab can't be opened, a node has it open, or there is no slab ([`NodeError::NoSlab`]).
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let options = OpenOptions { size: None, direct: Direct::Prefer, read_only: true };
        let no_slab = |why: &str| NodeError::NoSlab { path: path.into(), why: why.into() };
        let slab = SlabFile::open(path, options).map_err(|error| match error {
            SlabError::TooSmall { actual_bytes: 0, .. } => no_slab("it is empty"),
            SlabError::TooSmall { .. } => no_slab("it is too small"),
            other => other.into(),
        })?;
        let superblock = owner(path, false).map_err(|error| match error {
            NodeError::NotOurs { why, .. } => no_slab(&why.to_string()),
            other => other,
        })?;
        let superblock = superblock.ok_or_else(|| no_slab("its beginning is empty"))?;
        // A file that was cut off has only the segments that fit in it.
        let sectors = superblock.sectors.min(slab.len() / SECTOR_BYTES as u64);
        let superblock = Superblock { sectors, ..superblock };
        let mut segments: Vec<_> = recover(&slab, &superblock)
            .into_iter()
            .map(|FoundJournal { segment: index, journal }| SegmentState {
                index,
                journal,
                superseded: 0,
            })
            .collect();
        supersede(&mut segments);
        segments.sort_by_key(|segment| segment.index);
        Ok(Self { slab, superblock, segments })
    }

    /// The slab's superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The slab's length in bytes.
    pub fn bytes(&self) -> u64 {
        self.slab.len()
    }

    /// The number of segments, used or not.
    pub fn segments_total(&self) -> u32 {
        segments(self.superblock.sectors, self.superblock.segment_sectors)
    }

    /// The segments that have a journal, by number.
    pub fn segments(&self) -> &[SegmentState] {
        &self.segments
    }

    /// Reads every extent and checks each of its sectors, several segments at a time. `progress` is called after each
    /// extent, with the extent's length in bytes.
    pub fn verify(&self, progress: impl Fn(u64) + Sync) -> Vec<BadExtent> {
        let check = |number: u32| {
            let segment = &self.segments[number as usize];
            let entries = segment.entries().iter().map(|entry| {
                let bad_sectors = self.bad_sectors(segment.index, entry);
                progress(entry.bytes());
                let sectors = entry.index.sectors();
                BadExtent { segment: segment.index, key: entry.key, bad_sectors, sectors }
            });
            entries.filter(|extent| extent.bad_sectors > 0).collect()
        };
        let mut bad = in_parallel(self.segments.len() as u32, || check);
        bad.sort_by_key(|extent| (extent.segment, extent.key));
        bad
    }

    fn bad_sectors(&self, segment: u32, entry: &Entry) -> u32 {
        let start =
            segment_start(segment, self.superblock.segment_sectors).plus(entry.first.into());
        let mut bad = 0;
        for from in (0..entry.index.sectors()).step_by(READ_SECTORS as usize) {
            let count = READ_SECTORS.min(entry.index.sectors() - from);
            let mut buf = AlignedBuf::for_sectors(count as usize);
            if self.slab.read_at(start.plus(from.into()).byte_offset(), &mut buf).is_err() {
                bad += self.bad_one_by_one(start.plus(from.into()), entry, from..from + count);
                continue;
            }
            let sectors = buf.chunks(SECTOR_BYTES).zip(from..);
            bad += sectors
                .filter(|(bytes, sector)| entry.index.check(*sector, bytes).is_err())
                .count() as u32;
        }
        bad
    }

    /// Counts the sectors that can't be read or are wrong, one by one, after a larger read failed.
    fn bad_one_by_one(
        &self,
        start: address::SectorNo,
        entry: &Entry,
        sectors: std::ops::Range<u32>,
    ) -> u32 {
        let mut buf = AlignedBuf::for_sectors(1);
        let is_bad = |&(place, sector): &(u64, u32)| {
            self.slab.read_at(start.plus(place).byte_offset(), &mut buf).is_err()
                || entry.index.check(sector, &buf).is_err()
        };
        (0..).zip(sectors).filter(is_bad).count() as u32
    }
}

/// Keeps only the last entry of each extent, which is the one that a starting node would use. An extent that was found
/// damaged and filled again has two entries, in one journal or in two. An extent that was moved out of a segment is in
/// two journals until that segment is emptied.
fn supersede(segments: &mut [SegmentState]) {
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.epoch()));
    let mut seen = HashSet::new();
    for segment in segments {
        let Ok(journal) = &mut segment.journal else { continue };
        let before = journal.entries.len();
        // If a journal has several entries of an extent, the last one counts.
        journal.entries.reverse();
        journal.entries.retain(|entry| seen.insert(entry.key));
        journal.entries.reverse();
        segment.superseded = before - journal.entries.len();
    }
}

impl SegmentState {
    /// The reason why the segment's journal can't be read; `None` if it was read.
    pub fn error(&self) -> Option<String> {
        self.journal.as_ref().err().map(ToString::to_string)
    }

    /// The epoch of the segment's current use, or 0 if the journal can't be read. A later use has a higher epoch.
    pub fn epoch(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.epoch)
    }

    /// Whether the journal is followed by a block that was torn when the node ended, or damaged since. A block whose
    /// trailer is lost is not noticed.
    pub fn is_cut_short(&self) -> bool {
        self.journal.as_ref().is_ok_and(|journal| journal.is_cut_short)
    }

    /// The number of extents, without those that were rewritten since.
    pub fn extents(&self) -> usize {
        self.entries().len()
    }

    /// The number of extents in the journal that were rewritten since.
    pub fn superseded(&self) -> usize {
        self.superseded
    }

    /// Bytes of the extents.
    pub fn extent_bytes(&self) -> u64 {
        self.entries().iter().map(Entry::bytes).sum()
    }

    /// Bytes of the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.sectors * SECTOR_BYTES as u64)
    }

    fn entries(&self) -> &[Entry] {
        self.journal.as_ref().map_or(&[], |journal| &journal.entries)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use address::PackKey;
    use uuid::Uuid;

    use super::*;
    use crate::drive::journal::{BlockId, Record, sum_of, to_block};
    use crate::drive::trial_extent;

    const SEGMENT_SECTORS: u64 = 16;

    #[test]
    fn an_extent_in_two_journals_counts_where_it_was_written_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slab");
        let file = std::fs::File::create_new(&path).unwrap();
        let sectors = segment_start(3, SEGMENT_SECTORS).0;
        file.set_len(sectors * SECTOR_BYTES as u64).unwrap();
        let uuid = Uuid::from_u128(9);
        let superblock = Superblock { uuid, segment_sectors: SEGMENT_SECTORS, sectors };
        file.write_all_at(&superblock.to_sector(), 0).unwrap();
        let extent = trial_extent(2).unwrap();
        let key = |chunk| ExtentKey { pack: PackKey(5), chunk };
        // The first two blocks belong to segment 0, and the second one has chunk 0 again. Segment 1, which was filled
        // before, has an old chunk 1.
        let blocks = [
            (0, 8, 0, vec![(0, 0), (1, 2)]),
            (0, 8, 1, vec![(0, 4)]),
            (1, 7, 0, vec![(1, 0), (2, 2)]),
        ];
        let mut end =
            [0, 1].map(|index| segment_start(index, SEGMENT_SECTORS).plus(SEGMENT_SECTORS));
        let mut previous = [0; 2];
        for (segment, epoch, number, placed) in blocks {
            let at = segment as usize;
            let record = |&(chunk, first): &(u32, u32)| Record {
                key: key(chunk),
                first,
                index: &extent.index,
            };
            let records: Vec<_> = placed.iter().map(record).collect();
            let id = BlockId { uuid, segment, epoch, number, log: 0, previous: previous[at] };
            let block = to_block(&id, &records);
            previous[at] = sum_of(&block);
            end[at] = address::SectorNo(end[at].0 - (block.len() / SECTOR_BYTES) as u64);
            file.write_all_at(&block, end[at].byte_offset().0).unwrap();
        }
        // Only the extents that count are on the drive.
        for (segment, first) in [(0, 2), (0, 4), (1, 2)] {
            let start = segment_start(segment, SEGMENT_SECTORS).plus(first);
            file.write_all_at(&extent.bytes, start.byte_offset().0).unwrap();
        }
        drop(file);
        let slab = Inspection::open(&path).unwrap();
        let counts = slab.segments().iter().map(|it| (it.index, it.extents(), it.superseded()));
        assert_eq!(counts.collect::<Vec<_>>(), [(0, 2, 1), (1, 1, 1)]);
        assert_eq!(slab.segments()[0].extent_bytes(), 4 * SECTOR_BYTES as u64);
        assert_eq!(slab.verify(|_| {}), []);
    }
}
