//! Lookup: keys to row addresses, and a row to its vector.

use std::sync::Arc;

use address::RowAddr;
use futures::FutureExt;

use super::score::Vectors;
use super::stream::{Cost, fetch_rows};
use crate::error::{QueryError, Result};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// For each key the address of its row, if it has one.
///
/// Begun on this core where the index of the table's own key is open and answers without a plan: with its pages in
/// memory a few keys take less than handing them over does, and whether they are there shows as soon as one has to be
/// read. Keys of other columns may have any number of rows each, and one of many keeps whom it is looked up by for
/// long.
pub async fn look_up(
    state: &ShardState,
    open: &Arc<OpenTable>,
    column: &str,
    keys: &[String],
    context: RequestContext,
) -> Result<Vec<Option<RowAddr>>> {
    let admission = &state.shared.admission;
    if open.table.key_column() == Some(column)
        && let Some(lookup) = open.table.direct_lookup(Some(column), keys)?
    {
        let lookup = async move { Ok(lookup.await?) }.boxed();
        return admission.begin_on_core("lookup", context, lookup).await;
    }
    let (open, column, keys) = (Arc::clone(open), column.to_owned(), keys.to_vec());
    let lookup = async move { Ok(open.table.lookup(Some(&column), &keys).await?) }.boxed();
    admission.run_in_background("lookup", context, lookup).await
}

/// The address of the row with `key`.
///
/// # Errors
/// [`QueryError::KeyAbsent`].
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

/// The vector of the row at `addr`, and what it cost.
///
/// # Errors
/// [`QueryError::BadVector`] for a row without one.
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
