//! The rows that were found for keys.

use address::RowAddr;
use arrow_array::RecordBatch;

/// The rows of keys, in the keys' order.
#[derive(Debug)]
pub struct KeyedRows {
    /// The rows, with the wanted columns in wire types.
    pub rows: RecordBatch,
    /// The position of each row's key, ascending.
    pub keys: Vec<u32>,
    /// The address of each row.
    pub addrs: Vec<RowAddr>,
}
