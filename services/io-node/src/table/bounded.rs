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
}

impl BoundedRows {
    /// Creates an empty collection for `rows` rows of at most `bytes_max` bytes in total.
    pub fn new(rows: usize, bytes_max: u64) -> Self {
        Self { rows, bytes_max, bytes: 0, parts: Vec::new() }
    }

    /// Returns the ranges to read one after another: at least one, which may be empty.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> + Send + use<> {
        let rows = self.rows;
        (0..rows.max(1)).step_by(BLOB_ROWS).map(move |start| start..rows.min(start + BLOB_ROWS))
    }

    /// Adds the rows of the next range.
    ///
    /// # Errors
    /// [`NodeError::RowsTooLarge`] once the sum exceeds the maximum.
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
        NodeError::RowsTooLarge { rows: self.rows, bytes_max: self.bytes_max }
    }
}
