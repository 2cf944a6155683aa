//! The request of a vector search.

use crate::search::filter::may_read_clock;
use crate::search::plan_reason::PlanReason;
use crate::table::metric::Metric;

/// A vector search.
#[derive(Clone, Debug, Default)]
pub struct VectorQuery {
    /// The vector column; may be `None` if `vector` fits only one column, or only one of those that it fits has an
    /// index.
    pub column: Option<String>,
    /// The query vector: as many finite numbers as the column has dimensions. For a column of lists of vectors, one or
    /// more vectors, one after another. A row's distance is then a sum: for each of these vectors, the distance to the
    /// nearest of the row's vectors.
    pub vector: Vec<f32>,
    /// The number of rows; at least 1. To refine a column that is searched directly, request more rows and
    /// rank them by exact distances.
    pub k: usize,
    /// The number of partitions of the index to search. With `None`, Lance decides how many are worth searching. With a
    /// filter this is the minimum: more are searched until `k` rows that pass it are found.
    pub nprobes: Option<usize>,
    /// The maximum number of partitions to search with a filter, at least `nprobes`.
    pub nprobes_max: Option<usize>,
    /// The number of candidates that the graph search keeps, for HNSW indexes; at least `k`.
    pub ef: Option<usize>,
    /// A SQL expression that the rows must satisfy; applied before the search.
    pub filter: Option<String>,
    /// The range of the wanted distances: at least the first number, and less than the second. `None` sets no bound. If
    /// the search also returns rows to score, the caller compares all exact distances with the second number.
    pub distances: (Option<f32>, Option<f32>),
    /// The number of candidates that Lance compares exactly for each of the `k` rows; 0 for none, so that the distances are
    /// those of the index. It applies only to columns that are searched by a plan: nested ones, and lists of vectors.
    pub refine_factor: u32,
    /// Whether to leave out rows that the index does not cover.
    pub indexed_only: bool,
    /// If set, the vector is compared with every row by this metric, without the index.
    pub exact: Option<Metric>,
    /// Whether the caller can compare candidates with the filter
    /// ([`VectorRoute::Candidates`](crate::search::VectorRoute::Candidates)).
    pub checks_candidates: bool,
    /// The number of bytes that the caller reads to compare a candidate with the filter; 0 if that is not known.
    pub checked_row_bytes: usize,
}

impl VectorQuery {
    /// Returns the reason if the query needs a plan, whatever index there is.
    pub(in crate::search) fn needs_plan(&self) -> Option<PlanReason> {
        match &self.filter {
            _ if self.exact.is_some() => Some(PlanReason::Exact),
            _ if self.nprobes.is_none() => Some(PlanReason::ProbesUnset),
            Some(filter) if may_read_clock(filter) => Some(PlanReason::Clock),
            _ => None,
        }
    }
}
