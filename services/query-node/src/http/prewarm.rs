//! Calls that fill caches ahead of use. They end when the caches are filled.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wire::query::WarmRequest;
use wire::{Fault, Reason};

use super::answer::Answer;
use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::requests::{Warm, indexes_of};
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The number of progress messages that a Warm may be ahead of their reader, which keeps only the last one.
const STEPS_AHEAD: usize = 16;

/// Loads an index into the node's memory, as far as it fits into `index_cache`.
pub async fn index(
    state: &ShardState,
    open: &Arc<OpenTable>,
    name: String,
    call: &mut Call,
) -> Result<Answer> {
    if indexes_of(open, call.context).await?.iter().all(|index| index.name != name) {
        return Err(QueryError::IndexUnknown { table: open.name.clone(), index: name });
    }
    let table = open.table.clone();
    // The load takes no permit of the admission queue, because it mostly waits for the I/O nodes, and may take minutes.
    // One load runs at a time.
    let load = async {
        let _permit = state.shared.prewarms.acquire().await;
        let load = async move { table.prewarm_index(&name).await };
        let mut loads = JoinSet::new();
        loads.spawn_on(load, state.shared.catalog.background());
        match loads.join_next().await {
            Some(Ok(loaded)) => Ok(loaded?),
            Some(Err(_)) | None => {
                Err(Fault::new(Reason::Internal, "loading the index panicked").into())
            }
        }
    }
    .boxed();
    tokio::select! {
        loaded = call.context.bound("warm", load) => Ok(loaded.map(|()| Answer::Nothing)?),
        error = call.must_end("warm") => Err(error),
    }
}

/// Fills the drives of the I/O nodes with columns of a table; with all if `columns` is empty.
pub async fn rows(
    state: &ShardState,
    open: &OpenTable,
    columns: Vec<String>,
    call: &mut Call,
) -> Result<Answer> {
    let table = open.name.clone();
    let branch = open.branch().to_owned();
    let version = open.version();
    let request =
        WarmRequest { table: table.clone(), branch, version, columns, ..WarmRequest::default() };
    let warm = Warm::new(state, request, call).boxed().await?;
    let (progress, mut steps) = mpsc::channel(STEPS_AHEAD);
    let context = call.context;
    let run = async move { warm.run(&progress, context).await };
    let read = async {
        let mut last = Ok(Default::default());
        while let Some(step) = steps.recv().await {
            last = step;
        }
        last
    };
    let filled = async {
        let (ended, last) = tokio::join!(run, read);
        ended.map(|()| last)
    };
    let filled = tokio::select! {
        filled = context.bound("warm", filled.boxed()) => filled??,
        error = call.must_end("warm") => return Err(error),
    };
    match filled.extents_failed {
        0 => Ok(Answer::Nothing),
        failed => {
            let why = filled.last_error;
            let message = format!("{failed} extents of table `{table}` could not be filled: {why}");
            // Mostly the store or a node could not be reached; the message says why.
            Err(Fault::new(Reason::NodeUnavailable, message).with("table", table).into())
        }
    }
}
