//! Lookup: finds the row addresses of keys, and the vector of a row.

use std::sync::Arc;

use address::RowAddr;
use futures::FutureExt;

use crate::admission::Ask;
use crate::error::{QueryError, Result};
use crate::io_tier::{Cost, Vectors, fetch_rows};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// Returns the address of each key's row, if it has one.
///
/// If the index of the table's own key is open and needs no plan, the look-up begins on this core: with the index's
/// pages in memory, looking up a few keys takes less time than handing them to the background. If a page has to be
/// read, the look-up moves to the background. A look-up in another column begins in the background: there a key may
/// have any number of rows, and looking up a key with many rows would occupy the core for long.
pub async fn look_up(
    state: &ShardState,
    open: &Arc<OpenTable>,
    column: &str,
    keys: &[String],
    context: RequestContext,
) -> Result<Vec<Option<RowAddr>>> {
    let admission = &state.shared.admission;
    let ask = Ask { during: "lookup", rows: keys.len(), context };
    if open.table.key_column() == Some(column)
        && let Some(lookup) = open.table.direct_lookup(Some(column), keys)?
    {
        let lookup = async move { Ok(lookup.await?) }.boxed();
        return admission.begin_on_core(ask, lookup).await;
    }
    let (open, column, keys) = (Arc::clone(open), column.to_owned(), keys.to_vec());
    let lookup = async move { Ok(open.table.lookup(Some(&column), &keys).await?) }.boxed();
    admission.run_in_background(ask, lookup).await
}

/// Returns the address of the row with `key`.
///
/// # Errors
/// [`QueryError::KeyAbsent`] if there is none.
pub async fn row_like(
    state: &ShardState,
    open: &Arc<OpenTable>,
    column: &str,
    key: &str,
    context: RequestContext,
) -> Result<RowAddr> {
    let found = look_up(state, open, column, &[key.to_owned()], context).await?;
    found.into_iter().flatten().next().ok_or_else(|| QueryError::KeyAbsent {
        table: open.name.clone(),
        column: column.to_owned(),
        key: key.to_owned(),
    })
}

/// Returns the vector of the row at `addr`, and the cost of fetching it.
///
/// # Errors
/// [`QueryError::BadVector`] if the row has no finite vector.
pub async fn vector_of(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addr: RowAddr,
    column: &str,
    context: RequestContext,
) -> Result<(Vec<f32>, Cost)> {
    let vector = open.project(&[column.to_owned()])?;
    let fetched = fetch_rows(state, open, &[addr], &vector, context).await?;
    let vectors = Vectors::of(fetched.rows.column(0))?;
    let vector = (fetched.rows.num_rows() == 1).then(|| vectors.get(0)).flatten();
    let vector = vector.filter(|vector| vector.iter().all(|value| value.is_finite()));
    let vector = vector.ok_or_else(|| QueryError::BadVector {
        problem: format!(
            "of row {addr:?} in column `{column}` is null or not finite; search by another row"
        ),
    })?;
    Ok((vector.to_vec(), fetched.cost))
}
