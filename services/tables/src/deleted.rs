//! The rows of a fragment that are deleted in a version.

use roaring::RoaringBitmap;

/// The rows of one fragment that are deleted in one version, as a compressed bitmap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletedRows(RoaringBitmap);

impl DeletedRows {
    /// Returns whether the row at physical `offset` is deleted.
    pub fn contains(&self, offset: u32) -> bool {
        self.0.contains(offset)
    }

    /// Returns the number of deleted rows.
    pub fn len(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    /// Returns whether no row is deleted. Callers then need not look up each row.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<RoaringBitmap> for DeletedRows {
    fn from(offsets: RoaringBitmap) -> Self {
        Self(offsets)
    }
}

/// Collects physical offsets, in any order.
impl FromIterator<u32> for DeletedRows {
    fn from_iter<I: IntoIterator<Item = u32>>(offsets: I) -> Self {
        Self(offsets.into_iter().collect())
    }
}
