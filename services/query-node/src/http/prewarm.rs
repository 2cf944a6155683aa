//! Calls that fill caches ahead of use. They end when the caches are filled.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::mpsc;
use wire::query::WarmRequest;
use wire::{Fault, Reason};

use super::answer::Answer;
use super::tables::of_table;
use crate::call::Call;
use crate::describe::indexes_of;
use crate::error::{QueryError, Result};
use crate::state::ShardState;
use crate::tables::OpenTable;
use crate::warm::Warm;

/// The number of steps that a warm may be ahead of the reader of its progress, who only keeps the last one.
const STEPS_AHEAD: usize = 16;

/// Loads an index into the node's memory, as far as `index_cache` holds it.
pub async fn index(
    state: &ShardState,
    open: &Arc<OpenTable>,
    name: String,
    call: &Call,
) -> Result<Answer> {
    if indexes_of(open, call.context).await?.iter().all(|index| index.name != name) {
        return Err(QueryError::IndexUnknown { table: open.name.clone(), index: name });
    }
    let load = |table: lake::Table| async move { table.prewarm_index(&name).await };
    of_table(state, open, call, load).await?;
    Ok(Answer::Nothing)
}

/// Fills the drives of the I/O nodes with columns of a table; with all if `columns` is empty.
pub async fn rows(
    state: &ShardState,
    table: &str,
    columns: Vec<String>,
    call: &mut Call,
) -> Result<Answer> {
    let request = WarmRequest { table: table.to_owned(), columns, ..WarmRequest::default() };
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
    let filled = async { Ok(tokio::join!(run, read).1) };
    let filled = context.bound("warm", filled.boxed()).await??;
    match filled.extents_failed {
        0 => Ok(Answer::Nothing),
        failed => {
            let why = filled.last_error;
            let message = format!("{failed} extents of table `{table}` could not be filled: {why}");
            Err(Fault::new(Reason::Internal, message).with("table", table).into())
        }
    }
}
