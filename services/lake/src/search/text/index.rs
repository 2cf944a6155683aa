//! An open full-text index.

use std::sync::Arc;

use lance::dataset::scanner::RowAddrMask;
use lance_table::format::IndexMetadata;

use super::open_segments::OpenSegments;
use crate::search::row_addresses::RowAddresses;

/// A full-text index that can be searched directly, without Lance's scanner.
pub(crate) struct TextIndex {
    /// The column that it indexes.
    pub column: String,
    /// Its segments, also those that cover no row of the version: they count in the frequencies of words.
    pub segments: Vec<IndexMetadata>,
    /// The open segments, in the same order.
    pub open: OpenSegments,
    /// Selects the rows that a search of the segments may return, by their ids; `None` if it may return all of them.
    /// Segments may also have deleted rows, and rows of fragments that they no longer cover.
    pub live: Option<Arc<RowAddrMask>>,
    pub addresses: RowAddresses,
    /// The ids of the fragments with live rows that no segment covers.
    pub uncovered: Vec<u32>,
    /// The number of these rows.
    pub uncovered_rows: u64,
}

impl TextIndex {
    /// Returns the mask of the rows that a search of the segments may return if it may return only rows that `wanted`
    /// selects; `None` if it may return all rows of the segments.
    pub fn selected(&self, wanted: Option<Arc<RowAddrMask>>) -> Option<Arc<RowAddrMask>> {
        match (wanted, &self.live) {
            (Some(wanted), Some(live)) => {
                Some(Arc::new(wanted.as_ref().clone() & live.as_ref().clone()))
            }
            (wanted, live) => wanted.or_else(|| live.clone()),
        }
    }
}
