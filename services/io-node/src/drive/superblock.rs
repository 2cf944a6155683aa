//! The superblock: a slab's first sector, which identifies the slab and records its division. Numbers are
//! little-endian, and the rest of the sector is zeros:
//!
//! ```text
//!  0  8 bytes  magic "BIREMESB"
//!  8  u32      version of the format
//! 12  u32      0
//! 16  16 bytes uuid of the slab
//! 32  u64      length of a segment, in sectors
//! 40  u64      length of the slab, in sectors
//! 48  u32      CRC32C of all bytes before
//! ```

use address::{ByteOffset, SECTOR_BYTES};
use ring::{AlignedBuf, SlabFile};
use uuid::Uuid;

use crate::error::NotOurs;

const MAGIC: [u8; 8] = *b"BIREMESB";
const VERSION: u32 = 1;

/// Bytes that the checksum covers.
const CHECKED_BYTES: usize = 48;

/// A slab's identity and division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The slab's identity, chosen anew each time the slab begins empty.
    pub uuid: Uuid,
    /// The length of a segment, in sectors.
    pub segment_sectors: u64,
    /// The length of the slab, in sectors.
    pub sectors: u64,
}

impl Superblock {
    /// Encodes the superblock as a sector.
    pub fn to_sector(self) -> [u8; SECTOR_BYTES] {
        let mut sector = [0; SECTOR_BYTES];
        let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(16, self.uuid.as_bytes());
        put(32, &self.segment_sectors.to_le_bytes());
        put(40, &self.sectors.to_le_bytes());
        let sum = pack::crc32c(&sector[..CHECKED_BYTES]);
        sector[CHECKED_BYTES..CHECKED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    /// Reads an open slab's superblock; `None` if it has no valid one.
    pub fn read_from(slab: &SlabFile) -> Option<Self> {
        let mut head = AlignedBuf::for_sectors(1);
        slab.read_at(ByteOffset(0), &mut head).ok()?;
        Self::from_sector(&head.as_chunks().0[0]).ok()
    }

    /// Decodes what [`to_sector`](Self::to_sector) encoded.
    ///
    /// # Errors
    /// The reason why the sector is not a valid superblock.
    pub fn from_sector(sector: &[u8; SECTOR_BYTES]) -> Result<Self, NotOurs> {
        if sector[..8] != MAGIC {
            return Err(NotOurs::Foreign);
        }
        let mut words = sector[8..].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let version = words.next().unwrap_or(0);
        if version > VERSION {
            return Err(NotOurs::Version { found: version, known: VERSION });
        }
        let sum = words.nth((CHECKED_BYTES - 12) / 4);
        if version == 0 || sum != Some(pack::crc32c(&sector[..CHECKED_BYTES])) {
            return Err(NotOurs::Damaged);
        }
        let [uuid, lengths] =
            [&sector[16..32], &sector[32..48]].map(|at| at.as_chunks::<16>().0[0]);
        let [segment_sectors, sectors] =
            [0, 1].map(|at| u64::from_le_bytes(lengths.as_chunks::<8>().0[at]));
        // A node never writes 0 here. The length of a slab is divided by this number.
        if segment_sectors == 0 {
            return Err(NotOurs::Damaged);
        }
        Ok(Self { uuid: Uuid::from_bytes(uuid), segment_sectors, sectors })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Superblock {
        let uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        Superblock { uuid, segment_sectors: 16_384, sectors: 1 << 20 }
    }

    #[test]
    fn its_bytes_are_those_described() {
        let sector = example().to_sector();
        assert_eq!(&sector[..16], b"BIREMESB\x01\0\0\0\0\0\0\0");
        assert_eq!(sector[16..20], [0, 0x11, 0x22, 0x33]);
        assert_eq!(sector[32..48], [0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0]);
        assert_eq!(sector[48..52], pack::crc32c(&sector[..48]).to_le_bytes());
        assert!(sector[52..].iter().all(|&byte| byte == 0));
        assert_eq!(Superblock::from_sector(&sector), Ok(example()));
    }

    #[test]
    fn invalid_superblocks_are_told_apart() {
        let changed = |at: usize, byte: u8| {
            let mut sector = example().to_sector();
            sector[at] = byte;
            Superblock::from_sector(&sector)
        };
        assert_eq!(changed(0, b'X'), Err(NotOurs::Foreign));
        assert_eq!(changed(8, 2), Err(NotOurs::Version { found: 2, known: 1 }));
        assert_eq!(changed(8, 0), Err(NotOurs::Damaged));
        assert_eq!(Superblock::from_sector(&[0; SECTOR_BYTES]), Err(NotOurs::Foreign));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed(bit in 0..(CHECKED_BYTES + 4) * 8) {
            let mut sector = example().to_sector();
            sector[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Superblock::from_sector(&sector).is_err());
        }

        #[test]
        fn any_lengths_come_back(uuid: u128, segment_sectors in 1u64.., sectors: u64) {
            let superblock = Superblock { uuid: Uuid::from_u128(uuid), segment_sectors, sectors };
            prop_assert_eq!(Superblock::from_sector(&superblock.to_sector()), Ok(superblock));
        }
    }
}
