//! Filter: has a filter evaluated for rows, by the I/O nodes that own them or else by this query node
//! (`predicate_filter.rs`).

use std::sync::Arc;

use address::RowAddr;
use futures::FutureExt;

use super::cost::Cost;
use super::predicate_filter::PredicateFilter;
use super::slice_fetch::StageFetch;
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The approximate size in bytes of the packed rows that a filter is evaluated for at a time. I/O nodes hold a
/// batch's rows in the memory that they reserve for requests, of which each core has at least 32 MiB by default.
const BYTES_AT_ONCE: usize = 8 << 20;

/// Returns for each of `addrs` whether its row exists and passes `filter`.
pub async fn filter_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    filter: &PredicateFilter,
    context: RequestContext,
) -> Result<(Vec<bool>, Cost)> {
    let (mut cost, mut passes) = (Cost::default(), Vec::with_capacity(addrs.len()));
    for addrs in addrs.chunks((BYTES_AT_ONCE / open.packed_row_bytes.max(1)).max(1)) {
        passes.extend(filter_at_once(state, open, addrs, filter, &mut cost, context).await?);
    }
    cost.passed = Some(passes.iter().filter(|passes| **passes).count());
    Ok((passes, cost))
}

/// Like [`filter_rows`], for rows that are sent at the same time.
async fn filter_at_once(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    filter: &PredicateFilter,
    cost: &mut Cost,
    context: RequestContext,
) -> Result<Vec<bool>> {
    let mut passes = vec![false; addrs.len()];
    let routes = &state.tier.routes();
    let columns = filter.columns.as_slice();
    let stage = StageFetch { state, routes, open, columns, rerank: None, context };
    let nodes_before = std::mem::take(&mut cost.nodes);
    for (slice, passing) in stage.each(addrs, cost, |slice| slice.passing(filter).boxed()).await? {
        passing.iter().for_each(|&at| passes[slice.places[at as usize] as usize] = true);
    }
    // `filter_rows` calls this for one part of the rows after the other. The parts mostly ask the same nodes, which are
    // to count once, so the part that asked the most nodes counts.
    cost.nodes = cost.nodes.max(nodes_before);
    Ok(passes)
}
