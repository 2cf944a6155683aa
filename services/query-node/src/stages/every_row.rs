//! Exact vector search: has the I/O nodes compare a vector with every row that passes the filter, without an index.

use std::sync::Arc;

use address::RowAddr;
use client::fetch::Metric;
use futures::FutureExt;
use lake::Metric as IndexMetric;

use super::validate::Question;
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::{Ask, ShardState};
use crate::tables::OpenTable;

/// The maximum number of rows that I/O nodes compare. Their addresses take 8 MB. Of more rows, Lance's scanner reads the
/// vectors from the table.
const ROWS_MAX: usize = 1_000_000;

/// Returns the rows to compare, and the metric. Returns `None` if Lance's scanner has to compare them: more than
/// [`ROWS_MAX`] pass the filter, no I/O node is available, or they can't score the column.
pub(super) async fn every_row(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    column: &str,
    context: RequestContext,
) -> Result<Option<(Arc<[RowAddr]>, Metric)>> {
    let metric = match question.exact {
        Some(metric) => metric,
        None => open.table.vector_metric(column).await?,
    };
    let metric = match scored_by(metric) {
        Some(metric) if open.can_score_in_place(column) && !question.indexed_only => metric,
        _ => return Ok(None),
    };
    let has_filter = question.filter.is_some();
    if !state.tier.routes().is_available()
        || (!has_filter && open.table.row_count() > ROWS_MAX as u64)
    {
        return Ok(None);
    }
    let (opened, filter) = (Arc::clone(open), question.filter.clone());
    let list = async move { rows_passing(&opened, filter).await }.boxed();
    let ask = Ask { during: "search", rows: question.k, context };
    let rows = state.shared.admission.run_in_background(ask, list).await?;
    Ok(rows.map(|rows| (rows, metric)))
}

/// Returns the live rows that pass `filter`, ascending; `None` if they are more than [`ROWS_MAX`].
async fn rows_passing(open: &OpenTable, filter: Option<String>) -> Result<Option<Arc<[RowAddr]>>> {
    let rows = match filter {
        Some(filter) => open.table.rows_passing(&filter, ROWS_MAX).await?,
        None => Some(open.table.live_rows(0..open.table.row_count()).await?),
    };
    Ok(rows.map(Arc::from))
}

/// Returns the metric by which I/O nodes score rows, if they do.
pub(super) fn scored_by(metric: IndexMetric) -> Option<Metric> {
    match metric {
        IndexMetric::L2 => Some(Metric::L2),
        IndexMetric::Cosine => Some(Metric::Cosine),
        IndexMetric::Dot => Some(Metric::Dot),
        IndexMetric::Hamming => None,
    }
}
