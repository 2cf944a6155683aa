//! Names of extents.

use std::fmt;

/// Names one pack of one fragment: a 128-bit BLAKE3 hash of the table's URI, the fragment's id, its
/// chunk size, and the data file that holds each of the pack's columns. Data files are immutable
/// and never share a name, so what is stored under a key is never stale: another version of the
/// table either shares the files, and with them the extents, or has other keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackKey(pub u128);

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
