//! Warm: fills chunks ahead of their use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use address::ChunkId;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::fetch::{ChunkRange, WarmProgress, WarmRequest};
use wire::{Fault, Reason};

use crate::error::fault_of;
use crate::fill::{FillKey, FillOutcome, Pace};
use crate::node::Shared;
use crate::table::{OpenTable, Projection};

/// Fills that one Warm asks for at the same time, a fill slot: enough that none stands idle.
const ASKED_A_SLOT: usize = 2;

/// Starts to fill; progress comes over the stream, the last message when all is done.
///
/// # Errors
/// A table, version or column that isn't there; a chunk that isn't.
pub async fn begin(
    shared: &Arc<Shared>,
    request: WarmRequest,
    stopping: watch::Receiver<bool>,
) -> Result<ReceiverStream<Result<WarmProgress, Status>>, Status> {
    let opened = {
        let (tables, uri) = (shared.tables.clone(), request.table_uri.clone());
        let (version, identity) = (request.version, request.identity.clone());
        let open = async move { tables.open(&uri, version, &identity).await };
        // Lake's work belongs to the background, not to a core.
        shared.background.spawn(open).await
    };
    let table = opened
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(|error| Status::from(fault_of(&error)))?;
    let keys = keys(&table, &request).map_err(Status::from)?;
    let (progress, stream) = mpsc::channel(4);
    let pace = Pace::new(request.bytes_per_s, Instant::now());
    shared.background.spawn(fill_all(Arc::clone(shared), table, keys, pace, progress, stopping));
    Ok(ReceiverStream::new(stream))
}

/// Which chunks of which packs.
fn keys(table: &Arc<OpenTable>, request: &WarmRequest) -> Result<Vec<FillKey>, Fault> {
    let packs: Vec<usize> = match request.columns.as_slice() {
        [] => (0..table.packs().len()).collect(),
        columns => {
            let projection =
                Projection::new(Arc::clone(table), columns).map_err(|error| fault_of(&error))?;
            projection.parts.iter().map(|part| part.pack).collect()
        }
    };
    let chunks = match request.chunks.as_slice() {
        [] => all_chunks(table),
        ranges => chunks_of(table, ranges)?,
    };
    Ok(chunks
        .iter()
        .flat_map(|&chunk| packs.iter().map(move |&pack| FillKey { pack, chunk }))
        .collect())
}

fn all_chunks(table: &OpenTable) -> Vec<ChunkId> {
    let chunks = |fragment: &crate::table::OpenFragment| {
        let id = fragment.id;
        (0..fragment.chunks()).map(move |index| ChunkId { fragment: id, index })
    };
    table.fragments().iter().flat_map(chunks).collect()
}

fn chunks_of(table: &OpenTable, ranges: &[ChunkRange]) -> Result<Vec<ChunkId>, Fault> {
    let mut chunks = Vec::new();
    let total: u64 = table.fragments().iter().map(|fragment| u64::from(fragment.chunks())).sum();
    for range in ranges {
        let known = table.fragment(range.fragment).map_or(0, |fragment| fragment.chunks());
        let end = range.first.checked_add(range.count).filter(|&end| end <= known);
        let Some(end) = end else {
            let what = format!(
                "chunks {} to {} of fragment {}, which has {known}",
                range.first,
                u64::from(range.first) + u64::from(range.count),
                range.fragment
            );
            return Err(Fault::new(Reason::BadArgument, what));
        };
        let fragment = range.fragment;
        if chunks.len() as u64 + u64::from(range.count) > total {
            let what =
                format!("the ranges name more chunks than the table's {total}; name each once");
            return Err(Fault::new(Reason::BadArgument, what));
        }
        chunks.extend((range.first..end).map(|index| ChunkId { fragment, index }));
    }
    Ok(chunks)
}

/// The key, once the pace allows the next.
async fn in_its_time(pace: &Mutex<Pace>, key: FillKey) -> FillKey {
    let wait = locked(pace).wait(Instant::now());
    if let Some(until) = wait {
        tokio::time::sleep_until(until.into()).await;
    }
    key
}

/// Only one task has it.
fn locked(pace: &Mutex<Pace>) -> MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|&stop| stop).await;
}

/// Fills all, in order, and tells how far it is after each; stops when nobody listens any more.
async fn fill_all(
    shared: Arc<Shared>,
    table: Arc<OpenTable>,
    keys: Vec<FillKey>,
    pace: Pace,
    progress: mpsc::Sender<Result<WarmProgress, Status>>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut now = WarmProgress { extents_total: keys.len() as u64, ..Default::default() };
    let fills = &shared.fills;
    let table = &table;
    let asked = shared.config.fills * ASKED_A_SLOT;
    let pace = &Mutex::new(pace);
    let asks = stream::iter(keys).then(|key| in_its_time(pace, key));
    let asks = asks.map(|key| fills.fill(table, key).boxed());
    let mut outcomes = asks.buffer_unordered(asked).boxed();
    loop {
        let outcome = tokio::select! {
            outcome = outcomes.next() => outcome,
            () = progress.closed() => return,
            () = stopped(&mut stopping) => {
                let stopped = Fault::new(Reason::NodeUnavailable, "the node is shutting down");
                return drop(progress.send(Err(stopped.into())).await);
            }
        };
        let Some(outcome) = outcome else { break };
        match outcome {
            FillOutcome::Found => {
                now.extents_done += 1;
                now.extents_found += 1;
            }
            FillOutcome::Filled(bytes) => {
                now.extents_done += 1;
                now.bytes_written += bytes;
                locked(pace).spend(bytes, Instant::now());
            }
            FillOutcome::Failed(why) => {
                now.extents_failed += 1;
                now.last_error = why.to_string();
            }
        }
        // A slow listener sees fewer steps, and holds nothing up.
        match progress.try_send(Ok(now.clone())) {
            Err(mpsc::error::TrySendError::Closed(_)) => return,
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => {}
        }
    }
    let _ = progress.send(Ok(now)).await;
}
