//! Has the I/O nodes open a version of a table while its rows are searched for.
//!
//! An I/O node opens a version when it is first asked for its rows, and reads the manifest for it. A first search or
//! look-up reads an index meanwhile, so its fetch does not wait for the manifest afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use client::fetch::TableVersion;

use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// With more I/O nodes, only a request that probably needs rows of each of them has the version opened ahead.
const NODES_FEW: usize = 8;

/// Has the I/O nodes open `columns` of a version, of which a request will probably need `rows` rows. Returns at once, and
/// does so only for the first request for the version, and only for tables in object stores: reading the manifest from a
/// folder takes no time. The request's fetch then waits for the opening that is in progress, and gets its error.
pub fn open_ahead(
    state: &ShardState,
    open: &Arc<OpenTable>,
    columns: &[String],
    rows: usize,
    context: RequestContext,
) {
    let routes = state.tier.routes();
    let is_in_folder = open.table.canonical_uri().folder().is_some();
    if columns.is_empty() || is_in_folder || routes.nodes().len() > rows.max(NODES_FEW) {
        return;
    }
    if !routes.is_available()
        || open.is_opened_ahead.load(Relaxed)
        || open.is_opened_ahead.swap(true, Relaxed)
    {
        return;
    }
    let deadline = context.for_io_nodes(None).deadline;
    for node in routes.nodes().iter().filter(|node| node.is_available()) {
        let (node, open, columns) = (Arc::clone(node), Arc::clone(open), columns.to_vec());
        state.runtime.spawn(async move {
            let (uri, branch, identity) = (open.table.uri(), open.branch(), open.identity.as_str());
            let table = TableVersion { uri, branch, version: open.version(), identity };
            let _ = node.client.open(table, &columns, deadline).await;
        });
    }
}
