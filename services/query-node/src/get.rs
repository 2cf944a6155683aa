//! Get: returns rows by key, in the order of the keys. It calls the stages, and checks that each row has the requested
//! key.

use access::Permission;
use address::RowAddr;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use futures::FutureExt;
use spelling::counted;
use wire::query::{GetRequest, GetResponse, RowFormat};

use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::io_tier::{Fetched, fetch_rows, present};
use crate::stages::{finish, has_key, ipc_stream, json_lines, key_column, look_up, validate_keys};
use crate::state::ShardState;
use crate::tables::Measure;

/// Answers a Get request.
pub async fn get(state: &ShardState, request: GetRequest, call: &mut Call) -> Result<GetResponse> {
    call.context = call.context.with_priority(request.priority)?;
    validate_keys(&request)?;
    let format = RowFormat::try_from(request.format).map_err(|_| QueryError::BadRequest {
        field: "format",
        problem: format!("is {}, which is no format; give 0 (Arrow) or 1 (JSON)", request.format),
    })?;
    let open = call.open(&request.table, request.version, Permission::Read).boxed().await?;
    let context = call.context;
    call.take_rows(request.keys.len())?;
    let asked = open.project(&request.columns)?;
    let key = key_column(&open, &request.key_column)?;
    call.stage(Stage::Validate, || counted(request.keys.len(), "key"));
    let found = look_up(state, &open, &key, &request.keys, context).await?;
    call.stage(Stage::Lookup, || counted(found.iter().flatten().count(), "row"));

    // Fetch the key column too: `verify` compares each row's key with the requested one.
    let mut wanted = asked.columns.clone();
    let key_at = wanted.iter().position(|column| *column == key).unwrap_or_else(|| {
        wanted.push(key.clone());
        wanted.len() - 1
    });
    let wanted = open.project(&wanted)?;
    let places: Vec<usize> = (0..found.len()).filter(|&at| found[at].is_some()).collect();
    let addrs: Vec<RowAddr> = found.iter().copied().flatten().collect();
    call.hold_rows(wanted.bytes_of(addrs.len()))?;
    let mut fetched = fetch_rows(state, &open, &addrs, &wanted, context).await?;
    call.hold_rows(fetched.rows.get_array_memory_size())?;
    call.io_stage(Stage::Fetch, addrs.len(), std::mem::take(&mut fetched.cost));
    let (rows, kept) = verify(&fetched, key_at, &request.keys, &places)?;

    let not_found = not_among(&kept, &places, request.keys.len());
    let rows = rows.project(&(0..asked.columns.len()).collect::<Vec<_>>())?;
    let addrs = kept.iter().map(|&at| addrs[at].to_u64()).collect();
    let rows = finish(&rows, &asked, Measure::Nothing, addrs, Vec::new())?;
    call.stage(Stage::Assemble, || counted(rows.num_rows(), "row"));
    let rows = match format {
        RowFormat::Arrow => ipc_stream(&asked.answer(Measure::Nothing)?.head, &rows)?,
        RowFormat::Json => json_lines(&rows)?,
    };
    call.count_rows(kept.len(), rows.len());
    call.stage(Stage::Reply, || counted(rows.len(), "byte"));
    Ok(GetResponse { rows, version: open.version(), not_found, error: None })
}

/// Returns the rows that have the requested key, and their positions in `places`.
fn verify(
    fetched: &Fetched,
    key_at: usize,
    keys: &[String],
    places: &[usize],
) -> Result<(RecordBatch, Vec<usize>)> {
    let present: Vec<usize> = present(places.len(), &fetched.missing).collect();
    let column = fetched.rows.column(key_at);
    let right: Vec<bool> = present
        .iter()
        .enumerate()
        .map(|(row, &at)| has_key(column, row, &keys[places[at]]))
        .collect();
    if right.iter().all(|&right| right) {
        return Ok((fetched.rows.clone(), present));
    }
    let kept = present.iter().zip(&right).filter(|(_, right)| **right).map(|(at, _)| *at).collect();
    Ok((filter_record_batch(&fetched.rows, &BooleanArray::from(right))?, kept))
}

/// Returns the positions of the keys without a row. `places` has the positions of the keys that the look-up found, and
/// `kept` the positions in `places` whose rows have the requested key.
fn not_among(kept: &[usize], places: &[usize], keys: usize) -> Vec<u32> {
    let mut found = kept.iter().map(|&at| places[at]).peekable();
    let not_found = (0..keys).filter(|key| found.next_if_eq(key).is_none());
    not_found.map(|key| key as u32).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray};

    use super::*;
    use crate::io_tier::Cost;

    #[test]
    fn a_row_with_another_key_counts_as_not_found() {
        let column: ArrayRef = Arc::new(StringArray::from(vec!["a", "x"]));
        let rows = RecordBatch::try_from_iter([("key", column)]).unwrap();
        // The look-up found keys 0, 1 and 3. The row of key 1 is missing, and the row of key 3 has another key.
        let fetched = Fetched { rows, missing: vec![1], cost: Cost::default() };
        let keys = ["a", "b", "c", "d"].map(str::to_owned);
        let places = [0, 1, 3];
        let (rows, kept) = verify(&fetched, 0, &keys, &places).unwrap();
        assert_eq!((rows.num_rows(), kept.as_slice()), (1, [0].as_slice()));
        assert_eq!(not_among(&kept, &places, keys.len()), [1, 2, 3]);
    }
}
