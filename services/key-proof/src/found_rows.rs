//! The rows that were found for keys.

use address::RowAddr;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

/// The rows of keys, in the keys' order.
#[derive(Debug)]
pub struct FoundRows {
    /// The rows, with the fetched columns in wire types.
    pub rows: RecordBatch,
    /// The position of each row's key, ascending. A position is repeated if the key has several rows.
    pub keys: Vec<u32>,
    /// The address of each row.
    pub addrs: Vec<RowAddr>,
}

/// Joins the rows of several rounds, of which there is at least one, in the order of their keys.
pub fn joined(mut rounds: Vec<FoundRows>) -> Result<FoundRows, ArrowError> {
    if rounds.len() == 1 {
        return Ok(rounds.remove(0));
    }
    let batches = rounds.iter().map(|round| &round.rows);
    let rows = concat_batches(rounds[0].rows.schema_ref(), batches)?;
    let keys: Vec<u32> = rounds.iter().flat_map(|round| round.keys.iter().copied()).collect();
    let addrs: Vec<RowAddr> = rounds.iter().flat_map(|round| round.addrs.iter().copied()).collect();
    if keys.is_sorted() {
        return Ok(FoundRows { rows, keys, addrs });
    }
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_unstable_by_key(|&row| keys[row as usize]);
    Ok(FoundRows {
        rows: take_record_batch(&rows, &UInt32Array::from(order.clone()))?,
        keys: order.iter().map(|&row| keys[row as usize]).collect(),
        addrs: order.iter().map(|&row| addrs[row as usize]).collect(),
    })
}
