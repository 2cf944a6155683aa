//! The rows that pass a filter.

use std::sync::{Arc, OnceLock};

use lance_core::deepsize::DeepSizeOf;
use lance_select::{RowAddrMask, RowAddrTreeMap, RowSetOps};

use super::selection::SelectedByIndex;

/// The live rows of a version that pass a filter.
pub(crate) struct AllowList {
    /// The ids of the rows: their stable row ids if the table has them, otherwise their addresses.
    ids: RowAddrTreeMap,
    len: u64,
    by_index: bool,
    /// The list as the vector index of each column selects rows by it, by the column's position. Set when the first
    /// search of that column uses the list.
    pub of_columns: Vec<OnceLock<Arc<SelectedByIndex>>>,
}

impl AllowList {
    /// Makes the list of `ids`, each of which is given (no fragment as a whole), of a table with this number of columns.
    pub fn new(ids: RowAddrTreeMap, by_index: bool, columns: usize) -> Self {
        let len = ids.len().unwrap_or_default();
        let of_columns = (0..columns).map(|_| OnceLock::new()).collect();
        Self { ids, len, by_index, of_columns }
    }

    /// The number of rows.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether scalar indexes alone answered the filter for the fragments that they cover.
    pub fn is_by_index(&self) -> bool {
        self.by_index
    }

    /// Returns whether the row with this id passes.
    pub fn contains(&self, id: u64) -> bool {
        self.ids.contains(id)
    }

    /// Returns the ids of the rows, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.ids.row_addrs().into_iter().flatten().map(u64::from)
    }

    /// Returns the rows of the list that `live` selects too.
    pub fn within(&self, live: Option<&RowAddrMask>) -> RowAddrMask {
        let allowed = RowAddrMask::from_allowed(self.ids.clone());
        match live {
            Some(live) => allowed & live.clone(),
            None => allowed,
        }
    }

    /// Returns the bytes of memory that the list takes, with one column's index that uses it.
    pub fn bytes(&self) -> usize {
        2 * self.ids.deep_size_of() + self.of_columns.len() * size_of::<OnceLock<Arc<()>>>()
    }
}
