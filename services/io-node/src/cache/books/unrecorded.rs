//! Extents that are on a drive, but not in their segment's journal yet.
//!
//! While a drive writes one block of a journal, newly placed extents wait here, and then share the next block: the
//! slower the drive's flushes, the more extents per block.

use std::collections::VecDeque;
use std::sync::Arc;

use address::SECTOR_BYTES;

use crate::drive::journal::{BLOCK_SECTORS_MAX, block_sectors, record_bytes};
use crate::extent::Extent;
use crate::extent::SegmentNo;

/// Returns the number of sectors to reserve for an extent's record, as if it were alone in its block.
pub fn record_sectors(index: &pack::ExtentIndex) -> u64 {
    block_sectors(record_bytes(index))
}

/// A drive's unrecorded extents, oldest first.
#[derive(Debug, Default)]
pub struct Unrecorded {
    waiting: VecDeque<Arc<Extent>>,
}

impl Unrecorded {
    /// Adds an extent that was placed.
    pub fn push(&mut self, extent: Arc<Extent>) {
        self.waiting.push_back(extent);
    }

    /// The number of extents.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Removes and returns the extents of the next block: the oldest one, and the next ones of its segment, up to the
    /// first that does not fit.
    pub fn take(&mut self) -> Option<(SegmentNo, Vec<Arc<Extent>>)> {
        let segment = self.waiting.front()?.segment;
        let mut room = BLOCK_SECTORS_MAX as usize * SECTOR_BYTES;
        let mut is_full = false;
        let mut taken = Vec::new();
        self.waiting.retain(|extent| {
            let bytes = record_bytes(&extent.index);
            // An extent whose record is longer than a block gets a block of its own.
            let fits = bytes <= room || taken.is_empty();
            if extent.segment != segment || is_full || !fits {
                is_full |= extent.segment == segment;
                return true;
            }
            room = room.saturating_sub(bytes);
            taken.push(Arc::clone(extent));
            false
        });
        Some((segment, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::extent;

    #[test]
    fn a_block_is_of_one_segment_and_of_what_fits_in_order() {
        let mut unrecorded = Unrecorded::default();
        // In segment 1 the second record is longer than `BLOCK_SECTORS_MAX`, and the third is too long to share a block
        // with the fourth.
        for (chunk, segment, rows) in
            [(0, 1, 3), (1, 2, 3), (2, 1, 700_000), (3, 1, 400_000), (4, 1, 200_000), (5, 1, 3)]
        {
            unrecorded.push(extent(chunk, segment, rows));
        }
        let mut blocks = Vec::new();
        while let Some((segment, extents)) = unrecorded.take() {
            let chunks: Vec<_> = extents.iter().map(|extent| extent.key.chunk).collect();
            blocks.push((segment.index, chunks));
        }
        assert_eq!(
            blocks,
            [(1, vec![0]), (2, vec![1]), (1, vec![2]), (1, vec![3]), (1, vec![4, 5])]
        );
        assert_eq!(unrecorded.len(), 0);
    }
}
