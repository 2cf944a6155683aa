//! Divides a request's rows into slices by the current routes and the state of the nodes.

use address::RowAddr;
use tracing::debug;

use super::plan::{NodeSlice, all_to_one, plan};
use crate::io_nodes::Routes;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// Divides a request's rows into slices. Rows of nodes that should not be asked now form one slice, so that they cost
/// one read of the table.
pub fn slices(
    state: &ShardState,
    routes: &Routes,
    open: &OpenTable,
    addrs: &[RowAddr],
    context: RequestContext,
) -> Vec<NodeSlice> {
    // `Node::allow_request` may use up the one try of a node whose ejection is over, and without rows no request would
    // be sent.
    if addrs.is_empty() {
        return Vec::new();
    }
    let allow_request = |owner: usize| {
        let node = &routes.nodes()[owner];
        let allowed = node.allow_request();
        if let Err(why) = allowed {
            let trace = || context.trace_id();
            debug!(node = %node.client.endpoint(), trace_id = trace(), "the table answers: {why}");
        }
        allowed.is_ok()
    };
    let slices = match routes.nodes().len() {
        0 => all_to_one(addrs, None),
        1 => all_to_one(addrs, allow_request(0).then_some(0)),
        nodes => {
            let owner_of = |chunk| routes.owner_of_chunk(open, chunk);
            plan(addrs, nodes, |addr| open.chunk_of(addr), owner_of, allow_request)
        }
    };
    for slice in slices.iter().filter(|slice| slice.owner.is_none()) {
        state.shared.count_fallback(slice.addrs.len());
    }
    slices
}
