//! Chunks: the unit of placement, fill and eviction.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::RowAddr;

/// Identifies a chunk: a run of consecutive rows of one fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    /// The fragment's id.
    pub fragment: u32,
    /// The chunk's number within the fragment, counted from 0.
    pub index: u32,
}

/// The number of rows in each chunk of one fragment. The last chunk may have fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkRows(NonZeroU32);

impl ChunkRows {
    /// Creates the division into chunks of `rows` rows. Returns `None` if `rows` is 0.
    pub const fn new(rows: u32) -> Option<Self> {
        match NonZeroU32::new(rows) {
            Some(rows) => Some(Self(rows)),
            None => None,
        }
    }

    /// Returns the number of rows.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the chunk that holds `addr`.
    pub const fn chunk_of(self, addr: RowAddr) -> ChunkId {
        ChunkId { fragment: addr.fragment(), index: addr.offset() / self.0.get() }
    }

    /// Returns the index, within its chunk, of the row at `addr`.
    pub const fn row_in_chunk(self, addr: RowAddr) -> u32 {
        addr.offset() % self.0.get()
    }

    /// Returns the offsets, within the fragment, of the rows of chunk `index`. The last chunk ends where the fragment
    /// ends. A chunk past the fragment's end is empty.
    pub const fn rows_of(self, index: u32, fragment_rows: u32) -> Range<u32> {
        let start = index.saturating_mul(self.0.get());
        let end = start.saturating_add(self.0.get());
        if start >= fragment_rows {
            return fragment_rows..fragment_rows;
        }
        start..if end < fragment_rows { end } else { fragment_rows }
    }

    /// Returns the number of chunks in a fragment of `fragment_rows` rows.
    pub const fn chunks_in(self, fragment_rows: u32) -> u32 {
        fragment_rows.div_ceil(self.0.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chunk_ends_with_the_fragment() {
        let rows = ChunkRows::new(1024).unwrap();
        assert_eq!(rows.chunks_in(2049), 3);
        assert_eq!(rows.rows_of(1, 2049), 1024..2048);
        assert_eq!(rows.rows_of(2, 2049), 2048..2049);
        assert_eq!(rows.rows_of(3, 2049), 2049..2049);
        assert_eq!(rows.rows_of(u32::MAX, 2049), 2049..2049);
        let addr = RowAddr::new(5, 2048);
        assert_eq!(rows.chunk_of(addr), ChunkId { fragment: 5, index: 2 });
        assert_eq!(rows.row_in_chunk(addr), 0);
        assert_eq!(ChunkRows::new(0), None);
    }
}
