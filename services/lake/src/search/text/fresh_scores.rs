//! Scores the rows that full-text indexes do not cover, beside the search of the indexes.
//!
//! Lance's own node for such rows answers each match and each phrase of a query. It splits all of the texts into words.
//! As in Lance's scanner, a row's score depends on the words of the index and of those uncovered rows that pass the
//! filter; the scores of rows in the index depend on the index alone. A fuzzy word matches only exactly. The scores of
//! matches and phrases are combined here, as Lance's nodes for combined queries do.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use datafusion::datasource::memory::MemorySourceConfig;
use futures::FutureExt;
use futures::future::BoxFuture;
use lance::Dataset;
use lance::io::exec::fts::FlatMatchQueryExec;
use lance_core::{Error, Result};
use lance_index::scalar::inverted::DocumentGranularity;
use lance_index::scalar::inverted::query::{
    BooleanQuery, FtsQuery, FtsSearchParams, MatchQuery, Operator,
};

use super::fresh_text::TEXT;
use super::index::TextIndex;
use super::node;
use crate::search::filter::AllowList;
use crate::search::hit::{ScoreHit, row_ids, take_best};

/// The scores of the rows that match a query, by their ids.
type Scores = HashMap<u64, f32>;

/// The uncovered rows of some columns.
pub(in crate::search) struct FreshRows<'a> {
    dataset: &'a Arc<Dataset>,
    /// The index of each column, and the texts of the rows that it does not cover. Not empty.
    columns: Vec<(&'a TextIndex, RecordBatch)>,
}

impl<'a> FreshRows<'a> {
    /// Takes those of the rows in `columns` that are in `list`; all of them without a list.
    pub fn new(
        dataset: &'a Arc<Dataset>,
        columns: &[(&'a TextIndex, RecordBatch)],
        list: Option<&AllowList>,
    ) -> Result<Self> {
        let mut passing = Vec::with_capacity(columns.len());
        for (index, rows) in columns {
            let rows = match list {
                Some(list) => only(rows, list)?,
                None => rows.clone(),
            };
            passing.push((*index, rows));
        }
        Ok(Self { dataset, columns: passing })
    }

    /// Returns the number of the rows; of several columns, the largest.
    pub fn len(&self) -> usize {
        self.columns.iter().map(|(_, rows)| rows.num_rows()).max().unwrap_or(0)
    }

    /// Returns the rows that match one of `queries`, in any order, with their best scores.
    pub async fn search(&self, queries: &[FtsQuery]) -> Result<Vec<ScoreHit>> {
        let mut best = Scores::new();
        for query in queries {
            take_best(&mut best, self.scores(query).await?);
        }
        let Some((index, _)) = self.columns.first() else { return Ok(Vec::new()) };
        let (ids, scores): (Vec<u64>, Vec<f32>) = best.into_iter().unzip();
        let rows = index.addresses.of(&ids)?.into_iter().zip(scores);
        Ok(rows.filter_map(|(addr, score)| Some(ScoreHit { addr: addr?, score })).collect())
    }

    fn scores<'b>(&'b self, query: &'b FtsQuery) -> BoxFuture<'b, Result<Scores>> {
        async move {
            match query {
                FtsQuery::Match(query) => self.leaf(query.clone(), None).await,
                FtsQuery::Phrase(phrase) => {
                    let words = MatchQuery::new(phrase.terms.clone());
                    let words = words.with_column(phrase.column.clone());
                    self.leaf(words.with_operator(Operator::And), Some(phrase.slop)).await
                }
                FtsQuery::MultiMatch(query) => {
                    let mut best = Scores::new();
                    for query in &query.match_queries {
                        take_best(&mut best, self.leaf(query.clone(), None).await?);
                    }
                    Ok(best)
                }
                FtsQuery::Boost(query) => {
                    let mut scores = self.scores(&query.positive).await?;
                    for (id, score) in self.scores(&query.negative).await? {
                        let lowered = |it: &mut f32| *it -= query.negative_boost * score;
                        scores.entry(id).and_modify(lowered);
                    }
                    Ok(scores)
                }
                FtsQuery::Boolean(query) => self.boolean(query).await,
                FtsQuery::CombinedFields(_) => {
                    Err(Error::internal("combined columns are not searched in uncovered rows"))
                }
            }
        }
        .boxed()
    }

    async fn boolean(&self, query: &BooleanQuery) -> Result<Scores> {
        let mut must = query.must.iter();
        let mut all = match must.next() {
            Some(first) => self.scores(first).await?,
            None => Scores::new(),
        };
        for query in must {
            let scores = self.scores(query).await?;
            all.retain(|id, sum| scores.get(id).map(|score| *sum += score).is_some());
        }
        for query_of_any in &query.should {
            for (id, score) in self.scores(query_of_any).await? {
                let entry = all.entry(id).and_modify(|sum| *sum += score);
                if query.must.is_empty() {
                    entry.or_insert(score);
                }
            }
        }
        for excluded in &query.must_not {
            for id in self.scores(excluded).await?.keys() {
                all.remove(id);
            }
        }
        Ok(all)
    }

    /// Returns the rows that match `query`; with `slop`, those that have its words as a phrase.
    async fn leaf(&self, query: MatchQuery, slop: Option<u32>) -> Result<Scores> {
        let of_column =
            |(index, _): &&(&TextIndex, _)| query.column.as_ref() == Some(&index.column);
        let Some((index, rows)) = self.columns.iter().find(of_column) else {
            return Ok(Scores::new());
        };
        if rows.num_rows() == 0 {
            return Ok(Scores::new());
        }
        let rows = MemorySourceConfig::try_new_exec(&[vec![rows.clone()]], rows.schema(), None)?;
        let node = FlatMatchQueryExec::new_with_segments_and_document_granularity(
            Arc::clone(self.dataset),
            query,
            FtsSearchParams::new().with_phrase_slop(slop),
            rows,
            index.segments.clone(),
            DocumentGranularity::Row,
            TEXT.to_owned(),
        );
        let (ids, scores) = node::run(&node).await?;
        Ok(ids.into_iter().zip(scores).collect())
    }
}

/// Returns those of `rows` that are in `list`.
fn only(rows: &RecordBatch, list: &AllowList) -> Result<RecordBatch> {
    let pass: Vec<bool> = row_ids(rows)?.iter().map(|id| list.contains(*id)).collect();
    if pass.iter().all(|passes| *passes) {
        return Ok(rows.clone());
    }
    Ok(filter_record_batch(rows, &BooleanArray::from(pass))?)
}
