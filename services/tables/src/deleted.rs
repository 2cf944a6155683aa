//! The rows of a fragment that a version has deleted.

use roaring::RoaringBitmap;

/// Which rows of one fragment are deleted in one version: a compressed bitmap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletedRows(RoaringBitmap);

impl DeletedRows {
    /// Whether the row at physical `offset` is deleted.
    pub fn contains(&self, offset: u32) -> bool {
        self.0.contains(offset)
    }

    /// How many rows are deleted.
    pub fn len(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    /// Whether no row is deleted, so that looking each one up can be left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<RoaringBitmap> for DeletedRows {
    fn from(offsets: RoaringBitmap) -> Self {
        Self(offsets)
    }
}

/// From physical offsets, in any order.
impl FromIterator<u32> for DeletedRows {
    fn from_iter<I: IntoIterator<Item = u32>>(offsets: I) -> Self {
        Self(offsets.into_iter().collect())
    }
}
