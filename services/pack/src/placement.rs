//! Where each row of an extent starts.
//!
//! A read is whole sectors, so a row that straddles a sector boundary costs one more. Rows are
//! therefore placed so that they don't, as long as that wastes at most a third of the space.
//!
//! Constant width: address arithmetic, nothing in RAM per row. Rows come in blocks; within a block
//! they are back to back, and the rest of the block is zeros:
//!
//! ```text
//! width 1536, block 4096:  | row 0 | row 1 | pad || row 2 | row 3 | pad || …
//! width 6144, block 8192:  | row 0         | pad || row 1         | pad || …
//! width 2700, block 2700:  | row 0 || row 1 || row 2 …                        (dense)
//! ```
//!
//! A row of at most 1,365 bytes is always in one sector.
//!
//! Variable width: greedy. A row that doesn't fit the rest of its sector moves to the next one if
//! that rest is at most a third of a sector, else it straddles. Only lengths are kept (2 bytes a
//! row); a start follows from them by the same rule, from a base every 16 rows. Rejected: keeping
//! starts as deltas, which costs the same and doesn't tell a row's end from the padding behind it.

use address::SECTOR_BYTES;

/// The most bytes left unused at a sector's end: a third of it.
pub(crate) const REST_BYTES_MAX: u32 = SECTOR_BYTES as u32 / 3;
/// The most sectors of an extent, so that every byte offset within it is a u32.
pub(crate) const SECTORS_MAX: u64 = (1 << 20) - 1;

const SECTOR: u32 = SECTOR_BYTES as u32;
const GROUP_ROWS: usize = 16;
/// A length of this value or more is in `long`.
pub(crate) const LONG: u16 = u16::MAX;

/// The bytes of one row, from the start of its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowSpan {
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

impl RowSpan {
    /// The sectors the bytes are in; at least one.
    pub const fn sectors(self) -> SectorSpan {
        let first = self.offset / SECTOR;
        let last = (self.offset as u64 + self.len.saturating_sub(1) as u64) / SECTOR as u64;
        SectorSpan { first, count: last as u32 - first + 1 }
    }
}

/// Consecutive sectors, from the start of their extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectorSpan {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Rows of one width: `per_block` of them back to back at the start of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedRows {
    pub width: u32,
    per_block: u32,
    block: u32,
}

impl FixedRows {
    /// `None` for a width of 0 or more than 1 GiB.
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

    /// Whether `rows` rows are back to back, without a byte between them.
    pub fn is_contiguous(&self) -> bool {
        self.per_block * self.width == self.block
    }

    pub fn start(&self, row: u32) -> u64 {
        let (block, place) = (row / self.per_block, row % self.per_block);
        u64::from(block) * u64::from(self.block) + u64::from(place * self.width)
    }

    /// Each row's number and bytes, of an extent's.
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

    /// Bytes up to the last row's end.
    pub fn end(&self, rows: u32) -> u64 {
        rows.checked_sub(1).map_or(0, |last| self.start(last) + u64::from(self.width))
    }
}

/// Rows of any width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VariableRows {
    /// A length a row; [`LONG`] where it is in `long`.
    pub lens: Box<[u16]>,
    /// Row and length of the long rows, ascending by row.
    pub long: Box<[(u32, u32)]>,
    /// Where every 16th row starts.
    bases: Box<[u32]>,
}

impl VariableRows {
    /// Places rows of these lengths. Returns with them the bytes up to the last row's end; `None`
    /// where an extent ends at less than 4 GiB, or for a row without bytes.
    pub fn new(lens: impl ExactSizeIterator<Item = u32>) -> Option<(Self, u64)> {
        let (mut short, mut long) = (Vec::with_capacity(lens.len()), Vec::new());
        let mut bases = Vec::with_capacity(lens.len().div_ceil(GROUP_ROWS));
        let mut end = 0u64;
        for (row, len) in lens.enumerate() {
            let start = place(end, len);
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

    /// Adds at most 15 lengths, or walks them: about 20 ns, against microseconds for the read that follows.
    pub fn span(&self, row: u32) -> Option<RowSpan> {
        let (first, row) = (row as usize / GROUP_ROWS * GROUP_ROWS, row as usize);
        let base = *self.bases.get(row / GROUP_ROWS)?;
        if let Some(group) = self.lens[first..].first_chunk::<GROUP_ROWS>() {
            let len = u32::from(group[row - first]);
            let before = sum_before(group, row - first);
            // No row up to this one leaves the base's sector, as none moved to the next; nor is one long.
            if base % SECTOR + before + len <= SECTOR {
                return Some(RowSpan { offset: base + before, len });
            }
        }
        let lens = self.lens.get(first..=row)?;
        let (mut end, mut start) = (u64::from(base), 0);
        for (at, &len) in (first..).zip(lens) {
            let len = if len == LONG { self.len_of(at as u32)? } else { u32::from(len) };
            // A base is a start already.
            start = if at == first { end } else { place(end, len) };
            end = start + u64::from(len);
        }
        Some(RowSpan { offset: start as u32, len: (end - start) as u32 })
    }

    /// Every row's span, in order, without the walk.
    pub fn spans(&self) -> impl Iterator<Item = RowSpan> + '_ {
        let mut end = 0u64;
        (0..self.lens.len() as u32).map_while(move |row| {
            let len = self.len_of(row)?;
            let offset = place(end, len);
            end = offset + u64::from(len);
            Some(RowSpan { offset: offset as u32, len })
        })
    }

    pub fn ram_bytes(&self) -> usize {
        size_of_val(&*self.lens) + size_of_val(&*self.long) + size_of_val(&*self.bases)
    }
}

/// For each place of a group, all bits of the lengths before it.
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

/// The sum of the lengths before the one at `at`: of all of them, so that no step waits for the one before it.
fn sum_before(group: &[u16; GROUP_ROWS], at: usize) -> u32 {
    group.iter().zip(&BEFORE[at]).map(|(len, mask)| u32::from(len & mask)).sum()
}

/// Where a row of `len` bytes starts when the row before it ends at `end`.
fn place(end: u64, len: u32) -> u64 {
    let rest = SECTOR - (end % SECTOR_BYTES as u64) as u32;
    if len > rest && rest <= REST_BYTES_MAX { end + u64::from(rest) } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn constant_widths_are_placed_within_sectors_when_at_most_a_third_is_wasted() {
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
        // 1365 left: moves. 1366 left: straddles.
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
        fn walked_spans_are_the_placed_ones(
            lens in prop::collection::vec(prop_oneof![1..3000u32, 1..40u32, 60_000..70_000u32], 0..200)
        ) {
            let (rows, end) = VariableRows::new(lens.iter().copied()).unwrap();
            let mut last_end = 0;
            for (row, span) in rows.spans().enumerate() {
                prop_assert_eq!(rows.span(row as u32), Some(span));
                prop_assert_eq!(span.len, lens[row]);
                prop_assert!(span.offset >= last_end && span.offset - last_end <= REST_BYTES_MAX);
                if span.len <= REST_BYTES_MAX {
                    prop_assert_eq!(span.sectors().count, 1);
                }
                last_end = span.offset + span.len;
            }
            prop_assert_eq!(u64::from(last_end), end);
            prop_assert_eq!(rows.span(lens.len() as u32), None);
        }
    }
}
