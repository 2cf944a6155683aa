//! Rows in memory, for measurements without a node.

use bytes::Bytes;
use process::prefer_huge_pages;
use rand::Rng;
use rand::rngs::StdRng;

use crate::bench::random;

/// The number of rows that are drawn, copied, scored or sent together: as in a batch of `bench fetch`.
pub const BATCH_ROWS: usize = 500;

/// An element of a row: an f32, little-endian.
pub type Element = [u8; 4];

/// The number of random elements with which the memory is filled, again and again.
const PATTERN_ELEMENTS: usize = 1 << 18;

/// Rows of one size, one behind the other.
#[derive(Clone)]
pub struct RowMemory {
    bytes: Bytes,
    rows: usize,
    row_bytes: usize,
}

impl RowMemory {
    /// Makes `rows` rows of `dimension` elements. `rows` must be at least [`BATCH_ROWS`].
    pub fn new(rows: usize, dimension: usize) -> Self {
        assert!(rows >= BATCH_ROWS, "fewer rows than a batch has");
        let row_bytes = dimension * size_of::<Element>();
        let len = rows * row_bytes;
        let mut values = random(0, 1);
        let pattern: Vec<u8> =
            (0..PATTERN_ELEMENTS).flat_map(|_| values.random::<f32>().to_le_bytes()).collect();
        let mut bytes = Vec::with_capacity(len);
        prefer_huge_pages(bytes.spare_capacity_mut());
        while bytes.len() < len {
            bytes.extend_from_slice(&pattern[..pattern.len().min(len - bytes.len())]);
        }
        Self { bytes: bytes.into(), rows, row_bytes }
    }

    /// Returns the size of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns a row at a random position.
    pub fn row(&self, random: &mut StdRng) -> &[u8] {
        let at = random.random_range(0..self.rows) * self.row_bytes;
        &self.bytes[at..at + self.row_bytes]
    }

    /// Returns a batch of neighbouring rows at a random position, without copying them.
    pub fn batch(&self, random: &mut StdRng) -> Bytes {
        let at = random.random_range(0..=self.rows - BATCH_ROWS) * self.row_bytes;
        self.bytes.slice(at..at + BATCH_ROWS * self.row_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_batches_begin_at_rows() {
        let memory = RowMemory::new(600, 4);
        let mut random = random(0, 7);
        let offset = |part: &[u8]| part.as_ptr().addr() - memory.bytes.as_ptr().addr();
        let (mut rows, mut batches) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            let (row, batch) = (memory.row(&mut random), memory.batch(&mut random));
            assert_eq!((row.len(), batch.len()), (16, 500 * 16));
            rows.push(offset(row));
            batches.push(offset(&batch));
        }
        assert!(rows.iter().chain(&batches).all(|at| at.is_multiple_of(16)));
        // The first row and the last one are drawn too.
        assert_eq!((rows.iter().min(), rows.iter().max()), (Some(&0), Some(&(599 * 16))));
        assert_eq!((batches.iter().min(), batches.iter().max()), (Some(&0), Some(&(100 * 16))));
    }
}
