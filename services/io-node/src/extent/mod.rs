//! Extents: where each is on the drives, and the directory that finds them by name.

mod by_key;
mod directory;
mod segment;

use address::{DriveNo, ExtentKey, SectorNo};
use pack::ExtentIndex;

pub use by_key::{ByKey, KeyHasher};
#[cfg(test)]
pub use directory::tests::extent;
pub use directory::{Directory, ExtentNo, HEAT_MAX, HEATS, REPLICA_ENTRY_BYTES};
pub use segment::{HEAD_SECTORS, SegmentNo, segment_start, segments};

/// A chunk of a pack, on a drive.
#[derive(Debug)]
pub struct Extent {
    /// The extent's name.
    pub key: ExtentKey,
    /// Where each row starts, and each sector's checksum.
    pub index: ExtentIndex,
    /// The extent's drive.
    pub drive: DriveNo,
    /// The extent's first sector on the drive.
    pub first: SectorNo,
    /// The extent's segment.
    pub segment: SegmentNo,
}
