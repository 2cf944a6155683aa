//! The Warm call: fills chunks before they are requested.

use std::sync::Arc;

use tables::TableUri;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wire::fetch::{WarmProgress, WarmRequest};
use wire::{Fault, Reason};

use crate::audit_line::AuditLine;
use crate::cache::{ChunkSelection, Pace, WarmPlan};
use crate::error::fault_of;
use crate::fetch::NodeState;
use crate::table::label;

/// Starts to fill the chunks that a Warm request selects. The stream reports progress, and its last message is sent
/// when all fills have ended or the node stops.
///
/// # Errors
/// The table is not served; a version, column, chunk or row does not exist; the request has fields that exclude each
/// other; the store fails.
pub async fn begin(
    node: &Arc<NodeState>,
    request: WarmRequest,
    mut line: Option<AuditLine>,
    stopping: CancellationToken,
) -> Result<ReceiverStream<Result<WarmProgress, Status>>, Status> {
    if let Some(line) = &mut line {
        let uri = TableUri::of_wire(&request.table_uri);
        line.names_table(uri.map(|uri| label(&uri)), &request.branch, request.version);
    }
    let pace = Pace::new(request.bytes_per_s, Instant::now());
    // Opening a table does not run on a core's thread.
    let work = node.background.spawn(work(Arc::clone(node), request)).await;
    let work = work.map_err(|error| Status::internal(error.to_string()))?;
    let work = work.inspect_err(|fault| line.iter_mut().for_each(|line| line.ends(Err(fault))))?;
    let (progress, stream) = mpsc::channel(4);
    let node = Arc::clone(node);
    let background = node.background.clone();
    background.spawn(async move {
        let filled = fill(node, work, pace, progress, stopping).await;
        if let (Some(line), Some(filled)) = (&mut line, filled) {
            line.ends(filled.as_ref().map(|_| ()));
        }
    });
    Ok(ReceiverStream::new(stream))
}

async fn work(node: Arc<NodeState>, request: WarmRequest) -> Result<WarmPlan, Fault> {
    let WarmRequest {
        table_uri,
        branch,
        version,
        columns,
        chunks,
        identity,
        rows,
        file,
        file_bytes,
        ..
    } = request;
    let is_file = !file.is_empty();
    let others = [columns.len(), rows.len(), identity.len(), branch.len()];
    if is_file && (version != 0 || others != [0; 4]) {
        let what =
            "a Warm of a file has no version, columns, rows, identity or branch; leave them out";
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let which = match (chunks.is_empty(), rows.is_empty()) {
        (true, true) => ChunkSelection::All,
        (false, true) => ChunkSelection::Chunks(chunks),
        (true, false) => ChunkSelection::Rows(rows),
        (false, false) => {
            let what = "a Warm names chunks or rows, not both";
            return Err(Fault::new(Reason::BadArgument, what));
        }
    };
    let table = match is_file {
        true => node.tables.open_file(&table_uri, &file, file_bytes).await,
        false => node.tables.open(&table_uri, &branch, version, &identity).await,
    };
    WarmPlan::new(table.map_err(|error| fault_of(&error))?, &columns, which).await
}

/// Fills the chunks and reports progress. Ends early if the caller is gone or the node stops. Returns the last message,
/// or `None` if the caller is gone.
async fn fill(
    node: Arc<NodeState>,
    work: WarmPlan,
    pace: Pace,
    progress: mpsc::Sender<Result<WarmProgress, Status>>,
    stopping: CancellationToken,
) -> Option<Result<WarmProgress, Fault>> {
    let report = |now: &WarmProgress| match progress.try_send(Ok(now.clone())) {
        Err(mpsc::error::TrySendError::Closed(_)) => false,
        // A slow caller receives fewer reports, and delays nothing.
        Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => true,
    };
    let last = tokio::select! {
        biased;
        () = progress.closed() => return None,
        () = stopping.cancelled() => {
            Err(Fault::new(Reason::NodeUnavailable, "the node is shutting down"))
        }
        last = work.fill(&node.fills, node.config.fills, pace, report) => Ok(last),
    };
    let sent = progress.send(last.clone().map_err(Status::from)).await;
    sent.is_ok().then_some(last)
}
