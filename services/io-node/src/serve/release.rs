//! The Release call: evicts the blocks of a file that no version in use names any more.

use std::sync::Arc;

use tables::TableUri;
use tonic::Status;
use wire::fetch::{ReleaseRequest, ReleaseResponse};
use wire::{Fault, Reason};

use crate::audit_line::AuditLine;
use crate::error::fault_of;
use crate::fetch::NodeState;
use crate::table::{OpenTable, label};

/// The maximum number of blocks that the filler looks for at once: those of 512 MiB. Fills wait for it meanwhile.
const BLOCKS_AT_ONCE: usize = 1 << 10;

/// Evicts all blocks of the file that the request names. Waits for calls that came before, so that at most one message
/// of all these calls is in the filler's queue.
///
/// # Errors
/// The table is not served; the path is not that of a file that is cached; the request has no size; the node stops.
pub async fn release(
    node: &Arc<NodeState>,
    request: ReleaseRequest,
    mut line: Option<AuditLine>,
) -> Result<ReleaseResponse, Status> {
    if let Some(line) = &mut line {
        let uri = TableUri::of_wire(&request.table_uri);
        line.names_table(uri.map(|uri| label(&uri)), "", 0);
    }
    // A call that its caller has given up leaves the queue. One that has begun is finished.
    let permit = Arc::clone(&node.release_permit).acquire_owned().await;
    let permit = permit.map_err(|error| Status::internal(error.to_string()))?;
    let evicting = evict(Arc::clone(node), request);
    // Opening a file does not run on a core's thread.
    let released = node.background.spawn(async move {
        let released = evicting.await;
        drop(permit);
        released
    });
    let released = released.await.map_err(|error| Status::internal(error.to_string()))?;
    if let Some(line) = &mut line {
        line.ends(released.as_ref().map(|_| ()));
    }
    Ok(ReleaseResponse { evicted: released? })
}

async fn evict(node: Arc<NodeState>, request: ReleaseRequest) -> Result<u64, Fault> {
    let ReleaseRequest { table_uri, file, file_bytes } = request;
    if file_bytes == 0 {
        let what = "a Release needs `file_bytes`, the file's size: blocks are named after it";
        return Err(Fault::new(Reason::BadArgument, what).with("field", "file_bytes"));
    }
    // The size is known, so opening the file asks no store for it.
    let open = node.tables.open_file(&table_uri, &file, file_bytes).await;
    let open: Arc<OpenTable> = open.map_err(|error| fault_of(&error))?;
    let mut evicted = 0;
    for fragment in open.fragments() {
        for first in (0..fragment.chunks()).step_by(BLOCKS_AT_ONCE) {
            let end = fragment.chunks().min(first + BLOCKS_AT_ONCE as u32);
            let names = (first..end).map(|block| fragment.extent(0, block)).collect();
            let stopped = || Fault::new(Reason::NodeUnavailable, "the node is shutting down");
            evicted += node.fills.evict(names).await.ok_or_else(stopped)?;
        }
    }
    Ok(evicted)
}
