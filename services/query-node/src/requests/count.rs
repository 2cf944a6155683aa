//! Counts the rows that pass a filter.

use std::sync::Arc;

use futures::FutureExt;
use wire::query::{CountRequest, CountResponse};

use crate::call::Call;
use crate::error::Result;
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, OpenTable};

/// Answers a Count.
///
/// # Errors
/// The table can't be opened or the caller may not read it, the filter is wrong, and errors of the store.
pub async fn count(
    state: &ShardState,
    request: CountRequest,
    call: &mut Call,
) -> Result<CountResponse> {
    let CountRequest { table, version, branch, filter } = &request;
    let asked = AskedVersion { table, branch, version: *version };
    let open = call.open_shown(asked).boxed().await?;
    let rows = count_rows(state, &open, filter, call).await?;
    Ok(CountResponse { rows, version: open.version() })
}

/// Returns the number of rows that pass `filter`, or of all rows if it is empty; of those that callers see.
pub async fn count_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    filter: &str,
    call: &Call,
) -> Result<u64> {
    let filter = Some(filter).filter(|filter| !filter.trim().is_empty());
    let Some(filter) = open.table.filter_or_condition(filter) else {
        return Ok(open.table.row_count());
    };
    let ask = Ask { during: "count", rows: 1, context: call.context };
    let (table, filter) = (open.table.clone(), filter.to_owned());
    let count = async move { Ok(table.count_filter(&filter).await?) }.boxed();
    state.shared.admission.run_in_background(ask, count).await
}
