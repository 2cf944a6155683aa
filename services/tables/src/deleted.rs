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

    /// Returns the number of deleted rows before physical `offset`.
    pub fn before(&self, offset: u32) -> u64 {
        offset.checked_sub(1).map_or(0, |last| self.0.rank(last))
    }

    /// Returns the physical offset of the live row number `live`, counted from 0.
    pub fn nth_live(&self, live: u64) -> u32 {
        // Each deleted row before the offset moves it by one. The offset is at least `live`, and at most `live` plus
        // the number of deleted rows.
        let (mut low, mut high) = (live, live + self.0.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let deleted = self.0.rank(u32::try_from(middle).unwrap_or(u32::MAX));
            match middle + 1 - deleted > live {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        u32::try_from(low).unwrap_or(u32::MAX)
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
