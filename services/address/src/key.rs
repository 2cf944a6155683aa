//! Keys of extents.

use std::fmt;

/// Identifies a table regardless of its version: a 32-bit hash of the table's URI. If the hashes of two tables collide,
/// their extents are counted together, and a share for one of them applies to both. A configuration with a share for
/// each of them is refused. Rows are never mixed up, because the rest of a [`PackKey`] differs.
///
/// The tags of tables' index and deletion files begin with the byte 0xff, and no other tags do. So an extent's key
/// shows whether the extent is a block of such a file, even after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableTag(pub u32);

/// The first byte of the tags of files.
const FILES: u32 = 0xff00_0000;

impl TableTag {
    /// Makes the tag of a table from the hash of its URI.
    pub fn of_rows(hash: u32) -> Self {
        let is_free = hash & FILES != FILES;
        Self(if is_free { hash } else { hash & !(1 << 31) })
    }

    /// Makes the tag of a table's index and deletion files from the hash of their URI.
    pub fn of_files(hash: u32) -> Self {
        Self(hash | FILES)
    }

    /// Whether this is the tag of a table's index and deletion files.
    pub fn is_of_files(self) -> bool {
        self.0 & FILES == FILES
    }
}

impl fmt::Debug for TableTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Identifies one pack of one fragment:
///
/// ```text
/// bits 96..128  the table's tag
/// bits  0..96   BLAKE3 of the table's URI, the fragment's id, its chunk size, and the name and the data files
///               of each of the pack's columns
/// ```
///
/// Data files are immutable and their names are never reused, so the bytes stored under a key never become stale. If a
/// pack's columns have the same names and data files in another version of the table, the pack has the same key there,
/// and so shares the extents. Otherwise it has another key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackKey(pub u128);

const HASH_BITS: u32 = 96;

impl PackKey {
    /// Makes the key of a pack from its table's tag and the low 96 bits of `hash`.
    pub fn new(table: TableTag, hash: u128) -> Self {
        Self(u128::from(table.0) << HASH_BITS | hash & ((1 << HASH_BITS) - 1))
    }

    /// Returns the tag of the pack's table. It is part of the key, so it is known after a restart without
    /// opening the table.
    pub fn table(self) -> TableTag {
        TableTag((self.0 >> HASH_BITS) as u32)
    }
}

impl fmt::Debug for PackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Identifies one extent: one chunk of one pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentKey {
    /// The pack, with its table and fragment.
    pub pack: PackKey,
    /// The chunk's number within the fragment, counted from 0.
    pub chunk: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_files_differ_from_those_of_tables() {
        for hash in [0, 7, 0x80ff_ffff, 0xfeed_beef, 0xff00_0000, u32::MAX] {
            assert!(TableTag::of_files(hash).is_of_files());
            assert!(!TableTag::of_rows(hash).is_of_files());
        }
        assert_eq!(TableTag::of_rows(0xfeed_beef), TableTag(0xfeed_beef));
        assert_eq!(TableTag::of_rows(0xff12_3456), TableTag(0x7f12_3456));
        assert_eq!(TableTag::of_files(0x0012_3456), TableTag(0xff12_3456));
    }

    #[test]
    fn a_pack_key_contains_its_tables_tag() {
        let key = PackKey::new(TableTag(0xfeed_beef), u128::MAX - 1);
        assert_eq!(key.table(), TableTag(0xfeed_beef));
        assert_eq!(key.0 << 32, (u128::MAX - 1) << 32);
        assert_eq!(format!("{:?}", key.table()), "feedbeef");
    }
}
