//! A slab seen from outside, while no node serves it: what its journals say, and whether the drive still
//! has it.

use std::path::Path;

use address::{ExtentKey, SECTOR_BYTES};
use ring::{AlignedBuf, Direct, OpenOptions, SlabFile};

use super::journal::{Entry, Journal};
use super::recover::{Found, in_parallel, recover};
use super::{Superblock, owner, segment_start, segments};
use crate::error::NodeError;

/// Sectors that [`Inspection::verify`] reads at a time.
const READ_SECTORS: u32 = 256;

/// A slab that was opened to be looked at; nothing of it is changed.
pub struct Inspection {
    slab: SlabFile,
    superblock: Superblock,
    /// Of segments that have a journal, in order.
    segments: Vec<SegmentState>,
}

/// One segment that was used.
#[derive(Debug)]
pub struct SegmentState {
    /// Which.
    pub index: u32,
    /// Its journal; why it can't be read.
    journal: std::io::Result<Journal>,
}

/// An extent that the drive doesn't have as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadExtent {
    /// Its segment.
    pub segment: u32,
    /// Its name.
    pub key: ExtentKey,
    /// How many of its sectors are wrong or can't be read.
    pub bad_sectors: u32,
    /// How many it has.
    pub sectors: u32,
}

impl Inspection {
    /// Opens a slab to be read, and reads its journals.
    ///
    /// # Errors
    /// A slab that can't be opened, or that a node has open; [`NodeError::NoSlab`].
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let options = OpenOptions { size: None, direct: Direct::Prefer, read_only: true };
        let slab = SlabFile::open(path, options)?;
        let no_slab = |why: &str| NodeError::NoSlab { path: path.into(), why: why.into() };
        let superblock = owner(path, false).map_err(|error| match error {
            NodeError::NotOurs { why, .. } => no_slab(&why.to_string()),
            other => other,
        })?;
        let superblock = superblock.ok_or_else(|| no_slab("its beginning is empty"))?;
        // A file that was cut off has no more segments than fit it.
        let sectors = superblock.sectors.min(slab.len() / SECTOR_BYTES as u64);
        let superblock = Superblock { sectors, ..superblock };
        let mut segments: Vec<_> = recover(&slab, &superblock)
            .into_iter()
            .map(|Found { segment: index, journal }| SegmentState { index, journal })
            .collect();
        segments.sort_by_key(|segment| segment.index);
        Ok(Self { slab, superblock, segments })
    }

    /// Which slab it is.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.slab.len()
    }

    /// How many segments it has, used or not.
    pub fn segments_total(&self) -> u32 {
        segments(self.superblock.sectors, self.superblock.segment_sectors)
    }

    /// Those that were used, by number.
    pub fn segments(&self) -> &[SegmentState] {
        &self.segments
    }

    /// Reads every extent and checks each of its sectors, several at a time. `progress` is told of bytes.
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

    /// Where a read failed, which sectors can't be read or are wrong.
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

impl SegmentState {
    /// Why its journal can't be read.
    pub fn error(&self) -> Option<String> {
        self.journal.as_ref().err().map(ToString::to_string)
    }

    /// Its use; a later one is higher.
    pub fn epoch(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.epoch)
    }

    /// Whether its journal ends in a block that is not whole: torn when the node ended, or damaged.
    pub fn is_cut_short(&self) -> bool {
        self.journal.as_ref().is_ok_and(|journal| journal.is_cut_short)
    }

    /// Its extents.
    pub fn extents(&self) -> usize {
        self.entries().len()
    }

    /// Bytes of its extents.
    pub fn extent_bytes(&self) -> u64 {
        self.entries().iter().map(Entry::bytes).sum()
    }

    /// Bytes of its journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.sectors * SECTOR_BYTES as u64)
    }

    fn entries(&self) -> &[Entry] {
        self.journal.as_ref().map_or(&[], |journal| &journal.entries)
    }
}
