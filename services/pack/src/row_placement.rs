//! Computes where each row of an extent starts.
//!
//! A read covers whole sectors, so a row that straddles a sector boundary costs an extra sector. Rows are placed so
//! that they do not straddle boundaries needlessly, as long as the padding takes at most a third of the space.
//!
//! Rows of constant width: the start of a row is computed from its number, so it takes no RAM. Rows are grouped into
//! blocks. Within a block they follow each other without gaps, and the rest of the block is zeros:
//!
//! ```text
//! width 1536, block 4096:  | row 0 | row 1 | pad || row 2 | row 3 | pad || …
//! width 6144, block 8192:  | row 0         | pad || row 1         | pad || …
//! width 2700, block 2700:  | row 0 || row 1 || row 2 …                        (dense)
//! ```
//!
//! A row of at most 1,365 bytes always lies within one sector.
//!
//! Rows of variable width: each row is placed after the one before. A row that doesn't fit into the rest of the sector
//! starts at the next sector if this rest is at most a third of a sector. Otherwise the row straddles the boundary.
//! Only the lengths are stored (2 bytes for each row), with the start of every 16th row as a base. The other starts are
//! computed from the base by the same rule. Storing the differences between starts was rejected: they take as much RAM,
//! and do not distinguish the end of a row from the padding after it.

use address::SECTOR_BYTES;

/// The maximum padding at a sector's end: a third of a sector. With more, more space could be lost; with less, more
/// short rows would take two sectors.
pub(crate) const PADDING_BYTES_MAX: u32 = SECTOR_BYTES as u32 / 3;
/// The maximum number of sectors of an extent. It keeps every byte offset within a u32.
pub(crate) const SECTORS_MAX: u64 = (1 << 20) - 1;

const SECTOR: u32 = SECTOR_BYTES as u32;
/// The number of rows that share a base. A base takes a quarter of a byte per row, and a look-up adds up to 15 lengths,
/// which takes about 35 ns (`docs/performance.md`).
const GROUP_ROWS: usize = 16;
/// In `lens`, marks a row of this length or more, whose length is stored in `long`.
pub(crate) const LONG: u16 = u16::MAX;

/// The byte range of one row, relative to the start of its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowSpan {
    /// The offset of the first byte.
    pub offset: u32,
    /// The length in bytes.
    pub len: u32,
}

impl RowSpan {
    /// Returns the sectors that contain the range; at least one.
    pub const fn sectors(self) -> SectorSpan {
        let first = self.offset / SECTOR;
        let last = (self.offset as u64 + self.len.saturating_sub(1) as u64) / SECTOR as u64;
        SectorSpan { first, count: last as u32 - first + 1 }
    }
}

/// A range of sectors, relative to the start of their extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectorSpan {
    /// The first sector.
    pub first: u32,
    /// The number of sectors.
    pub count: u32,
}

/// Rows of one width. Each block begins with `per_block` rows, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedRows {
    pub width: u32,
    per_block: u32,
    block: u32,
}

impl FixedRows {
    /// Places rows of `width` bytes. Returns `None` for a width of 0 or more than 1 GiB.
    pub fn new(width: u32) -> Option<Self> {
        if width == 0 || width > 1 << 30 {
            return None;
        }
        let (per_block, block) = (SECTOR / width.min(SECTOR), width.next_multiple_of(SECTOR));
        let waste = block - per_block * width;
        Some(match u64::from(waste) * 3 <= u64::from(block) {
            true => Self { width, per_block, block },
            false => Self { width, per_block: 1, block: width },
        })
    }

    /// Returns whether rows follow each other without padding.
    pub fn is_contiguous(&self) -> bool {
        self.per_block * self.width == self.block
    }

    pub fn start(&self, row: u32) -> u64 {
        let (block, position) = (row / self.per_block, row % self.per_block);
        u64::from(block) * u64::from(self.block) + u64::from(position * self.width)
    }

    /// Iterates over the numbers and bytes of the first `rows` rows in an extent's bytes.
    pub fn rows_mut(self, bytes: &mut [u8], rows: u32) -> impl Iterator<Item = (usize, &mut [u8])> {
        let used = (self.per_block * self.width) as usize;
        bytes
            .chunks_mut(self.block as usize)
            .flat_map(move |block| {
                let used = used.min(block.len());
                block[..used].chunks_exact_mut(self.width as usize)
            })
            .take(rows as usize)
            .enumerate()
    }

    /// Returns the offset of the end of the last of `rows` rows.
    pub fn end(&self, rows: u32) -> u64 {
        rows.checked_sub(1).map_or(0, |last| self.start(last) + u64::from(self.width))
    }
}

/// Rows of variable width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VariableRows {
    /// The length of each row, or [`LONG`] if it is in `long`.
    pub lens: Box<[u16]>,
    /// The number and length of each long row, in ascending order of the numbers.
    pub long: Box<[(u32, u32)]>,
    /// The start of every 16th row.
    bases: Box<[u32]>,
}

impl VariableRows {
    /// Places rows of the lengths `lens`. Also returns the offset of the last row's end. Returns `None` if a row is
    /// empty or the rows don't fit into an extent.
    pub fn new(lens: impl ExactSizeIterator<Item = u32>) -> Option<(Self, u64)> {
        let (mut short, mut long) = (Vec::with_capacity(lens.len()), Vec::new());
        let mut bases = Vec::with_capacity(lens.len().div_ceil(GROUP_ROWS));
        let mut end = 0u64;
        for (row, len) in lens.enumerate() {
            let start = row_start(end, len);
            end = start + u64::from(len);
            if len == 0 || end > SECTORS_MAX * SECTOR_BYTES as u64 {
                return None;
            }
            if row % GROUP_ROWS == 0 {
                bases.push(start as u32);
            }
            short.push(u16::try_from(len).unwrap_or(LONG));
            if len >= u32::from(LONG) {
                long.push((row as u32, len));
            }
        }
        Some((Self { lens: short.into(), long: long.into(), bases: bases.into() }, end))
    }

    pub fn len_of(&self, row: u32) -> Option<u32> {
        match *self.lens.get(row as usize)? {
            LONG => {
                let at = self.long.binary_search_by_key(&row, |&(row, _)| row).ok()?;
                Some(self.long[at].1)
            }
            short => Some(u32::from(short)),
        }
    }

    /// Returns the row's range, for which it adds at most 15 lengths, or places at most 15 rows one after another. This
    /// takes tens of nanoseconds, whereas the read that follows takes microseconds.
    pub fn span(&self, row: u32) -> Option<RowSpan> {
        let (first, row) = (row as usize / GROUP_ROWS * GROUP_ROWS, row as usize);
        let base = *self.bases.get(row / GROUP_ROWS)?;
        if let Some(group) = self.lens[first..].first_chunk::<GROUP_ROWS>() {
            let len = u32::from(group[row - first]);
            let before = sum_before(group, row - first);
            // If the group's rows up to this one end in the sector in which its first row starts, then none of them was
            // moved to the next sector, and none is long.
            if base % SECTOR + before + len <= SECTOR {
                return Some(RowSpan { offset: base + before, len });
            }
        }
        let lens = self.lens.get(first..=row)?;
        let (mut end, mut start) = (u64::from(base), 0);
        for (at, &len) in (first..).zip(lens) {
            let len = if len == LONG { self.len_of(at as u32)? } else { u32::from(len) };
            // The base is the start of the first row, so only the following rows are placed.
            start = if at == first { end } else { row_start(end, len) };
            end = start + u64::from(len);
        }
        Some(RowSpan { offset: start as u32, len: (end - start) as u32 })
    }

    /// Prefetches what [`span`](Self::span) and [`len_of`](Self::len_of) read for the row. `long` is not prefetched,
    /// because few rows are long.
    pub fn prefetch(&self, row: u32) {
        let group = row as usize / GROUP_ROWS;
        let first = group * GROUP_ROWS;
        let end = self.lens.len().min(first + GROUP_ROWS);
        if let Some(lens) = self.lens.get(first..end) {
            process::prefetch(lens);
            // They may be in two lines of the cache.
            process::prefetch(&lens[lens.len().saturating_sub(1)..]);
        }
        process::prefetch(self.bases.get(group..=group).unwrap_or_default());
    }

    /// Returns the range of `row`, given that of the row before it. Cheaper than [`span`](Self::span).
    pub fn span_after(&self, before: RowSpan, row: u32) -> Option<RowSpan> {
        let len = self.len_of(row)?;
        let end = u64::from(before.offset) + u64::from(before.len);
        Some(RowSpan { offset: row_start(end, len) as u32, len })
    }

    /// Iterates over the ranges of all rows in order. Cheaper than [`span`](Self::span) for each.
    pub fn spans(&self) -> impl Iterator<Item = RowSpan> + '_ {
        let mut before = RowSpan { offset: 0, len: 0 };
        (0..self.lens.len() as u32).map_while(move |row| {
            before = self.span_after(before, row)?;
            Some(before)
        })
    }

    pub fn ram_bytes(&self) -> usize {
        size_of_val(&*self.lens) + size_of_val(&*self.long) + size_of_val(&*self.bases)
    }
}

/// For each position of a group, a mask that keeps the lengths before that position.
const BEFORE: [[u16; GROUP_ROWS]; GROUP_ROWS] = {
    let mut masks = [[0; GROUP_ROWS]; GROUP_ROWS];
    let mut at = 0;
    while at < GROUP_ROWS {
        let mut before = 0;
        while before < at {
            masks[at][before] = u16::MAX;
            before += 1;
        }
        at += 1;
    }
    masks
};

/// Returns the sum of the lengths before position `at`. It adds all masked lengths of the group instead of stopping at
/// `at`, so that the additions do not depend on each other.
fn sum_before(group: &[u16; GROUP_ROWS], at: usize) -> u32 {
    group.iter().zip(&BEFORE[at]).map(|(len, mask)| u32::from(len & mask)).sum()
}

/// Returns the start of a row of `len` bytes after a row that ends at `end`.
fn row_start(end: u64, len: u32) -> u64 {
    let rest = SECTOR - (end % SECTOR_BYTES as u64) as u32;
    if len > rest && rest <= PADDING_BYTES_MAX { end + u64::from(rest) } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_of_constant_width_stay_within_sectors_if_padding_is_at_most_a_third() {
        let starts = |width| {
            let rows = FixedRows::new(width).unwrap();
            [0, 1, 2, 3].map(|row| rows.start(row))
        };
        assert_eq!(starts(1), [0, 1, 2, 3]);
        assert_eq!(starts(1366), [0, 1366, 4096, 5462]);
        assert_eq!(starts(1536), [0, 1536, 4096, 5632]);
        assert_eq!(starts(2700), [0, 2700, 5400, 8100]);
        assert_eq!(starts(2730), [0, 2730, 5460, 8190]);
        assert_eq!(starts(2731), [0, 4096, 8192, 12288]);
        assert_eq!(starts(3072), [0, 4096, 8192, 12288]);
        assert_eq!(starts(4096), [0, 4096, 8192, 12288]);
        assert_eq!(starts(4097), [0, 4097, 8194, 12291]);
        assert_eq!(starts(5461), [0, 5461, 10922, 16383]);
        assert_eq!(starts(5462), [0, 8192, 16384, 24576]);
        assert_eq!(starts(6144), [0, 8192, 16384, 24576]);
        assert_eq!(starts(8192), [0, 8192, 16384, 24576]);
        assert!(FixedRows::new(4096).unwrap().is_contiguous());
        assert!(FixedRows::new(2700).unwrap().is_contiguous());
        assert!(!FixedRows::new(1536).unwrap().is_contiguous());
        assert_eq!(FixedRows::new(1536).unwrap().end(3), 5632);
        assert_eq!(FixedRows::new(1536).unwrap().end(0), 0);
        assert_eq!(FixedRows::new(0), None);
        assert_eq!(FixedRows::new(u32::MAX), None);
    }

    fn offsets(lens: &[u32]) -> Vec<u32> {
        let (rows, _) = VariableRows::new(lens.iter().copied()).unwrap();
        rows.spans().map(|span| span.offset).collect()
    }

    #[test]
    fn a_row_moves_to_the_next_sector_if_at_most_a_third_is_left() {
        assert_eq!(offsets(&[4096, 4096]), [0, 4096]);
        assert_eq!(offsets(&[2731, 1365, 1]), [0, 2731, 4096]);
        // With 1365 bytes left in the sector the row moves, with 1366 it straddles.
        assert_eq!(offsets(&[2731, 1366]), [0, 4096]);
        assert_eq!(offsets(&[2730, 1367]), [0, 2730]);
        assert_eq!(offsets(&[4000, 10_000, 300]), [0, 4096, 14_096]);
    }

    #[test]
    fn rows_without_bytes_and_extents_of_4_gib_are_refused() {
        assert_eq!(VariableRows::new([1, 0].into_iter()), None);
        assert_eq!(VariableRows::new([u32::MAX, u32::MAX].into_iter()), None);
        let most = (SECTORS_MAX * 4096) as u32;
        assert!(VariableRows::new([most].into_iter()).is_some());
        assert_eq!(VariableRows::new([most + 1].into_iter()), None);
        let (none, end) = VariableRows::new([].into_iter()).unwrap();
        assert_eq!((none.span(0), end), (None, 0));
    }

    proptest! {
        #[test]
        fn a_span_computed_alone_equals_that_of_all_spans(
            lens in prop::collection::vec(prop_oneof![1..3000u32, 1..40u32, 60_000..70_000u32], 0..200)
        ) {
            let (rows, end) = VariableRows::new(lens.iter().copied()).unwrap();
            let mut last_end = 0;
            for (row, span) in rows.spans().enumerate() {
                prop_assert_eq!(rows.span(row as u32), Some(span));
                prop_assert_eq!(span.len, lens[row]);
                prop_assert!(span.offset >= last_end && span.offset - last_end <= PADDING_BYTES_MAX);
                if span.len <= PADDING_BYTES_MAX {
                    prop_assert_eq!(span.sectors().count, 1);
                }
                last_end = span.offset + span.len;
            }
            prop_assert_eq!(u64::from(last_end), end);
            prop_assert_eq!(rows.span(lens.len() as u32), None);
        }
    }
}
