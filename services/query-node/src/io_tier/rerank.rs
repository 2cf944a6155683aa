//! Rerank: has rows scored exactly, by the I/O nodes that own them or else by this query node (`score.rs`).

use std::sync::Arc;

use address::RowAddr;
use client::fetch::{Metric, Rerank};
use distance::Query;
use futures::FutureExt;

use super::cost::Cost;
use super::slice_fetch::StageFetch;
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The parameters of scoring.
#[derive(Clone, Copy, Debug)]
pub struct Scoring<'a> {
    /// The vector column.
    pub column: &'a str,
    /// The query vector.
    pub query: &'a [f32],
    /// The distance metric.
    pub metric: Metric,
    /// Number of nearest rows wanted.
    pub k: usize,
}

/// Returns exact distances of rows at `addrs`: at least those of the `k` nearest rows of each slice.
pub async fn score_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    scoring: Scoring<'_>,
    context: RequestContext,
) -> Result<(Vec<(RowAddr, f32)>, Cost)> {
    let Scoring { column, query, metric, k } = scoring;
    let columns = [column.to_owned()];
    let in_place = open.can_score_in_place(column);
    let rerank = in_place.then(|| Rerank::new(query, metric, k as u32));
    let query = &Query::new(query.to_vec(), metric);
    let routes = &state.tier.routes();
    let (columns, rerank) = (columns.as_slice(), rerank.as_ref());
    let stage = StageFetch { state, routes, open, columns, rerank, context };
    let mut cost = Cost::default();
    let scored = stage.each(addrs, &mut cost, |slice| slice.distances(query).boxed()).await?;
    Ok((scored.into_iter().flat_map(|(_, scored)| scored).collect(), cost))
}
