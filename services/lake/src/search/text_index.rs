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
use futures::{FutureExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::rowids::get_row_id_index;
use lance::dataset::scanner::RowAddrMask;
use lance::io::exec::PreFilterSource;
use lance::io::exec::fts::MatchQueryExec;
use lance_core::{Error, ROW_ID};
use lance_index::scalar::inverted::DocumentGranularity;
use lance_index::scalar::inverted::query::{FtsSearchParams, MatchQuery};
use lance_table::rowids::RowIdIndex;
use tables::FragmentInfo;

use super::allow_list::AllowList;
use super::coverage::Coverage;
use super::hit::{SCORE, ScoreHit, f32_column};
use super::plan_reason::PlanReason;
use super::selection::widened;
use crate::error::Result;
use crate::table::Table;

/// The minimum share of rows that pass a filter at which the index is searched without a mask, for more rows, of which
/// those that do not pass are dropped. Below it, a mask is cheaper. With a mask of up to a tenth of the rows, Lance visits
/// every row that it selects: 2.5 ms for 100,000 rows, where two words have 2,400 matches.
const UNMASKED_SHARE_MIN: f64 = 0.02;

/// Maximum number of rows for which the index is searched without a mask.
const UNMASKED_ROWS_MAX: usize = 20_000;

/// Runs the search of an index, which uses no memory pool and no files of DataFusion.
static CONTEXT: LazyLock<Arc<TaskContext>> = LazyLock::new(Arc::default);

impl Table {
    /// Returns the full-text index of `column`, which has strings, or the reason if a search needs more than the index.
    ///
    /// Errors: those of the store.
    pub(super) async fn text_index_alone(
        &self,
        column: &str,
    ) -> Result<std::result::Result<&TextIndex, PlanReason>> {
        let cell = &self.direct_of(self.column_position(column)?).text_index;
        let check = async {
            let indexes = self.indexes().await?;
            let mut of_column = indexes.iter().filter(|it| it.is_text() && it.columns == [column]);
            let (Some(index), None) = (of_column.next(), of_column.next()) else {
                return Ok(Err(PlanReason::SeveralIndexes));
            };
            let coverage = self.caught(Coverage::load(self.dataset(), &index.name)).await?;
            let coverage = match coverage {
                Ok(coverage) => coverage,
                Err(reason) => return Ok(Err(reason)),
            };
            let uncovered = coverage.uncovered.iter().filter_map(|id| self.fragment(*id));
            let rows: u64 = uncovered.map(FragmentInfo::live_rows).sum();
            Ok(match (coverage.segments.is_empty(), rows) {
                (true, _) => Err(PlanReason::CoversNothing),
                (false, 0) => {
                    let addresses = self.caught(get_row_id_index(self.dataset())).await?;
                    Ok(TextIndex { addresses })
                }
                (false, rows) => Err(PlanReason::Uncovered(rows)),
            })
        };
        let checked = cell.get_or_try_init(|| self.on_own_runtime(check.boxed())).await?;
        Ok(checked.as_ref().map_err(|reason| *reason))
    }

    /// Returns the `k` best matches of `words` in `column`, best first, of the rows in `list` if it is given. The index
    /// must answer alone ([`text_index_alone`](Self::text_index_alone)).
    ///
    /// Errors: those of the store.
    pub(super) async fn search_text_index(
        &self,
        index: &TextIndex,
        column: &str,
        words: &str,
        k: usize,
        list: Option<&AllowList>,
    ) -> Result<Vec<ScoreHit>> {
        let run = |k, mask| self.caught(index.search(self.dataset(), column, words, k, mask));
        let Some(list) = list else { return run(k, None).await.map(|(_, hits)| hits) };
        let share = list.summary().rows as f64 / self.row_count().max(1) as f64;
        let wide = widened(k, share.min(1.0));
        if share >= UNMASKED_SHARE_MIN && wide <= UNMASKED_ROWS_MAX {
            let (ids, mut hits) = run(wide, None).await?;
            let is_all = ids.len() < wide;
            let mut ids = ids.into_iter();
            hits.retain(|_| ids.next().is_some_and(|id| list.contains(id)));
            if is_all || hits.len() >= k {
                hits.truncate(k);
                return Ok(hits);
            }
        }
        run(k, Some(Arc::clone(list.mask()))).await.map(|(_, hits)| hits)
    }
}

/// A full-text index that answers searches alone.
pub(crate) struct TextIndex {
    /// Maps stable row ids to addresses, if the table has them.
    addresses: Option<Arc<RowIdIndex>>,
}

impl TextIndex {
    /// Returns the `k` best matches of the rows that `mask` selects, best first, each with its row id.
    async fn search(
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
