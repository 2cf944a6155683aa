//! Collecting rows of unknown size without holding more of them than is allowed.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::error::NodeError;

/// Rows of a blob column that are read at once: few enough to notice in time that they are large.
const BLOB_ROWS: usize = 64;

/// Rows that are read a few at a time, up to a bound.
pub struct BoundedRows {
    rows: usize,
    bytes_max: u64,
    bytes: u64,
    parts: Vec<RecordBatch>,
}

impl BoundedRows {
    /// For `rows` rows of at most `bytes_max` bytes.
    pub fn new(rows: usize, bytes_max: u64) -> Self {
        Self { rows, bytes_max, bytes: 0, parts: Vec::new() }
    }

    /// What to read, one after another; at least one part, if an empty one.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> + Send + use<> {
        let rows = self.rows;
        (0..rows.max(1)).step_by(BLOB_ROWS).map(move |start| start..rows.min(start + BLOB_ROWS))
    }

    /// Adds the next part.
    ///
    /// # Errors
    /// [`NodeError::RowsTooLarge`] once they come to too much.
    pub fn push(&mut self, part: RecordBatch) -> Result<(), NodeError> {
        self.bytes += part.get_array_memory_size() as u64;
        self.parts.push(part);
        match self.bytes > self.bytes_max {
            true => Err(self.too_large()),
            false => Ok(()),
        }
    }

    /// All parts as one.
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
