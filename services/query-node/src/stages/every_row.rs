//! Exact vector search: has the I/O nodes compare a vector with every row that passes the filter, without an index.

use std::sync::Arc;

use address::RowAddr;
use client::fetch::Metric;
use futures::FutureExt;
use lake::Metric as IndexMetric;

use super::search::{Hits, Path, is_single};
use super::validate::Question;
use crate::admission::Ask;
use crate::counters::{IndexKind, SearchBy, SearchVia};
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::{Measure, OpenTable};

/// The maximum number of rows that I/O nodes compare. Their addresses take 8 MB. Of more rows, Lance's scanner reads the
/// vectors from the table.
const ROWS_MAX: usize = 1_000_000;

/// Returns the rows to compare. Returns `None` if Lance's scanner has to compare them: more than [`ROWS_MAX`] pass the
/// filter, no I/O node is available, or the column does not have one vector of floats per row.
pub(super) async fn every_row(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    column: &str,
    context: RequestContext,
) -> Result<Option<Hits>> {
    let metric = match question.exact {
        Some(metric) => metric,
        None => open.table.vector_metric(column).await?,
    };
    let schema = open.table.schema();
    let is_floats = schema.field_with_name(column).is_ok_and(|it| is_single(it.data_type()));
    let metric = match scored_by(metric) {
        Some(metric) if is_floats && !question.indexed_only => metric,
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
    if rows.len() > ROWS_MAX {
        return Ok(None);
    }
    let (by, via) = (SearchBy::Vector, SearchVia::Exhaustive);
    state.metrics.searched(by, via, IndexKind::Unindexed, None, rows.len());
    let hits = Hits::unrefined(Vec::new(), Measure::Distance, Path::EveryRow);
    Ok(Some(Hits { to_score: rows.into(), refine: Some(metric), exhaustive: true, ..hits }))
}

/// Returns the live rows that pass `filter`, ascending; of more than [`ROWS_MAX`], one more than that.
async fn rows_passing(open: &OpenTable, filter: Option<String>) -> Result<Vec<RowAddr>> {
    Ok(match filter {
        Some(filter) => open.table.search_filter(&filter, ROWS_MAX + 1).await?.rows,
        None => open.table.live_rows(0..open.table.row_count()).await?,
    })
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
