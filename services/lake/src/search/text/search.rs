//! Full-text search that runs Lance's search of indexes directly, without the scanner.
//!
//! The scanner plans each search anew and filters rows by a plan of its own. Here a plan has one node, Lance's search
//! of the index or the indexes, and the rows that pass a filter are known (`filter/resolve.rs`). A match without edits
//! needs no node either: it calls the index as Lance's node does. Rows that an index does not cover are scored beside it
//! (`fresh_scores.rs`). The results are those of the scanner.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::try_join_all;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::scanner::RowAddrMask;
use lance::io::exec::PreFilterSource;
use lance::io::exec::fts::{
    CombinedFieldsQueryExec, CompoundQueryExec, CrossColumnCompoundQueryExec, MatchQueryExec,
    PhraseQueryExec,
};
use lance_core::utils::tokio::get_num_compute_intensive_cpus;
use lance_core::{Error, Result};
use lance_index::metrics::{MetricsCollector, NoOpMetricsCollector};
use lance_index::prefilter::{NoFilter, PreFilter};
use lance_index::scalar::inverted::query::{
    FtsQuery, FtsQueryNode, FtsSearchParams, MatchQuery, try_collect_query_tokens,
    uses_fuzzy_expansion,
};
use lance_index::scalar::inverted::{DocumentGranularity, prepare_bm25_query};
use lance_table::format::IndexMetadata;

use super::fresh_scores::FreshRows;
use super::fresh_text::FRESH_TEXTS_MAX;
use super::index::TextIndex;
use super::node;
use crate::search::filter::AllowList;
use crate::search::hit::{ScoreHit, take_best};
use crate::search::plan_reason::PlanReason;
use crate::search::selection::Selected;

/// The lowest format version of an index that Lance can search together with that of another column.
const JOINED_FORMAT_MIN: i32 = 2;

/// The direct search of one or more full-text indexes, and of the rows that they do not cover.
pub(crate) struct TextSearch<'a> {
    dataset: &'a Arc<Dataset>,
    /// An index for each column that the queries search. Not empty.
    indexes: Vec<&'a TextIndex>,
    /// The queries, each of which one node of a plan answers. A row that several of them match has the best of its
    /// scores.
    queries: Vec<FtsQuery>,
    /// The texts of the rows that an index does not cover, for each index that leaves some uncovered. Empty if such
    /// rows are left out.
    fresh: Vec<(&'a TextIndex, RecordBatch)>,
    /// The queries for the rows of `fresh`.
    fresh_queries: Vec<FtsQuery>,
}

impl<'a> TextSearch<'a> {
    /// Prepares the search of `indexes`, which are those of all columns that `queries` search. Returns the reason if it
    /// needs a plan of several nodes, or if too many rows are uncovered. With `indexed_only`, uncovered rows are left
    /// out; otherwise the caller adds the texts of these rows ([`with_fresh`](Self::with_fresh)).
    pub fn new(
        dataset: &'a Arc<Dataset>,
        indexes: Vec<&'a TextIndex>,
        queries: &[FtsQuery],
        indexed_only: bool,
    ) -> std::result::Result<Self, PlanReason> {
        let queries: Vec<FtsQuery> = queries.iter().flat_map(split).collect();
        for query in &queries {
            match query {
                FtsQuery::Boost(_) | FtsQuery::Boolean(_) => check_compound(query, &indexes)?,
                FtsQuery::CombinedFields(_) => check_combined(query, &indexes)?,
                FtsQuery::Match(_) | FtsQuery::Phrase(_) | FtsQuery::MultiMatch(_) => {}
            }
        }
        let uncovered = indexes.iter().map(|index| index.uncovered_rows).max().unwrap_or(0);
        if !indexed_only && uncovered > FRESH_TEXTS_MAX {
            return Err(PlanReason::Uncovered(uncovered));
        }
        Ok(Self { dataset, indexes, queries, fresh: Vec::new(), fresh_queries: Vec::new() })
    }

    /// The indexes that leave rows uncovered.
    pub fn with_uncovered(&self) -> impl Iterator<Item = &'a TextIndex> + use<'a, '_> {
        self.indexes.iter().copied().filter(|index| index.uncovered_rows > 0)
    }

    /// Returns this search, which also finds rows that indexes do not cover: those of `fresh`, with their texts, that
    /// match one of `queries`.
    pub fn with_fresh(
        self,
        fresh: Vec<(&'a TextIndex, RecordBatch)>,
        queries: &[FtsQuery],
    ) -> Self {
        Self { fresh, fresh_queries: queries.to_vec(), ..self }
    }

    /// Returns the matches among the rows that the indexes do not cover, in any order, and the number of these rows.
    /// Only rows in `list` count if it is given.
    pub async fn run_fresh(&self, list: Option<&AllowList>) -> Result<(Vec<ScoreHit>, usize)> {
        if self.fresh.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let rows = FreshRows::new(self.dataset, &self.fresh, list)?;
        Ok((rows.search(&self.fresh_queries).await?, rows.len()))
    }

    /// Returns the `k` best matches of the rows in the indexes that `mask` selects, best first, each with its row id.
    pub async fn run(
        &self,
        k: usize,
        mask: Option<Arc<RowAddrMask>>,
    ) -> Result<(Vec<u64>, Vec<ScoreHit>)> {
        let found = self.queries.iter().map(|query| self.found(query, k, mask.clone()));
        let (ids, scores) = best_rows(try_join_all(found).await?);
        let rows = self.indexes[0].addresses.of(&ids)?.into_iter().zip(ids).zip(scores);
        let hit = |((addr, id), score)| Some((id, ScoreHit { addr: addr?, score }));
        let mut hits: Vec<(u64, ScoreHit)> = rows.filter_map(hit).collect();
        hits.sort_by(|(_, a), (_, b)| a.rank(b));
        hits.truncate(k);
        Ok(hits.into_iter().unzip())
    }

    /// Returns the ids and scores of the `k` best matches of one query.
    async fn found(
        &self,
        query: &FtsQuery,
        k: usize,
        mask: Option<Arc<RowAddrMask>>,
    ) -> Result<(Vec<u64>, Vec<f32>)> {
        match query {
            FtsQuery::Match(words) if !uses_fuzzy_expansion(words.fuzziness) => {
                self.found_exactly(words, k, mask).boxed().await
            }
            _ => node::run(self.node(query, k, mask)?.as_ref()).await,
        }
    }

    /// Like [`found`](Self::found), for words without edits. The calls are those of Lance's `MatchQueryExec`, without its
    /// set-up, so the scores are the same.
    async fn found_exactly(
        &self,
        query: &MatchQuery,
        k: usize,
        mask: Option<Arc<RowAddrMask>>,
    ) -> Result<(Vec<u64>, Vec<f32>)> {
        let index = self.indexes.iter().find(|it| Some(&it.column) == query.column.as_ref());
        let index =
            index.ok_or_else(|| Error::internal("a match is in no column with an index"))?;
        let segments = index.open.get(self.dataset, &index.column, &index.segments).await?;
        let Some(first) = segments.first() else { return Ok((Vec::new(), Vec::new())) };
        let tokens = try_collect_query_tokens(&query.terms, &mut first.tokenizer())?;
        let params = Arc::new(FtsSearchParams::new().with_limit(Some(k)));
        let prepared = prepare_bm25_query(&segments, tokens, &params, None, None).boxed().await?;
        let prepared = Arc::new(prepared);
        let filter: Arc<dyn PreFilter> = match index.selected(mask) {
            Some(mask) => Arc::new(Selected(mask)),
            None => Arc::new(NoFilter),
        };
        let metrics: Arc<dyn MetricsCollector> = Arc::new(NoOpMetricsCollector);
        let mut searches = Vec::with_capacity(segments.len());
        for segment in &segments {
            let (prepared, params) = (Arc::clone(&prepared), Arc::clone(&params));
            let (filter, metrics) = (Arc::clone(&filter), Arc::clone(&metrics));
            let operator = query.operator;
            let search = segment.bm25_search_prepared(prepared, params, operator, filter, metrics);
            searches.push(search.boxed());
        }
        let mut searches =
            stream::iter(searches).buffer_unordered(get_num_compute_intensive_cpus());
        let mut found: Vec<(u64, f32)> = Vec::new();
        while let Some((ids, scores)) = searches.try_next().await? {
            found.extend(ids.into_iter().zip(scores));
        }
        if found.len() > k {
            // Only several segments together find more.
            found.select_nth_unstable_by(k - 1, |(_, a), (_, b)| b.total_cmp(a));
            found.truncate(k);
        }
        Ok(found.into_iter().map(|(id, score)| (id, score * query.boost)).unzip())
    }

    /// Returns the node of Lance's plans that answers `query`.
    fn node(
        &self,
        query: &FtsQuery,
        k: usize,
        mask: Option<Arc<RowAddrMask>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let params = FtsSearchParams::new().with_limit(Some(k));
        let (dataset, all, row) =
            (Arc::clone(self.dataset), PreFilterSource::None, DocumentGranularity::Row);
        // A node that is given the segments does not look them up.
        Ok(match query.clone() {
            FtsQuery::Match(found) => {
                let node = MatchQueryExec::new_with_segments_and_document_granularity(
                    dataset,
                    found,
                    params,
                    all,
                    self.segments_of_one(query),
                    row,
                );
                Arc::new(node.with_external_mask(mask))
            }
            FtsQuery::Phrase(found) => {
                let node = PhraseQueryExec::new_with_segments_and_document_granularity(
                    dataset,
                    found,
                    params,
                    all,
                    self.segments_of_one(query),
                    row,
                );
                Arc::new(node.with_external_mask(mask))
            }
            FtsQuery::CombinedFields(query) => {
                let node = CombinedFieldsQueryExec::new(dataset, query, params, all);
                Arc::new(node.with_external_mask(mask))
            }
            query => {
                let mut of_columns = self.segments_of(&query);
                if of_columns.len() == 1 {
                    let (_, segments) = of_columns.remove(0);
                    let node =
                        CompoundQueryExec::new_with_segments(dataset, query, params, all, segments);
                    Arc::new(node.with_external_mask(mask))
                } else {
                    let node = CrossColumnCompoundQueryExec::new_with_segments(
                        dataset, query, params, all, of_columns,
                    )?;
                    Arc::new(node.with_external_mask(mask))
                }
            }
        })
    }

    /// Returns the segments of the index that answers `query`, which searches one column.
    fn segments_of_one(&self, query: &FtsQuery) -> Vec<IndexMetadata> {
        self.segments_of(query).pop().map(|(_, segments)| segments).unwrap_or_default()
    }

    fn segments_of(&self, query: &FtsQuery) -> Vec<(String, Vec<IndexMetadata>)> {
        let columns = query.columns();
        let indexes = self.indexes.iter().filter(|index| columns.contains(&index.column));
        indexes.map(|index| (index.column.clone(), index.segments.clone())).collect()
    }
}

/// Splits a match in several columns into a match for each column.
fn split(query: &FtsQuery) -> Vec<FtsQuery> {
    match query {
        FtsQuery::MultiMatch(query) => {
            query.match_queries.iter().cloned().map(FtsQuery::from).collect()
        }
        other => vec![other.clone()],
    }
}

/// Returns the reason if Lance has no node that answers all of `query`, which combines queries.
fn check_compound(query: &FtsQuery, indexes: &[&TextIndex]) -> std::result::Result<(), PlanReason> {
    if has_combined_fields(query) {
        return Err(PlanReason::CombinedFields);
    }
    let columns = query.columns();
    let searched = indexes.iter().filter(|index| columns.contains(&index.column));
    // A row's score combines those of the columns, so an index can't answer for a row that another one leaves out.
    let uncovered = searched.clone().next().map(|index| &index.uncovered);
    if searched.clone().any(|index| Some(&index.uncovered) != uncovered) {
        return Err(PlanReason::CoverageDiffers);
    }
    let mut segments = searched.flat_map(|index| &index.segments);
    let is_early = |segment: &IndexMetadata| segment.index_version < JOINED_FORMAT_MIN;
    match columns.len() > 1 && segments.any(is_early) {
        true => Err(PlanReason::EarlyFormat),
        false => Ok(()),
    }
}

/// Returns the reason if an index of the columns that `query` searches as if they were one leaves rows uncovered. Lance
/// then scores the rows in the indexes by the words of the uncovered rows too.
fn check_combined(query: &FtsQuery, indexes: &[&TextIndex]) -> std::result::Result<(), PlanReason> {
    let columns = query.columns();
    let searched = indexes.iter().filter(|index| columns.contains(&index.column));
    match searched.map(|index| index.uncovered_rows).max() {
        None | Some(0) => Ok(()),
        Some(rows) => Err(PlanReason::CombinedUncovered(rows)),
    }
}

fn has_combined_fields(query: &FtsQuery) -> bool {
    match query {
        FtsQuery::Match(_) | FtsQuery::Phrase(_) | FtsQuery::MultiMatch(_) => false,
        FtsQuery::CombinedFields(_) => true,
        FtsQuery::Boost(query) => {
            has_combined_fields(&query.positive) || has_combined_fields(&query.negative)
        }
        FtsQuery::Boolean(query) => {
            let mut all = query.must.iter().chain(&query.should).chain(&query.must_not);
            all.any(has_combined_fields)
        }
    }
}

/// Merges the rows that several queries found. A row has its best score.
fn best_rows(mut found: Vec<(Vec<u64>, Vec<f32>)>) -> (Vec<u64>, Vec<f32>) {
    if found.len() == 1 {
        return found.remove(0);
    }
    let mut best = HashMap::new();
    take_best(&mut best, found.into_iter().flat_map(|(ids, scores)| ids.into_iter().zip(scores)));
    best.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, RecordBatchIterator, StringArray};
    use lance::dataset::WriteParams;
    use lance::dataset::scanner::RowAddrTreeMap;
    use lance::index::DatasetIndexExt;
    use lance_index::optimize::OptimizeOptions;
    use lance_index::scalar::inverted::query::Operator;

    use super::*;
    use crate::{IndexRequest, Lake, LakeOptions, Table, build_index};

    fn trees(from: i32, to: i32) -> RecordBatch {
        let words = ["oak", "ash", "oak and ash"];
        let text = |id: i32| format!("the {} tree {id}", words[id as usize % words.len()]);
        let ids = Arc::new(Int32Array::from_iter_values(from..to)) as ArrayRef;
        let texts = Arc::new(StringArray::from_iter_values((from..to).map(text))) as ArrayRef;
        RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap()
    }

    /// Returns a table whose full-text index has two segments, which cover rows and a fragment that were deleted.
    async fn two_segments(uri: &str, has_stable_ids: bool) -> Table {
        let lake = Lake::new(LakeOptions::default());
        let first = trees(0, 40);
        let params = WriteParams { enable_stable_row_ids: has_stable_ids, ..Default::default() };
        let reader = RecordBatchIterator::new([Ok(first.clone())], first.schema());
        Dataset::write(reader, uri, Some(params)).await.unwrap();
        let request = IndexRequest::Text { column: "text".into(), positions: false };
        build_index(&lake, uri, &request, |_| ()).await.unwrap();
        let mut dataset = Dataset::open(uri).await.unwrap();
        for more in [trees(40, 70), trees(70, 80)] {
            let reader = RecordBatchIterator::new([Ok(more.clone())], more.schema());
            dataset.append(reader, None).await.unwrap();
        }
        dataset.optimize_indices(&OptimizeOptions::append()).await.unwrap();
        dataset.delete("id >= 70 OR id % 7 = 3").await.unwrap();
        lake.open(uri).await.unwrap()
    }

    /// Returns rows with their scores, by their ids.
    fn by_id((ids, scores): (Vec<u64>, Vec<f32>)) -> Vec<(u64, f32)> {
        let mut rows: Vec<_> = ids.into_iter().zip(scores).collect();
        rows.sort_by_key(|(id, _)| *id);
        rows
    }

    #[tokio::test]
    async fn words_without_edits_have_the_scores_of_lances_node() {
        let words =
            |words: &str| MatchQuery::new(words.to_owned()).with_column(Some("text".to_owned()));
        let some: RowAddrTreeMap = [0_u64, 1, 3, 5, 9, 12].into_iter().collect();
        let some = Arc::new(RowAddrMask::from_allowed(some));
        for has_stable_ids in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let uri = folder.path().join("table");
            let table = two_segments(uri.to_str().unwrap(), has_stable_ids).await;
            let index = table.text_index_alone("text").await.unwrap().unwrap();
            assert_eq!((index.segments.len(), index.uncovered_rows), (2, 0));
            assert!(index.live.is_some(), "rows were deleted");
            for (query, matches) in [
                (words("oak"), true),
                (words("ash 41 oaks"), true),
                (words("oak ash").with_operator(Operator::And), true),
                (words("Trees 5").with_boost(2.5), true),
                (words("spruce oak"), true),
                (words("spruce oak").with_operator(Operator::And), false),
                (words("spruce"), false),
                // A deleted row, and one of a fragment that is gone.
                (words("3 71"), false),
                (words("the"), false),
                (words(""), false),
            ] {
                let query = query.with_fuzziness(Some(0));
                let asked = FtsQuery::from(query.clone());
                let queries = std::slice::from_ref(&asked);
                let search = TextSearch::new(table.dataset(), vec![index], queries, true).unwrap();
                for mask in [None, Some(Arc::clone(&some))] {
                    let context = format!("{query:?}, {mask:?}, {has_stable_ids}");
                    let node = search.node(&asked, 1000, mask.clone()).unwrap();
                    let expected = by_id(node::run(node.as_ref()).await.unwrap());
                    let found = search.found_exactly(&query, 1000, mask.clone()).await.unwrap();
                    assert_eq!(by_id(found), expected, "{context}");
                    assert_eq!(!expected.is_empty(), matches, "{context}");
                    let node = search.node(&asked, 3, mask.clone()).unwrap();
                    let (_, mut expected) = node::run(node.as_ref()).await.unwrap();
                    let (_, mut best) = search.found_exactly(&query, 3, mask).await.unwrap();
                    for scores in [&mut best, &mut expected] {
                        scores.sort_by(f32::total_cmp);
                    }
                    assert_eq!(best, expected, "{context}");
                }
            }
        }
    }

    #[test]
    fn a_row_that_several_queries_find_has_its_best_score() {
        let found = vec![(vec![7, 3], vec![2.0, 1.0]), (vec![3, 9], vec![1.5, 0.5])];
        let (ids, scores) = best_rows(found);
        let mut rows: Vec<_> = ids.into_iter().zip(scores).collect();
        rows.sort_by_key(|(id, _)| *id);
        assert_eq!(rows, [(3, 1.5), (7, 2.0), (9, 0.5)]);
    }
}
