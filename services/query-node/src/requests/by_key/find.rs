//! Finds the rows of keys. Candidates are looked up and fetched until each key has its row, or no candidates are left.
//!
//! The key index only says which rows may have a key, so the key column is fetched with the columns that the caller
//! wants, and rows with another key are dropped (`key_proof`). One fetch is enough unless a row has another key. If all
//! rows of each key are wanted, all candidates are fetched, [`KEYS_MAX`] at a time.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::array_value_to_string;
use futures::FutureExt;
use key_proof::{DistinctRows, FoundRows, Rounds};
use spelling::counted;

use super::extra_rows::{ExtraRows, extra_rows};
use crate::call::Call;
use crate::call_rules::KEYS_MAX;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::fetch::{Cost, FetchParts, UnreadRows, fetch_readable, fetch_rows, open_ahead};
use crate::request_context::RequestContext;
use crate::stages::{Keys, Lookup, all_rows};
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
    wanted: &Arc<Projection>,
    fetch: Stage,
    call: &mut Call,
) -> Result<FoundRows> {
    let (context, mut caller) = (call.context, OneCall { call, fetch, unread_keys: None });
    find_for(state, keys, wanted, context, &mut caller).await
}

/// Like [`find_rows`], but returns the rows that can be read, and the keys of the others, whose rows are not known to
/// exist.
///
/// # Errors
/// As [`find_rows`], and the error of a row if no key remains.
pub async fn find_readable(
    state: &ShardState,
    keys: Keys<'_>,
    wanted: &Arc<Projection>,
    fetch: Stage,
    call: &mut Call,
) -> Result<(FoundRows, UnreadKeys)> {
    let context = call.context;
    let mut caller = OneCall { call, fetch, unread_keys: Some(UnreadKeys::default()) };
    let found = find_for(state, keys, wanted, context, &mut caller).await?;
    match caller.unread_keys.unwrap_or_default() {
        UnreadKeys { keys: unread, error: Some(error) } if unread.len() == keys.keys.len() => {
            Err(error)
        }
        unread => Ok((found, unread)),
    }
}

/// One call, or several calls, that need the rows of keys.
pub trait Callers {
    /// Notes that a look-up is done. `detail` describes it.
    fn looked_up(&mut self, detail: impl FnOnce() -> String);

    /// Notes that `rows` rows were fetched.
    fn fetched(&mut self, rows: usize, cost: Cost);

    /// Holds the memory of rows of `bytes` bytes in total.
    fn hold_rows(&mut self, bytes: usize) -> Result<()>;

    /// Returns where to note keys whose rows can't be read; `None` if one such row fails all.
    fn unread_keys(&mut self) -> Option<&mut UnreadKeys>;
}

/// Keys whose rows could not be read.
#[derive(Default)]
pub struct UnreadKeys {
    /// The positions of the keys, ascending.
    pub keys: Vec<u32>,
    /// The error of one of them. `None` without keys.
    pub error: Option<QueryError>,
}

impl UnreadKeys {
    /// Adds the keys of `tries` whose rows are unread.
    fn add(&mut self, tries: &[(u32, RowAddr)], UnreadRows { addrs, error }: UnreadRows) {
        let unread = tries.iter().filter(|(_, addr)| addrs.binary_search(addr).is_ok());
        self.keys.extend(unread.map(|&(key, _)| key));
        self.keys.sort_unstable();
        self.error.get_or_insert(error);
    }
}

struct OneCall<'a> {
    call: &'a mut Call,
    fetch: Stage,
    unread_keys: Option<UnreadKeys>,
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

    fn unread_keys(&mut self) -> Option<&mut UnreadKeys> {
        self.unread_keys.as_mut()
    }
}

/// Like [`find_rows`], for any `callers`.
///
/// # Errors
/// As [`find_rows`].
pub async fn find_for(
    state: &ShardState,
    keys: Keys<'_>,
    wanted: &Arc<Projection>,
    context: RequestContext,
    callers: &mut impl Callers,
) -> Result<FoundRows> {
    let (columns, key_at) = with_key(keys, wanted)?;
    open_ahead(state, keys.open, &columns.columns, keys.keys.len(), context);
    let mut lookup = Lookup::begin(state, keys, context).await?;
    let mut rounds = Rounds::new(keys.keys, key_at);
    let mut held = 0;
    loop {
        let tries = lookup.next(state, rounds.open_keys()).await?;
        callers.looked_up(|| match (keys.keys.len(), tries.as_slice()) {
            (1, [(_, addr)]) => {
                let key = array_value_to_string(keys.keys, 0).unwrap_or_default();
                format!("key `{key}` in column `{}`: row {addr:?}", keys.column)
            }
            _ => counted(tries.len(), "row"),
        });
        if !rounds.goes_on(&tries) {
            break;
        }
        let (rows, missing) =
            fetch_tries(state, keys, &tries, &columns, context, callers, &mut held).await?;
        rounds.add(&tries, &rows, &missing)?;
        if let Some(unread) = callers.unread_keys() {
            // A further candidate may have the key too, but would not be the key's first row.
            rounds.close(&unread.keys);
        }
        if rounds.open_keys().is_empty() {
            break;
        }
    }
    lookup.count(state);
    finished(rounds, wanted)
}

/// Returns all live rows that have one of `keys`, in the order of the keys, and those of one key in the order of their
/// addresses. `fetch` is the stage that fetches the rows. A row has been charged for each key; `extra` charges the
/// others.
///
/// # Errors
/// The errors of [`all_rows`], of [`fetch_rows`], and of the call's limits.
pub async fn find_all_rows(
    state: &ShardState,
    keys: Keys<'_>,
    wanted: &Arc<Projection>,
    fetch: Stage,
    extra: &mut ExtraRows,
    call: &mut Call,
) -> Result<FoundRows> {
    let (columns, key_at) = with_key(keys, wanted)?;
    open_ahead(state, keys.open, &columns.columns, keys.keys.len(), call.context);
    let candidates = all_rows(state, keys, call.context).boxed().await?;
    call.stage(Stage::Lookup, || counted(candidates.len(), "row"));
    extra.charge(extra_rows(&candidates), |rows| call.take_rows(rows))?;
    let mut rounds = Rounds::new(keys.keys, key_at);
    let mut held = 0;
    // Without candidates, an empty part has the right columns.
    for start in (0..candidates.len().max(1)).step_by(KEYS_MAX) {
        let part = &candidates[start..candidates.len().min(start + KEYS_MAX)];
        let (context, mut caller) =
            (call.context, OneCall { call: &mut *call, fetch, unread_keys: None });
        let fetched = fetch_tries(state, keys, part, &columns, context, &mut caller, &mut held);
        let (rows, missing) = fetched.boxed().await?;
        rounds.add_all(part, &rows, &missing)?;
    }
    finished(rounds, wanted)
}

/// Returns the row of each of `tries`, and the positions of the tries whose row does not exist or can't be read. A row
/// that is tried for several keys is fetched once. `held` is the size in bytes of the rows of earlier rounds, to which
/// that of these rows is added.
async fn fetch_tries(
    state: &ShardState,
    keys: Keys<'_>,
    tries: &[(u32, RowAddr)],
    columns: &Projection,
    context: RequestContext,
    callers: &mut impl Callers,
    held: &mut usize,
) -> Result<(RecordBatch, Vec<u32>)> {
    let distinct = DistinctRows::of(tries);
    let mut parts = FetchParts::new(distinct.addrs(), columns, keys.open.file_row_bytes);
    while let Some(addrs) = parts.next() {
        callers.hold_rows(*held + parts.bytes() + columns.bytes_of(addrs.len()))?;
        let mut rows_read = addrs.len();
        let fetched = match callers.unread_keys() {
            None => fetch_rows(state, keys.open, addrs, columns, context).await?,
            Some(unread_keys) => {
                let fetched = fetch_readable(state, keys.open, addrs, columns, context);
                let (fetched, unread) = fetched.boxed().await?;
                if let Some(unread) = unread {
                    rows_read -= unread.addrs.len();
                    unread_keys.add(tries, unread);
                }
                fetched
            }
        };
        let cost = parts.add(fetched);
        callers.fetched(rows_read, cost);
    }
    let bytes = parts.bytes();
    callers.hold_rows(held.saturating_add(bytes))?;
    let (rows, missing) = parts.finish()?;
    let of_tries = distinct.rows_of_tries(missing);
    *held = held.saturating_add(bytes).saturating_add(of_tries.bytes(&rows));
    callers.hold_rows(*held)?;
    Ok(of_tries.repeat(rows)?)
}

/// Returns the projection on the columns of `wanted` and the key column, and the position of the key column in it.
fn with_key(keys: Keys<'_>, wanted: &Arc<Projection>) -> Result<(Arc<Projection>, usize)> {
    let columns = &wanted.columns;
    if let Some(key_at) = columns.iter().position(|column| *column == keys.column) {
        return Ok((Arc::clone(wanted), key_at));
    }
    let columns = [columns.as_slice(), &[keys.column.to_owned()]].concat();
    Ok((keys.open.project(&columns)?, columns.len() - 1))
}

/// Returns the rows of all rounds, with the columns of `wanted` alone.
fn finished(rounds: Rounds<'_>, wanted: &Projection) -> Result<FoundRows> {
    let found = rounds.finish()?;
    if found.rows.num_columns() == wanted.columns.len() {
        return Ok(found);
    }
    let rows = found.rows.project(&(0..wanted.columns.len()).collect::<Vec<_>>())?;
    Ok(FoundRows { rows, ..found })
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, RecordBatchIterator};
    use lake::{Lake, LakeOptions};
    use lance::Dataset;
    use tokio::runtime::Handle;

    use super::*;
    use crate::key_index::KeyIndexes;
    use crate::recall_curves::TableCurves;
    use crate::tables::OpenTable;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_key_column_is_added_only_if_it_is_not_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3));
        let rows = [("other", Arc::clone(&ids)), ("id", Arc::clone(&ids))];
        let rows = RecordBatch::try_from_iter(rows).unwrap();
        let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
        Dataset::write(reader, &uri, None).await.unwrap();
        let lake = Lake::new(LakeOptions::default());
        let table = lake.open(&uri).await.unwrap();
        let indexes = KeyIndexes::new(1 << 20, Handle::current());
        let curves = Arc::new(TableCurves::new("t", &[], Arc::default()));
        let open = Arc::new(OpenTable::new("t", table, Some("id"), &indexes, &curves).unwrap());
        let keys = Keys { open: &open, column: "id", keys: &ids };
        let by_default = open.project(&[]).unwrap();
        let (columns, key_at) = with_key(keys, &by_default).unwrap();
        assert!(Arc::ptr_eq(&columns, &by_default));
        assert_eq!(columns.columns, ["other", "id"]);
        assert_eq!(key_at, 1);
        let other = open.project(&["other".into()]).unwrap();
        let (columns, key_at) = with_key(keys, &other).unwrap();
        assert_eq!(columns.columns, ["other", "id"]);
        assert_eq!(key_at, 1);
    }
}
