//! Search: the indexes alone, giving row addresses and approximate distances or scores.

use address::RowAddr;
use arrow_schema::DataType;
use client::fetch::Metric;
use futures::FutureExt;
use lake::{Metric as IndexMetric, TextQuery, VectorQuery};

use super::validate::{By, Question};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::state::State;
use crate::tables::OpenTable;

/// What the numbers beside the addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Distances; smaller is nearer.
    Distance,
    /// Scores; larger is better.
    Score,
    /// There are none.
    Nothing,
}

/// What the index found, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    /// Addresses with distances or scores (0 when there are none).
    pub rows: Vec<(RowAddr, f32)>,
    /// What the numbers are.
    pub measure: Measure,
    /// How to score the rows exactly; `None` if that was not asked for, the numbers are exact
    /// already, or can't be had.
    pub refine: Option<Metric>,
}

/// Searches; `Like` has become `Vector` before.
pub async fn search(
    state: &State,
    open: &OpenTable,
    question: &Question,
    deadline: Deadline,
) -> Result<Hits> {
    let search = async {
        match &question.by {
            By::Vector { column, vector } => by_vector(open, question, column, vector).await,
            By::Text { column, words } => by_words(open, question, column, words).await,
            By::Filter { filter } => by_filter(open, question, filter).await,
            // Nothing is like a row whose vector was not looked up.
            By::Like { .. } => by_filter(open, question, "false").await,
        }
    }
    .boxed();
    state.cores.run("search", deadline, search).await
}

async fn by_vector(
    open: &OpenTable,
    question: &Question,
    column: &str,
    vector: &[f32],
) -> Result<Hits> {
    let refine = match question.refine_factor {
        0 => None,
        _ => refinable(open, column).await?,
    };
    let factor = if refine.is_some() { question.refine_factor } else { 1 };
    let query = VectorQuery {
        column: Some(column.to_owned()),
        vector: vector.to_vec(),
        k: question.k * factor,
        nprobes: Some(question.nprobes),
        ef: None,
        filter: question.filter.clone(),
    };
    let found = open.table.search_vector(&query).await?;
    let rows = found.into_iter().map(|hit| (hit.addr, hit.distance)).collect();
    Ok(Hits { rows, measure: Measure::Distance, refine })
}

/// The metric to score a column's rows by, if its index only knows about: without an index, rows are
/// compared one by one, and their distances are exact.
async fn refinable(open: &OpenTable, column: &str) -> Result<Option<Metric>> {
    let schema = open.table.schema();
    let several = schema.field_with_name(column).is_ok_and(|field| !is_single(field.data_type()));
    let indexes = open.table.indexes().await?;
    let mut of_column = indexes.iter().filter(|index| index.columns.iter().any(|it| it == column));
    if several || !of_column.any(|index| index.is_vector()) {
        return Ok(None);
    }
    Ok(match open.table.vector_metric(column).await? {
        IndexMetric::L2 => Some(Metric::L2),
        IndexMetric::Cosine => Some(Metric::Cosine),
        IndexMetric::Dot => Some(Metric::Dot),
        IndexMetric::Hamming => None,
    })
}

/// A vector a row, not a list of them.
fn is_single(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(_, _))
}

async fn by_words(
    open: &OpenTable,
    question: &Question,
    column: &Option<String>,
    words: &str,
) -> Result<Hits> {
    let (column, words, k) = (column.clone(), words.to_owned(), question.k);
    let filter = question.filter.clone();
    let found = open.table.search_text(&TextQuery { column, words, k, filter }).await?;
    let rows = found.into_iter().map(|hit| (hit.addr, hit.score)).collect();
    Ok(Hits { rows, measure: Measure::Score, refine: None })
}

async fn by_filter(open: &OpenTable, question: &Question, filter: &str) -> Result<Hits> {
    let found = open.table.search_filter(filter, question.k).await?;
    let rows = found.into_iter().map(|addr| (addr, 0.0)).collect();
    Ok(Hits { rows, measure: Measure::Nothing, refine: None })
}
