//! Collects rows of unknown size within a memory bound.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use wire::memory_of;

use crate::error::NodeError;

/// The maximum number of rows of a blob column per read.
pub const BLOB_ROWS: usize = 64;

/// Rows that are read a few at a time, up to a maximum of bytes. The size of rows is known only once they are read, so
/// the first read is of few rows, and each next one of at most twice as many, as far as rows like the largest so far fit
/// into the bytes that are left. Of rows of similar size, at most one more than the maximum allows is read.
pub struct BoundedRows {
    rows: usize,
    bytes_max: u64,
    /// The number of rows that were read.
    read: usize,
    bytes: u64,
    /// The maximum number of rows of the next read.
    next_max: usize,
    /// The bytes of a row, on average over the read whose rows were largest.
    row_bytes: u64,
    parts: Vec<RecordBatch>,
    too_large: TooLarge,
}

/// Rows that take more than the maximum of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Excess {
    /// The number of rows.
    pub rows: usize,
    /// The maximum of bytes.
    pub bytes_max: u64,
    /// The bytes of the rows that were read.
    pub bytes: u64,
}

/// Returns the error for rows that take too many bytes.
type TooLarge = fn(Excess) -> NodeError;

impl BoundedRows {
    /// Creates an empty collection for `rows` rows of at most `bytes_max` bytes in total. The first read has at most
    /// `first` rows. `too_large` makes the error for more bytes.
    pub fn new(rows: usize, first: usize, bytes_max: u64, too_large: TooLarge) -> Self {
        let (next_max, parts) = (first, Vec::new());
        Self { rows, bytes_max, read: 0, bytes: 0, next_max, row_bytes: 0, parts, too_large }
    }

    /// Returns the range to read next, or `None` once all rows are read. There is at least one range, which may be
    /// empty.
    pub fn next(&self) -> Option<Range<usize>> {
        if self.read == self.rows && !self.parts.is_empty() {
            return None;
        }
        let left = self.bytes_max.saturating_sub(self.bytes);
        let fitting = usize::try_from(left / self.row_bytes.max(1)).unwrap_or(usize::MAX);
        let end = self.read + fitting.clamp(1, self.next_max);
        Some(self.read..end.min(self.rows))
    }

    /// Adds the rows of the next range, which come in one or more batches.
    ///
    /// # Errors
    /// The error of `too_large` once the sum exceeds the maximum.
    pub fn push(&mut self, batches: Vec<RecordBatch>) -> Result<(), NodeError> {
        let bytes = memory_of(batches.iter().flat_map(RecordBatch::columns)) as u64;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        self.bytes += bytes;
        self.read += rows;
        self.row_bytes = self.row_bytes.max(bytes / rows.max(1) as u64);
        self.next_max = (self.next_max * 2).min(BLOB_ROWS);
        self.parts.extend(batches);
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
        let Self { rows, bytes_max, bytes, .. } = *self;
        (self.too_large)(Excess { rows, bytes_max, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray};

    use super::*;

    /// Reads `rows` rows of `row_bytes` bytes each, in batches of at most `batch_rows` rows. Returns the lengths of the
    /// reads, and the error, if there is one.
    fn read_in_batches(
        rows: usize,
        row_bytes: usize,
        bytes_max: u64,
        batch_rows: usize,
    ) -> (Vec<usize>, Option<String>) {
        let too_large =
            |Excess { rows, bytes_max, bytes }| NodeError::ChunkTooLarge { rows, bytes_max, bytes };
        let (mut read, mut reads) = (BoundedRows::new(rows, 1, bytes_max, too_large), Vec::new());
        while let Some(range) = read.next() {
            reads.push(range.len());
            let blob = vec![7_u8; row_bytes];
            let batch = |rows| {
                let blobs = std::iter::repeat_n(&blob, rows);
                let blobs: ArrayRef = Arc::new(BinaryArray::from_iter_values(blobs));
                RecordBatch::try_from_iter([("blob", blobs)]).unwrap()
            };
            // An empty range comes as an empty batch.
            let starts = (0..range.len().max(1)).step_by(batch_rows);
            let batches = starts.map(|start| batch(batch_rows.min(range.len() - start)));
            if let Err(error) = read.push(batches.collect()) {
                return (reads, Some(error.to_string()));
            }
        }
        assert_eq!(read.joined().unwrap().num_rows(), rows);
        (reads, None)
    }

    fn read(rows: usize, row_bytes: usize, bytes_max: u64) -> (Vec<usize>, Option<String>) {
        read_in_batches(rows, row_bytes, bytes_max, usize::MAX)
    }

    #[test]
    fn small_rows_are_read_more_and_more_at_a_time() {
        assert_eq!(read(200, 10, 1 << 20), (vec![1, 2, 4, 8, 16, 32, 64, 64, 9], None));
        assert_eq!(read(1, 10, 1 << 20), (vec![1], None));
        assert_eq!(read(0, 10, 1 << 20), (vec![0], None));
    }

    #[test]
    fn reads_grow_alike_whether_rows_come_in_one_batch_or_one_by_one() {
        let reads = vec![1, 2, 4, 8, 16, 32, 64, 64, 9];
        assert_eq!(read_in_batches(200, 10, 1 << 20, 1), (reads, None));
    }

    #[test]
    fn reading_large_rows_stops_at_the_maximum_with_the_advice_for_it() {
        let (reads, refused) = read(192, 1 << 20, 10 << 20);
        let rows: usize = reads.iter().sum();
        assert!((10..=11).contains(&rows), "{reads:?}");
        let refused = refused.unwrap();
        assert!(
            refused.contains("a chunk of 192 rows") && refused.contains("`segment`"),
            "{refused}"
        );
    }
}
