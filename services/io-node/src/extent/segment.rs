//! The division of a slab: a head, and then segments of equal length.

use address::{DriveNo, SectorNo};

/// Sectors before the first segment: 1 MiB, in which every filesystem and partition table has its signature.
pub const HEAD_SECTORS: u64 = 256;

/// One segment of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentNo {
    pub drive: DriveNo,
    /// The segment's number on the drive, counted from 0.
    pub index: u32,
}

/// The number of segments of a slab of `sectors`.
pub fn segments(sectors: u64, segment_sectors: u64) -> u32 {
    u32::try_from(sectors.saturating_sub(HEAD_SECTORS) / segment_sectors).unwrap_or(u32::MAX)
}

/// The first sector of a segment.
pub fn segment_start(index: u32, segment_sectors: u64) -> SectorNo {
    SectorNo(HEAD_SECTORS + u64::from(index) * segment_sectors)
}
