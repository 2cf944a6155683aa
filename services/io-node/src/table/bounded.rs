//! Collects rows of unknown size within a memory bound.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::error::NodeError;

/// The number of rows of a blob column per read. It is low, so that reading stops soon after the bound is exceeded,
/// even if rows are large.
const BLOB_ROWS: usize = 64;

/// Rows that are read a few at a time, up to a maximum of bytes.
pub struct BoundedRows {
    rows: usize,
    bytes_max: u64,
    bytes: u64,
    parts: Vec<RecordBatch>,
    too_large: TooLarge,
}

/// Returns the error for rows, of the given number, that take more than the given maximum of bytes.
type TooLarge = fn(usize, u64) -> NodeError;

impl BoundedRows {
    /// Creates an empty collection for `rows` rows of at most `bytes_max` bytes in total. `too_large` makes the error
    /// for more from both numbers.
    pub fn new(rows: usize, bytes_max: u64, too_large: TooLarge) -> Self {
        Self { rows, bytes_max, bytes: 0, parts: Vec::new(), too_large }
    }

    /// Returns the ranges to read one after another: at least one, which may be empty.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> + Send + use<> {
        let rows = self.rows;
        (0..rows.max(1)).step_by(BLOB_ROWS).map(move |start| start..rows.min(start + BLOB_ROWS))
    }

    /// Adds the rows of the next range.
    ///
    /// # Errors
    /// The error of `too_large` once the sum exceeds the maximum.
    pub fn push(&mut self, part: RecordBatch) -> Result<(), NodeError> {
        self.bytes += part.get_array_memory_size() as u64;
        self.parts.push(part);
        match self.bytes > self.bytes_max {
            true => Err(self.too_large()),
            false => Ok(()),
        }
    }

    /// Concatenates the rows of all ranges.
    pub fn joined(mut self) -> Result<RecordBatch, NodeError> {
        if self.parts.len() == 1 {
            return Ok(self.parts.remove(0));
        }
        let Some(first) = self.parts.first() else { return Err(self.too_large()) };
        concat_batches(&first.schema(), &self.parts).map_err(|_| self.too_large())
    }

    fn too_large(&self) -> NodeError {
        (self.too_large)(self.rows, self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray};

    use super::*;

    #[test]
    fn rows_beyond_the_maximum_are_refused_with_the_advice_for_it() {
        let blobs: ArrayRef = Arc::new(BinaryArray::from_iter_values([[7; 1000]; BLOB_ROWS]));
        let rows = RecordBatch::try_from_iter([("blob", blobs)]).unwrap();
        let mut read = BoundedRows::new(
            3 * BLOB_ROWS,
            rows.get_array_memory_size() as u64 * 2,
            |rows, bytes_max| NodeError::ChunkTooLarge { rows, bytes_max },
        );
        assert_eq!(read.pieces().count(), 3);
        read.push(rows.clone()).unwrap();
        read.push(rows.clone()).unwrap();
        let refused = read.push(rows).unwrap_err().to_string();
        assert!(
            refused.contains("a chunk of 192 rows") && refused.contains("`segment`"),
            "{refused}"
        );
    }
}
