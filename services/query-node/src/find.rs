//! Finds the rows of keys. Candidates are looked up and fetched until each key has its row, or no candidates are left.
//!
//! The key index only says which rows may have a key, so the key column is fetched with the columns that the caller
//! wants, and rows with another key are dropped. One fetch is enough unless a row has another key.

use address::RowAddr;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_cast::display::array_value_to_string;
use arrow_ord::ord::make_comparator;
use arrow_schema::SortOptions;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use spelling::counted;

use crate::call::Call;
use crate::counters::Stage;
use crate::error::Result;
use crate::keyed_rows::KeyedRows;
use crate::io_tier::{Cost, Fetched, fetch_rows, present};
use crate::request_context::RequestContext;
use crate::stages::{Keys, Lookup};
use crate::state::ShardState;
use crate::tables::Projection;

/// Returns the rows of `keys`: for each key the live row with the lowest address that has it, if there is one. `fetch`
/// is the stage that fetches the rows.
///
/// # Errors
/// The errors of [`Lookup`], of [`fetch_rows`], and of the call's limits.
pub async fn find_rows(
    state: &ShardState,
    keys: Keys<'_>,
    wanted: &Projection,
    fetch: Stage,
    call: &mut Call,
) -> Result<KeyedRows> {
    find_for(state, keys, wanted, call.context, &mut OneCall { call, fetch }).await
}

/// One call, or several calls, that need the rows of keys.
pub trait Callers {
    /// Notes that a look-up is done. `detail` describes it.
    fn looked_up(&mut self, detail: impl FnOnce() -> String);

    /// Notes that `rows` rows were fetched.
    fn fetched(&mut self, rows: usize, cost: Cost);

    /// Holds the memory of rows of `bytes` bytes in total.
    fn hold_rows(&mut self, bytes: usize) -> Result<()>;
}

struct OneCall<'a> {
    call: &'a mut Call,
    fetch: Stage,
}

impl Callers for OneCall<'_> {
    fn looked_up(&mut self, detail: impl FnOnce() -> String) {
        self.call.stage(Stage::Lookup, detail);
    }

    fn fetched(&mut self, rows: usize, cost: Cost) {
        self.call.io_stage(self.fetch, rows, cost);
    }

    fn hold_rows(&mut self, bytes: usize) -> Result<()> {
        self.call.hold_rows(bytes)
    }
}

/// Like [`find_rows`], for any `callers`.
///
/// # Errors
/// As [`find_rows`].
pub async fn find_for(
    state: &ShardState,
    keys: Keys<'_>,
    wanted: &Projection,
    context: RequestContext,
    callers: &mut impl Callers,
) -> Result<KeyedRows> {
    let mut columns = wanted.columns.clone();
    let key_at = columns.iter().position(|column| *column == keys.column).unwrap_or_else(|| {
        columns.push(keys.column.to_owned());
        columns.len() - 1
    });
    let columns = keys.open.project(&columns)?;
    let mut lookup = Lookup::begin(state, keys, context).await?;
    let mut open_keys: Vec<u32> = (0..keys.keys.len() as u32).collect();
    let mut rounds: Vec<KeyedRows> = Vec::with_capacity(1);
    let mut held = 0;
    loop {
        let tries = lookup.next(state, &open_keys).await?;
        callers.looked_up(|| match (keys.keys.len(), tries.as_slice()) {
            (1, [(_, addr)]) => {
                let key = array_value_to_string(keys.keys, 0).unwrap_or_default();
                format!("key `{key}` in column `{}`: row {addr:?}", keys.column)
            }
            _ => counted(tries.len(), "row"),
        });
        // The first fetch is made even without candidates: it returns an empty batch with the right columns.
        if tries.is_empty() && !rounds.is_empty() {
            break;
        }
        let addrs: Vec<RowAddr> = tries.iter().map(|&(_, addr)| addr).collect();
        callers.hold_rows(held + columns.bytes_of(addrs.len()))?;
        let mut fetched = fetch_rows(state, keys.open, &addrs, &columns, context).await?;
        held += fetched.rows.get_array_memory_size();
        callers.hold_rows(held)?;
        callers.fetched(addrs.len(), std::mem::take(&mut fetched.cost));
        let found = prove(&fetched, key_at, keys.keys, &tries)?;
        open_keys = others(tries.iter().map(|&(key, _)| key), &found.keys);
        rounds.push(found);
        if open_keys.is_empty() {
            break;
        }
    }
    lookup.count(state);
    let found = joined(rounds)?;
    let rows = found.rows.project(&(0..wanted.columns.len()).collect::<Vec<_>>())?;
    Ok(KeyedRows { rows, ..found })
}

/// Returns the fetched rows that have the key for which they were fetched.
fn prove(
    fetched: &Fetched,
    key_at: usize,
    keys: &ArrayRef,
    tries: &[(u32, RowAddr)],
) -> Result<KeyedRows> {
    let column = fetched.rows.column(key_at);
    let compare = make_comparator(column, keys, SortOptions::default())?;
    let has_key = |row: usize, key: usize| column.is_valid(row) && compare(row, key).is_eq();
    let mut right = Vec::with_capacity(tries.len());
    let (mut found, mut addrs) = (Vec::with_capacity(tries.len()), Vec::with_capacity(tries.len()));
    for (row, at) in present(tries.len(), &fetched.missing).enumerate() {
        let (key, addr) = tries[at];
        if has_key(row, key as usize) {
            right.push(row as u32);
            found.push(key);
            addrs.push(addr);
        }
    }
    let rows = match right.len() == fetched.rows.num_rows() {
        true => fetched.rows.clone(),
        false => take_record_batch(&fetched.rows, &UInt32Array::from(right))?,
    };
    Ok(KeyedRows { rows, keys: found, addrs })
}

/// Returns the numbers of `all` that are not among `some`. Both are ascending.
pub fn others(all: impl Iterator<Item = u32>, some: &[u32]) -> Vec<u32> {
    let mut some = some.iter().copied().peekable();
    all.filter(|number| some.next_if_eq(number).is_none()).collect()
}

/// Joins the rows of several fetches, of which there is at least one, in the order of their keys.
fn joined(mut rounds: Vec<KeyedRows>) -> Result<KeyedRows> {
    if rounds.len() == 1 {
        return Ok(rounds.remove(0));
    }
    let batches = rounds.iter().map(|round| &round.rows);
    let rows = concat_batches(rounds[0].rows.schema_ref(), batches)?;
    let keys: Vec<u32> = rounds.iter().flat_map(|round| round.keys.iter().copied()).collect();
    let addrs: Vec<RowAddr> = rounds.iter().flat_map(|round| round.addrs.iter().copied()).collect();
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_unstable_by_key(|&row| keys[row as usize]);
    Ok(KeyedRows {
        rows: take_record_batch(&rows, &UInt32Array::from(order.clone()))?,
        keys: order.iter().map(|&row| keys[row as usize]).collect(),
        addrs: order.iter().map(|&row| addrs[row as usize]).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::{RecordBatch, StringArray};

    use super::*;

    fn rows(keys: &[&str]) -> RecordBatch {
        let column: ArrayRef = Arc::new(StringArray::from(keys.to_vec()));
        RecordBatch::try_from_iter([("key", column)]).unwrap()
    }

    fn keys_of(rows: &RecordBatch) -> Vec<&str> {
        rows.column(0).as_string::<i32>().iter().flatten().collect()
    }

    #[test]
    fn a_row_with_another_key_counts_as_not_found() {
        // The look-up found keys 0, 1 and 3. The row of key 1 is missing, and the row of key 3 has another key.
        let fetched = Fetched { rows: rows(&["a", "x"]), missing: vec![1], cost: Cost::default() };
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
        let tries = [0, 1, 3].map(|key| (key, RowAddr::new(7, key)));
        let found = prove(&fetched, 0, &keys, &tries).unwrap();
        assert_eq!(keys_of(&found.rows), ["a"]);
        assert_eq!((found.keys.as_slice(), found.addrs), (&[0][..], vec![RowAddr::new(7, 0)]));
        assert_eq!(others(0..4, &found.keys), [1, 2, 3]);
    }

    #[test]
    fn rows_of_a_second_fetch_take_their_places() {
        let round = |keys: &[u32], texts: &[&str]| KeyedRows {
            rows: rows(texts),
            keys: keys.to_vec(),
            addrs: keys.iter().map(|&key| RowAddr::new(1, key)).collect(),
        };
        let rounds = vec![round(&[0, 3], &["a", "d"]), round(&[1], &["b"]), round(&[2], &["c"])];
        let joined = joined(rounds).unwrap();
        assert_eq!(keys_of(&joined.rows), ["a", "b", "c", "d"]);
        assert_eq!(joined.keys, [0, 1, 2, 3]);
        assert_eq!(joined.addrs, (0..4).map(|key| RowAddr::new(1, key)).collect::<Vec<_>>());
    }
}
