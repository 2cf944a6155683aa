//! Full-text search that runs the search of the index alone, without the scanner.
//!
//! The scanner plans each search anew and filters rows by a plan of its own. Here the plan has one node, Lance's search of
//! the index, and the rows that pass a filter are known (`resolve_filter.rs`). The results are those of the scanner, if the
//! index covers every row of the version.

use std::sync::{Arc, LazyLock};

use address::RowAddr;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::scanner::RowAddrMask;
use lance::io::exec::PreFilterSource;
use lance::io::exec::fts::MatchQueryExec;
use lance_index::scalar::inverted::DocumentGranularity;
use lance_index::scalar::inverted::query::{FtsSearchParams, MatchQuery};

use super::hit::{SCORE, ScoreHit, f32_column, row_ids};
use super::row_addresses::RowAddresses;

/// Runs the search of an index, which uses no memory pool and no files of DataFusion.
static CONTEXT: LazyLock<Arc<TaskContext>> = LazyLock::new(Arc::default);

/// A full-text index that answers searches alone.
pub(crate) struct TextIndex {
    /// The column that it indexes.
    pub column: String,
    pub addresses: RowAddresses,
}

impl TextIndex {
    /// Returns the `k` best matches of the rows that `mask` selects, best first, each with its row id.
    pub async fn search(
        &self,
        dataset: &Arc<Dataset>,
        words: &str,
        k: usize,
        mask: Option<Arc<RowAddrMask>>,
    ) -> lance::Result<(Vec<u64>, Vec<ScoreHit>)> {
        let query = MatchQuery::new(words.to_owned()).with_column(Some(self.column.clone()));
        let search = MatchQueryExec::new_with_document_granularity(
            Arc::clone(dataset),
            query,
            FtsSearchParams::new().with_limit(Some(k)),
            PreFilterSource::None,
            DocumentGranularity::Row,
        );
        let search = search.with_external_mask(mask);
        let (mut ids, mut scores) = (Vec::new(), Vec::new());
        let mut batches = search.execute(0, Arc::clone(&CONTEXT))?;
        while let Some(batch) = batches.try_next().await? {
            ids.extend_from_slice(row_ids(&batch)?);
            scores.extend_from_slice(f32_column(&batch, SCORE)?);
        }
        let rows = self.addresses.of(&ids)?.into_iter().zip(ids).zip(scores);
        let hit = |((addr, id), score): ((Option<RowAddr>, u64), f32)| {
            Some((id, ScoreHit { addr: addr?, score }))
        };
        let mut hits: Vec<(u64, ScoreHit)> = rows.filter_map(hit).collect();
        hits.sort_by(|(_, a), (_, b)| a.rank(b));
        hits.truncate(k);
        Ok(hits.into_iter().unzip())
    }
}
