//! Filter: has a filter evaluated for rows, by the I/O nodes that own them or else by this query node
//! (`predicate_filter.rs`).

use std::sync::Arc;

use address::RowAddr;
use futures::FutureExt;
use futures::future::try_join_all;

use super::cost::{Cost, SliceSource};
use super::predicate_filter::PredicateFilter;
use super::slice_fetch::SliceFetch;
use super::slices::slices;
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// Returns for each of `addrs` whether its row exists and passes `filter`.
pub async fn filter_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    filter: &PredicateFilter,
    context: RequestContext,
) -> Result<(Vec<bool>, Cost)> {
    let (mut cost, mut passes) = (Cost::default(), vec![false; addrs.len()]);
    let routes = &state.tier.routes();
    let began = std::time::Instant::now();
    let slices = slices(state, routes, open, addrs, context);
    cost.planned(state, began, slices.len());
    let filtered = slices.into_iter().map(|slice| {
        let (columns, source) = (filter.columns.as_slice(), SliceSource::default());
        let rerank = None;
        let fetch = SliceFetch { state, routes, open, columns, slice, rerank, context, source };
        fetch.passing(filter).boxed()
    });
    for (slice, source, passing) in try_join_all(filtered).await? {
        cost.account(routes, &slice, source);
        passing.iter().for_each(|&at| passes[slice.places[at as usize] as usize] = true);
    }
    cost.passed = Some(passes.iter().filter(|passes| **passes).count());
    Ok((passes, cost))
}
