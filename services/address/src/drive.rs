//! Places on a drive.

/// Bytes in a sector, the unit of a read.
pub const SECTOR_BYTES: usize = 4096;

/// One of a node's drives, in the order of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveNo(pub u16);

/// A sector of one drive, counted from the start of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorNo(pub u64);

/// A byte of one drive, counted from the start of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

impl SectorNo {
    /// Where the sector begins.
    pub const fn byte_offset(self) -> ByteOffset {
        ByteOffset(self.0 * SECTOR_BYTES as u64)
    }

    /// The sector `sectors` further on.
    pub const fn plus(self, sectors: u64) -> Self {
        Self(self.0 + sectors)
    }
}

/// How many whole sectors hold `bytes` bytes.
pub const fn sectors_for(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_round_up() {
        assert_eq!([0, 1, 4096, 4097].map(sectors_for), [0, 1, 1, 2]);
        assert_eq!(SectorNo(3).plus(2).byte_offset(), ByteOffset(5 * 4096));
    }
}
