//! Finds all rows that may have some keys.
//!
//! The key index returns candidates from the data files that its runs cover. The other files are searched for all keys:
//! without having found a row, nobody can say that it does not exist. If a page of the index could not be read, or
//! without the index, the whole table is searched.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::array_value_to_string;
use futures::FutureExt;

use super::lookup::{Keys, candidates};
use crate::call_rules::{BATCH_ROWS_MAX, KEY_ROWS_MAX};
use crate::error::{QueryError, Result};
use crate::key_index::{Candidates, WantedRows};
use crate::request_context::RequestContext;
use crate::state::{Ask, ShardState};

/// The rows that may have keys: the position of a key, and the address of a row. Ascending.
type KeyRows = Vec<(u32, RowAddr)>;

/// Returns all rows that may have the keys. Each may turn out to have another key. If rows are hidden, the whole table
/// is searched for the others: an answer from the index would count hidden rows too.
///
/// # Errors
/// The errors of the admission queue, and those of the store; [`QueryError::KeyRows`] and [`QueryError::BatchRows`] if
/// there are too many rows.
pub async fn all_rows(
    state: &ShardState,
    keys: Keys<'_>,
    context: RequestContext,
) -> Result<KeyRows> {
    let index = keys.open.keys.as_ref().filter(|_| !keys.open.hides_rows());
    let index = index.filter(|index| index.column() == keys.column);
    if let Some(index) = index {
        index.want();
    }
    let ask = Ask { during: "lookup", rows: keys.keys.len(), context };
    let mut rows = Vec::new();
    let mut within = None;
    if let Some(index) = index.filter(|index| index.covers_any()) {
        let found = candidates(state, ask, index, keys.keys, WantedRows::All).await?;
        if found.cut.is_empty() {
            rows = pairs(&found);
            check(&rows, keys)?;
            within = Some(found.uncovered);
        }
    }
    let by_index = within.as_ref().is_some_and(|uncovered| uncovered.is_empty());
    if !by_index {
        let (open, column, asked) =
            (Arc::clone(keys.open), keys.column.to_owned(), Arc::clone(keys.keys));
        let search = async move {
            let within = within.as_deref();
            Ok(open.table.lookup_all(&column, &asked, within, BATCH_ROWS_MAX).await?)
        };
        rows.extend(state.shared.admission.run_in_background(ask, search.boxed()).await?);
        rows.sort_unstable();
        check(&rows, keys)?;
    }
    let count = keys.keys.len();
    state.metrics.looked_up(if by_index { count } else { 0 }, if by_index { 0 } else { count });
    Ok(rows)
}

fn pairs(candidates: &Candidates) -> KeyRows {
    let mut rows = candidates.rows.iter();
    let mut pairs = Vec::with_capacity(rows.len());
    let mut start = 0;
    for (key, &end) in (0..).zip(&candidates.ends) {
        pairs.extend(rows.by_ref().take((end - start) as usize).map(|&row| (key, row)));
        start = end;
    }
    pairs
}

/// Checks that there are not too many rows.
fn check(rows: &[(u32, RowAddr)], keys: Keys<'_>) -> Result<()> {
    let of_keys = rows.chunk_by(|one, other| one.0 == other.0);
    let Some(most) = of_keys.max_by_key(|rows| rows.len()) else { return Ok(()) };
    let named = || (key_text(keys.keys, most[0].0), keys.column.to_owned());
    if most.len() > KEY_ROWS_MAX {
        let (key, column) = named();
        return Err(QueryError::KeyRows { key, column });
    }
    if rows.len() > BATCH_ROWS_MAX {
        let (key, column) = named();
        return Err(QueryError::BatchRows { key, column });
    }
    Ok(())
}

/// Returns a key as messages quote it.
fn key_text(keys: &ArrayRef, at: u32) -> String {
    lake::quoted(&array_value_to_string(keys, at as usize).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_keep_their_keys() {
        let rows: Vec<RowAddr> = (0..4).map(|row| RowAddr::new(3, row)).collect();
        let candidates =
            Candidates { rows: rows.clone(), ends: vec![0, 3, 3, 4], ..Default::default() };
        let expected = [(1, rows[0]), (1, rows[1]), (1, rows[2]), (3, rows[3])];
        assert_eq!(pairs(&candidates), expected);
    }
}
