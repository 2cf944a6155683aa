//! Names of extents.

use std::fmt;

/// Which table an extent is of, whatever its version: a 32-bit hash of the table's URI. Two tables may have the
/// same; then their bytes are counted together, and nothing else goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableTag(pub u32);

impl fmt::Debug for TableTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Names one pack of one fragment:
///
/// ```text
/// bits 96..128  the table's tag
/// bits  0..96   BLAKE3 of the table's URI, the fragment's id, its chunk size, and the data file that holds
///               each of the pack's columns
/// ```
///
/// Data files are immutable and never share a name, so what is stored under a key is never stale: another
/// version of the table either shares the files, and with them the extents, or has other keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackKey(pub u128);

const HASH_BITS: u32 = 96;

impl PackKey {
    /// A pack of the table with this tag, by the lower 96 bits of a hash of what it is made of.
    pub fn new(table: TableTag, hash: u128) -> Self {
        Self(u128::from(table.0) << HASH_BITS | hash & ((1 << HASH_BITS) - 1))
    }

    /// The table that it is of: found out without the table, as after a restart.
    pub fn table(self) -> TableTag {
        TableTag((self.0 >> HASH_BITS) as u32)
    }
}

impl fmt::Debug for PackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Names one extent: a chunk of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentKey {
    /// The pack, with its table and fragment.
    pub pack: PackKey,
    /// Which chunk of the fragment, from 0.
    pub chunk: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_says_which_table_it_is_of() {
        let key = PackKey::new(TableTag(0xfeed_beef), u128::MAX - 1);
        assert_eq!(key.table(), TableTag(0xfeed_beef));
        assert_eq!(key.0 << 32, (u128::MAX - 1) << 32);
        assert_eq!(format!("{:?}", key.table()), "feedbeef");
    }
}
