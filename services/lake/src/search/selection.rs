//! The rows that a search of an index may return.

use std::sync::Arc;

use address::RowAddr;
use lance::dataset::scanner::RowAddrMask;

/// The rows of one segment that a search may return.
#[derive(Clone)]
pub(crate) struct Selection {
    /// Selects the rows by the ids that the segment holds; `None` if it may return all of them.
    pub mask: Option<Arc<RowAddrMask>>,
    /// The approximate share of the segment's rows that are selected.
    pub share: f64,
}

/// The rows that pass a filter, as one vector index selects them.
pub(crate) struct SelectedByIndex {
    /// The selection of each of the index's segments.
    pub segments: Vec<Selection>,
    /// The number of the rows that segments cover. Rows without a vector count too.
    pub covered: u64,
    /// The rows that no segment covers, ascending.
    pub uncovered: Arc<[RowAddr]>,
    /// All rows, ascending, if they are so few that each of them may be scored.
    pub all: Option<Arc<[RowAddr]>>,
}
