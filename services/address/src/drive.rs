//! Drive numbers, sector numbers and byte offsets.

/// Bytes in a sector. A sector is the smallest unit that is read from a drive.
pub const SECTOR_BYTES: usize = 4096;

/// A drive of a node: its index in the node's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveNo(pub u16);

/// A sector of one drive, counted from the start of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorNo(pub u64);

/// A byte of one drive, counted from the start of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

impl SectorNo {
    /// Returns the offset of the sector's first byte.
    pub const fn byte_offset(self) -> ByteOffset {
        ByteOffset(self.0 * SECTOR_BYTES as u64)
    }

    /// Returns the sector that lies `sectors` after this one.
    pub const fn plus(self, sectors: u64) -> Self {
        Self(self.0 + sectors)
    }
}

/// Returns the number of whole sectors needed to hold `bytes` bytes.
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
