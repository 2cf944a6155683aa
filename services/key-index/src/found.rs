//! The answer to a batch of look-ups.

use address::RowAddr;

/// For each key of a batch, the rows that may have it. Only the row itself shows whether it has the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub(crate) rows: Vec<RowAddr>,
    /// For each key, the index in `rows` at which its rows end.
    pub(crate) ends: Vec<u32>,
    /// The positions in the batch, ascending, of the keys that have more candidates than the look-up's limit.
    pub(crate) cut: Vec<u32>,
    /// The positions in the batch, ascending, of the keys that were not looked up ([`Found::is_unread`] says why).
    pub(crate) unread: Vec<u32>,
}

impl Found {
    /// Returns the number of keys.
    pub fn keys(&self) -> usize {
        self.ends.len()
    }

    /// Returns all rows, key after key.
    pub fn rows(&self) -> &[RowAddr] {
        &self.rows
    }

    /// Returns the rows that may have a key, given by its position in the batch: rows of runs in memory first, then
    /// rows of paged runs, and within each kind rows of newer runs first.
    pub fn rows_of(&self, key: usize) -> &[RowAddr] {
        let start = key.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rows[start as usize..self.ends[key] as usize]
    }

    /// Returns whether a key has more candidates than the limit of the look-up.
    pub fn has_more(&self, key: usize) -> bool {
        self.cut.binary_search(&(key as u32)).is_ok()
    }

    /// Returns whether a key was not looked up, because a page that the look-up needs is missing or damaged, or because
    /// the key has too many rows. Such a key has no candidates, and any row of a covered file may have it.
    pub fn is_unread(&self, key: usize) -> bool {
        self.unread.binary_search(&(key as u32)).is_ok()
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
        self.cut.clear();
        self.unread.clear();
    }
}
