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

/// The maximum number of rows that are scored at the same time. A search of a table with many rows that its index does
/// not cover scores more than this, and would otherwise fill the queues of the I/O nodes.
pub const SCORED_AT_ONCE: usize = 50_000;

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

/// Returns exact distances of rows at `addrs`, which are ascending: at least those of the `k` nearest rows. Of rows at
/// the same distance, those with lower addresses count as nearer.
pub async fn score_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    mut addrs: impl Iterator<Item = RowAddr>,
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
    let mut scored = Vec::new();
    loop {
        let part: Vec<RowAddr> = addrs.by_ref().take(SCORED_AT_ONCE).collect();
        if part.is_empty() {
            break;
        }
        let of_part = stage.each(&part, &mut cost, |slice| slice.distances(query).boxed()).await?;
        scored.extend(of_part.into_iter().flat_map(|(_, scored)| scored));
    }
    Ok((scored, cost))
}
