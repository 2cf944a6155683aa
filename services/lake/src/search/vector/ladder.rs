//! Searches of an index with different numbers of partitions, to measure how many are needed.

use address::RowAddr;
use futures::FutureExt;

use super::partitions::Rung;
use super::query::VectorQuery;
use crate::error::Result;
use crate::search::plan_reason::PlanReason;
use crate::table::Table;

/// A vector index whose searches can be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurableIndex {
    /// The number of partitions of its largest segment.
    pub partitions: usize,
    /// Whether a search for few rows nearly always finds the first of the rows that a search for more finds. This is
    /// not so for graphs (HNSW).
    pub is_flat: bool,
    /// The live rows that the index does not cover, ascending.
    pub uncovered: std::sync::Arc<[RowAddr]>,
}

impl Table {
    /// Opens the vector index of `column`, or returns the reason if Lance's scanner has to plan its searches.
    ///
    /// Errors: `ColumnNotFound`, and those of the store.
    pub async fn measurable_index(
        &self,
        column: &str,
    ) -> Result<std::result::Result<MeasurableIndex, PlanReason>> {
        Ok(match self.open_partitions(column).await? {
            Ok(index) => Ok(MeasurableIndex {
                partitions: index.partitions_max(),
                is_flat: index.is_flat(),
                uncovered: std::sync::Arc::clone(index.uncovered()),
            }),
            Err(reason) => Err(*reason),
        })
    }

    /// Searches with each number of partitions in `nprobes`, which is ascending. Uses only the column, the vector and
    /// `k` of `query`. Rows that the index does not cover are not among the results. If the index can't be searched
    /// without a plan, the reason is returned.
    ///
    /// Errors: as `planned_search`.
    pub async fn search_ladder(
        &self,
        query: &VectorQuery,
        nprobes: &[usize],
    ) -> Result<std::result::Result<Vec<Rung>, PlanReason>> {
        let (column, vector) = self.check_vector_query(query).await?;
        let index = match self.open_partitions(&column).await? {
            Ok(index) => index,
            Err(reason) => return Ok(Err(*reason)),
        };
        let rungs = async move { index.search_rungs(&vector, query.k, nprobes).await };
        self.caught(rungs).boxed().await.map(Ok)
    }
}
