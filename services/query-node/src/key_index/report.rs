//! The state of a table's key index, for DescribeTable and metrics.

use std::sync::Arc;

/// The state of the key index of one version of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyIndexReport {
    /// Whether the index is kept up to date: somebody has looked up a key, or persisted runs were found.
    pub is_wanted: bool,
    /// The number of runs that look-ups probe.
    pub runs: usize,
    /// The number of these runs that were loaded into memory from files beside the table.
    pub runs_loaded: usize,
    /// The number of these runs whose pages stay in files beside the table.
    pub runs_paged: usize,
    /// The size of the pages that stay in files, in bytes.
    pub paged_bytes: u64,
    /// The memory of all runs of the table, of other versions too, in bytes.
    pub bytes: u64,
    /// The rows of the version, deleted ones included, that no run covers.
    pub uncovered_rows: u64,
    /// The reason why the last attempt to build or merge a run failed.
    pub fault: Option<Arc<str>>,
}
