//! Lookup: keys to row addresses, and to the vector of a row.

use address::RowAddr;
use futures::FutureExt;
use lake::LakeError;

use super::score::Vectors;
use super::stream::{Cost, fetch_rows};
use crate::deadline::Deadline;
use crate::error::{QueryError, Result};
use crate::state::State;
use crate::tables::OpenTable;

/// The key column that a request means: the one it names, or the table's.
pub fn key_column(open: &OpenTable, named: &str) -> Result<String> {
    if !named.is_empty() {
        open.table.is_blob(named)?;
        return Ok(named.to_owned());
    }
    let unknown = || LakeError::KeyColumnUnknown { uri: open.table.uri().to_owned() };
    Ok(open.key_column.clone().ok_or_else(unknown)?)
}

/// For each key the address of its row, if it has one.
pub async fn look_up(
    state: &State,
    open: &OpenTable,
    column: &str,
    keys: &[String],
    deadline: Deadline,
) -> Result<Vec<Option<RowAddr>>> {
    let lookup = async { Ok(open.table.lookup(Some(column), keys).await?) }.boxed();
    state.cores.run("lookup", deadline, lookup).await
}

/// The vector of the row with `key`.
///
/// # Errors
/// [`QueryError::KeyAbsent`], and a row without a vector.
pub async fn vector_like(
    state: &State,
    open: &OpenTable,
    key: &str,
    column: &str,
    deadline: Deadline,
) -> Result<(Vec<f32>, Cost)> {
    let keys = key_column(open, "")?;
    let found = look_up(state, open, &keys, &[key.to_owned()], deadline).await?;
    let Some(addr) = found.into_iter().flatten().next() else {
        let (table, column, key) = (open.name.clone(), keys, key.to_owned());
        return Err(QueryError::KeyAbsent { table, column, key });
    };
    let fetched = fetch_rows(state, open, &[addr], &[column.to_owned()], deadline).await?;
    let vectors = Vectors::of(fetched.rows.column(0))?;
    let vector = (fetched.rows.num_rows() == 1).then(|| vectors.get(0)).flatten();
    let vector = vector.filter(|vector| vector.iter().all(|value| value.is_finite()));
    let vector = vector.ok_or_else(|| QueryError::BadVector {
        problem: format!(
            "of row `{key}` in column `{column}` is null or not finite; search by \
                          another row"
        ),
    })?;
    Ok((vector.to_vec(), fetched.cost))
}
