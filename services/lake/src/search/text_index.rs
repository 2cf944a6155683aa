//! Full-text search that runs the search of the index alone, without the scanner.
//!
//! The scanner plans each search anew and filters rows by a plan of its own. Here the plan has one node, Lance's search of
//! the index, and the rows that pass a filter are known (`resolve_filter.rs`). The results are those of the scanner, if the
//! index covers every row of the version.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::scanner::RowAddrMask;
use lance::io::exec::PreFilterSource;
use lance::io::exec::fts::MatchQueryExec;
use lance_core::{Error, ROW_ID};
use lance_index::scalar::inverted::DocumentGranularity;
use lance_index::scalar::inverted::query::{FtsSearchParams, MatchQuery};
use lance_table::rowids::RowIdIndex;

use super::hit::{SCORE, ScoreHit, f32_column};

/// Runs the search of an index, which uses no memory pool and no files of DataFusion.
static CONTEXT: LazyLock<Arc<TaskContext>> = LazyLock::new(Arc::default);

/// A full-text index that answers searches alone.
pub(crate) struct TextIndex {
    /// Maps stable row ids to addresses, if the table has them.
    pub addresses: Option<Arc<RowIdIndex>>,
}

impl TextIndex {
    /// Returns the `k` best matches of the rows that `mask` selects, best first, each with its row id.
    pub async fn search(
        &self,
        dataset: &Arc<Dataset>,
        column: &str,
        words: &str,
        k: usize,
        mask: Option<Arc<RowAddrMask>>,
    ) -> lance::Result<(Vec<u64>, Vec<ScoreHit>)> {
        let query = MatchQuery::new(words.to_owned()).with_column(Some(column.to_owned()));
        let search = MatchQueryExec::new_with_document_granularity(
            Arc::clone(dataset),
            query,
            FtsSearchParams::new().with_limit(Some(k)),
            PreFilterSource::None,
            DocumentGranularity::Row,
        );
        let search = search.with_external_mask(mask);
        let mut found = Vec::new();
        let mut batches = search.execute(0, Arc::clone(&CONTEXT))?;
        while let Some(batch) = batches.try_next().await? {
            let ids =
                batch.column_by_name(ROW_ID).and_then(|ids| ids.as_primitive_opt::<UInt64Type>());
            let ids = ids.ok_or_else(|| Error::internal("a search returned no row ids"))?;
            found.extend(
                ids.values().iter().copied().zip(f32_column(&batch, SCORE)?.iter().copied()),
            );
        }
        let ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
        let addresses: Vec<Option<u64>> = match &self.addresses {
            None => ids.into_iter().map(Some).collect(),
            Some(index) => index.get_many(&ids)?.into_iter().map(|it| it.map(u64::from)).collect(),
        };
        let rows = found.into_iter().zip(addresses);
        let hit = |((id, score), addr): ((u64, f32), Option<u64>)| {
            Some((id, ScoreHit::new(addr?, score)))
        };
        let mut hits: Vec<(u64, ScoreHit)> = rows.filter_map(hit).collect();
        hits.sort_by(|(_, a), (_, b)| a.rank(b));
        hits.truncate(k);
        Ok(hits.into_iter().unzip())
    }
}
