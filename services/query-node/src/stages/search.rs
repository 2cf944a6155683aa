//! Search: searches indexes, which return row addresses with approximate distances or scores.

use std::sync::Arc;

use address::RowAddr;
use arrow_schema::DataType;
use client::fetch::Metric;
use futures::FutureExt;
use lake::{DistanceHit, Metric as IndexMetric, TextQuery, VectorQuery};
use spelling::counted;

use super::validate::{By, Question};
use crate::admission::Ask;
use crate::counters::{IndexKind, SearchBy, SearchVia};
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::{Measure, OpenTable};

/// The rows that a search found, best first, before any refinement.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    /// Addresses with distances or scores (0 if the search gives neither).
    pub rows: Vec<(RowAddr, f32)>,
    /// The meaning of the numbers in `rows`.
    pub measure: Measure,
    /// The metric by which to score the rows exactly; `None` if that was not requested, is not possible, or the
    /// distances are exact already.
    pub refine: Option<Metric>,
    /// Whether a vector was compared with every row that passes the filter, because there is no index.
    pub exhaustive: bool,
}

impl Hits {
    fn unrefined(rows: Vec<(RowAddr, f32)>, measure: Measure) -> Self {
        Self { rows, measure, refine: None, exhaustive: false }
    }

    /// Describes the result for `explain`.
    pub fn detail(&self, question: &Question) -> String {
        let candidates = counted(self.rows.len(), "candidate");
        match (self.exhaustive, &question.filter) {
            (false, _) => candidates,
            (true, None) => format!("{candidates}, of every row: the vectors have no index"),
            (true, Some(_)) => {
                format!("{candidates}, of every row that passes: the vectors have no index")
            }
        }
    }
}

/// Runs a search. The caller has already replaced [`By::Like`] by [`By::Vector`].
pub async fn search(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    context: RequestContext,
) -> Result<Hits> {
    let (admission, open) = (&state.shared.admission, Arc::clone(open));
    let filter = question.filter.clone();
    let k = question.k;
    let ask = Ask { during: "search", rows: k, context };
    match &question.by {
        By::Vector { column, vector } => {
            by_vector(state, open, question, column, vector, context).await
        }
        By::Text { column, words } => {
            let query = TextQuery { column: column.clone(), words: words.clone(), k, filter };
            let search = async move { by_words(&open, &query).await }.boxed();
            let hits = admission.run_in_background(ask, search).await?;
            let (by, via) = (SearchBy::Text, SearchVia::Scanner);
            state.metrics.searched(by, via, IndexKind::Inverted, None, hits.rows.len());
            Ok(hits)
        }
        By::Filter { filter } => {
            let filter = filter.clone();
            let search = async move { by_filter(&open, &filter, k).await }.boxed();
            let hits = admission.run_in_background(ask, search).await?;
            let (by, via) = (SearchBy::Filter, SearchVia::Scanner);
            state.metrics.searched(by, via, IndexKind::Planned, None, hits.rows.len());
            Ok(hits)
        }
        // The caller has already replaced `Like`.
        By::Like { .. } => Ok(Hits::unrefined(Vec::new(), Measure::Distance)),
    }
}

/// Searches by vector. If the index's partitions are open and the search needs no plan, it runs on this core, because
/// Lance compares vectors on its own threads. Otherwise it runs in the background.
async fn by_vector(
    state: &ShardState,
    open: Arc<OpenTable>,
    question: &Question,
    column: &str,
    vector: &[f32],
    context: RequestContext,
) -> Result<Hits> {
    let index = index_of(&open, column, question.refine_factor > 0);
    let (kind, refine) = context.bound("search", index.boxed()).await?;
    let factor = if refine.is_some() { question.refine_factor } else { 1 };
    let query = VectorQuery {
        column: Some(column.to_owned()),
        vector: vector.to_vec(),
        k: question.k * factor,
        nprobes: Some(question.nprobes),
        ef: None,
        filter: question.filter.clone(),
    };
    let admission = &state.shared.admission;
    let ask = Ask { during: "search", rows: query.k, context };
    let direct = async { Ok(open.table.direct_search(&query).await?) }.boxed();
    let (found, via) = match context.bound("search", direct).await? {
        Some(search) => {
            let search = async { Ok(search.await?) }.boxed();
            (admission.run_on_core(ask, search).await?, SearchVia::Partitions)
        }
        None => {
            let open = Arc::clone(&open);
            let search = async move { open_and_search(&open, &query).await }.boxed();
            admission.run_in_background(ask, search).await?
        }
    };
    let nprobes = (kind != IndexKind::Unindexed).then_some(question.nprobes);
    state.metrics.searched(SearchBy::Vector, via, kind, nprobes, found.len());
    let rows = found.into_iter().map(|hit| (hit.addr, hit.distance)).collect();
    let exhaustive = kind == IndexKind::Unindexed;
    Ok(Hits { rows, measure: Measure::Distance, refine, exhaustive })
}

/// Opens the index's partitions and searches them, or runs a planned search if the query needs a plan.
async fn open_and_search(
    open: &OpenTable,
    query: &VectorQuery,
) -> Result<(Vec<DistanceHit>, SearchVia)> {
    open.table.open_search(query).await?;
    Ok(match open.table.direct_search(query).await? {
        Some(search) => (search.await?, SearchVia::Partitions),
        None => (open.table.planned_search(query).await?, SearchVia::Scanner),
    })
}

/// Returns the kind of a column's index and, if hits are to be refined, the metric by which to score them exactly.
/// Without an index rows are compared one by one, and distances are exact already.
async fn index_of(
    open: &OpenTable,
    column: &str,
    is_refined: bool,
) -> Result<(IndexKind, Option<Metric>)> {
    let indexes = open.table.indexes().await?;
    let mut of_column = indexes.iter().filter(|index| index.columns.iter().any(|it| it == column));
    let Some(index) = of_column.find(|index| index.is_vector()) else {
        return Ok((IndexKind::Unindexed, None));
    };
    let kind = IndexKind::of_vectors(&index.kind);
    let schema = open.table.schema();
    let several = schema.field_with_name(column).is_ok_and(|field| !is_single(field.data_type()));
    if several || !is_refined {
        return Ok((kind, None));
    }
    let metric = match open.table.vector_metric(column).await? {
        IndexMetric::L2 => Some(Metric::L2),
        IndexMetric::Cosine => Some(Metric::Cosine),
        IndexMetric::Dot => Some(Metric::Dot),
        IndexMetric::Hamming => None,
    };
    Ok((kind, metric))
}

/// Returns whether a column has one vector per row, rather than a list of them.
fn is_single(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(_, _))
}

async fn by_words(open: &OpenTable, query: &TextQuery) -> Result<Hits> {
    let found = open.table.search_text(query).await?;
    let rows = found.into_iter().map(|hit| (hit.addr, hit.score)).collect();
    Ok(Hits::unrefined(rows, Measure::Score))
}

async fn by_filter(open: &OpenTable, filter: &str, k: usize) -> Result<Hits> {
    let found = open.table.search_filter(filter, k).await?;
    let rows = found.into_iter().map(|addr| (addr, 0.0)).collect();
    Ok(Hits::unrefined(rows, Measure::Nothing))
}
