//! The rows that pass a filter.

use std::sync::{Arc, OnceLock};

use address::RowAddr;
use lance_core::deepsize::DeepSizeOf;
use lance_select::{RowAddrMask, RowAddrSelection, RowAddrTreeMap, RowSetOps};

use crate::search::selection::SelectedByIndex;

/// The number of rows that pass a filter, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The number of rows that pass.
    pub rows: u64,
    /// The way in which they were found.
    pub by: AllowedBy,
}

/// The way in which the rows that pass a filter were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedBy {
    /// Scalar indexes answered the filter, for the fragments that they cover. The other fragments were scanned.
    Indexes {
        /// The number of live rows in the fragments that were scanned.
        scanned_rows: u64,
    },
    /// The whole table was scanned.
    Scan,
}

/// The live rows of a version that pass a filter.
pub(crate) struct AllowList {
    /// Selects the ids of the rows: their stable row ids if the table has them, otherwise their addresses.
    mask: Arc<RowAddrMask>,
    len: u64,
    /// The memory that the mask takes, in bytes.
    bytes: usize,
    by: AllowedBy,
    /// For each column, by its position: the rows of the list in the form in which searches of the column's vector
    /// index take them. Set by the first search of the column that uses the list.
    pub of_columns: Vec<OnceLock<Arc<SelectedByIndex>>>,
    /// The addresses of the rows, ascending, if the table has stable row ids. Set by the first search by the filter
    /// alone.
    pub addresses: OnceLock<Arc<[RowAddr]>>,
}

impl AllowList {
    /// Makes a list from `ids`, which has every single id, and does not select a fragment as a whole. `columns` is the
    /// number of the table's columns.
    pub fn new(mut ids: RowAddrTreeMap, by: AllowedBy, columns: usize) -> Self {
        ids.optimize();
        let (len, bytes) = (ids.len().unwrap_or_default(), ids.deep_size_of());
        let mask = Arc::new(RowAddrMask::from_allowed(ids));
        let of_columns = (0..columns).map(|_| OnceLock::new()).collect();
        Self { mask, len, bytes, by, of_columns, addresses: OnceLock::new() }
    }

    /// The number of rows.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of the rows, and how they were found.
    pub fn summary(&self) -> Allowed {
        Allowed { rows: self.len, by: self.by }
    }

    /// The mask that selects the ids of the rows.
    pub fn mask(&self) -> &Arc<RowAddrMask> {
        &self.mask
    }

    /// Returns whether the row with this id passes.
    pub fn contains(&self, id: u64) -> bool {
        self.mask.selected(id)
    }

    /// Returns the ids of the rows, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        let fragments = self.mask.allow_list().into_iter().flat_map(RowAddrTreeMap::iter);
        // Lance's `RowAddrMask::iter_addrs` costs a virtual call for each row, and memory for each fragment.
        fragments.flat_map(|(fragment, selection)| {
            let offsets = match selection {
                RowAddrSelection::Partial(offsets) => offsets.iter(),
                RowAddrSelection::Full => unreachable!("no fragment is selected as a whole"),
            };
            offsets.map(move |offset| RowAddr::new(*fragment, offset).to_u64())
        })
    }

    /// Returns the rows of the list that `live` selects too; without `live`, all rows of the list.
    pub fn within(&self, live: Option<&RowAddrMask>) -> Arc<RowAddrMask> {
        match live {
            Some(live) => Arc::new(self.mask.as_ref().clone() & live.clone()),
            None => Arc::clone(&self.mask),
        }
    }

    /// Returns whether a search has set the entry of `of_columns` for the column at this position.
    pub fn is_selected(&self, column: usize) -> bool {
        self.of_columns[column].get().is_some()
    }

    /// Returns the memory that the list takes, in bytes, including `of_columns` and `addresses`.
    pub fn bytes(&self) -> usize {
        let of_columns = self.of_columns.iter().filter_map(OnceLock::get);
        let of_columns = of_columns.map(|it| it.bytes(&self.mask));
        let addresses = self.addresses.get().map_or(0, |rows| size_of_val(rows.as_ref()));
        let of_columns = of_columns.sum::<usize>() + size_of_val(self.of_columns.as_slice());
        self.bytes + of_columns + addresses
    }
}
