//! One bucket: a line of 64 bytes, which is one cache line. Little-endian:
//!
//! ```text
//!            narrow                       wide
//! tags        0  u16 × 10                  0  u32 × 7
//! head       20  u8  entries in use       28  the same four bytes
//!            21  u8  first overflow slot
//!            22  u8  overflow entries
//!            23  u8  1 if entries spilled
//! ranks      24  u32 × 10                 32  u32 × 7
//!                                         60  u32 0
//! ```
//!
//! Entries are ordered by tag, then by rank. Free entries have the highest tag and rank 0, so that the number of lower
//! tags says where a tag's entries begin. Overflow lines have the same form and an empty head.

use std::ops::Range;

/// The bytes of a line.
pub const LINE_BYTES: usize = 64;

/// The lines of a page.
pub const PAGE_LINES: usize = 64;

/// The bytes of a page.
pub const PAGE_BYTES: usize = PAGE_LINES * LINE_BYTES;

/// A line's bytes, as they are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [u8; LINE_BYTES]);

/// The head of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineHead {
    /// The entries in the line itself.
    pub entries: u8,
    /// The first of the bucket's slots in the page's overflow lines; 0 if it has none.
    pub overflow_start: u8,
    /// The number of the bucket's slots in the overflow lines.
    pub overflow_entries: u8,
    /// Whether more entries are in the run's spill.
    pub is_spilled: bool,
}

/// The layout of lines and pages.
pub trait Form: Copy + Send + Sync + 'static {
    /// The number of entries that a line has room for.
    const WAYS: usize;
    /// The bits of a tag.
    const TAG_BITS: u32;
    /// The number of buckets in a page. The page's other lines take their overflow.
    const HOME_LINES: usize;
    /// The number of keys that a page is made for, on average.
    const KEYS_A_PAGE: usize;
    /// The offset of the head in a line, in bytes. The tags lie before the head, the ranks after it.
    const HEAD_AT: usize;

    /// Returns the tag of entry `way`.
    fn tag(line: &Line, way: usize) -> u32;

    /// Writes the tag of entry `way`.
    fn set_tag(line: &mut Line, way: usize, tag: u32);

    /// Returns the entries whose tag is `tag`; free ones too, if it is the highest tag.
    fn ways_of(line: &Line, tag: u32) -> Range<usize>;

    /// The highest tag.
    const TAG_MAX: u32 = u32::MAX >> (32 - Self::TAG_BITS);
    /// The slots in a page's overflow lines.
    const OVERFLOW_SLOTS: usize = (PAGE_LINES - Self::HOME_LINES) * Self::WAYS;

    /// Returns the rank of an entry.
    #[inline]
    fn rank(line: &Line, way: usize) -> u32 {
        read_u32(line, Self::HEAD_AT + 4 + 4 * way)
    }

    /// Returns a line without entries.
    fn empty() -> Line {
        let mut line = Line([0; LINE_BYTES]);
        line.0[..Self::HEAD_AT].fill(0xff);
        line
    }

    /// Writes an entry.
    fn put(line: &mut Line, way: usize, tag: u32, rank: u32) {
        Self::set_tag(line, way, tag);
        let at = Self::HEAD_AT + 4 + 4 * way;
        line.0[at..at + 4].copy_from_slice(&rank.to_le_bytes());
    }

    /// Returns a line's head. The bytes are not checked.
    #[inline]
    fn head(line: &Line) -> LineHead {
        let [entries, overflow_start, overflow_entries, spilled] =
            read_u32(line, Self::HEAD_AT).to_le_bytes();
        LineHead { entries, overflow_start, overflow_entries, is_spilled: spilled != 0 }
    }

    /// Writes a line's head.
    fn set_head(line: &mut Line, head: LineHead) {
        let bytes =
            [head.entries, head.overflow_start, head.overflow_entries, u8::from(head.is_spilled)];
        line.0[Self::HEAD_AT..Self::HEAD_AT + 4].copy_from_slice(&bytes);
    }
}

/// Ten entries with tags of 16 bits: 7.8 bytes per key. For runs of millions of keys. `docs/decisions/key-index.md` has
/// the figures for other numbers of buckets and of keys per page.
#[derive(Clone, Copy, Debug)]
pub struct Narrow;

/// Seven entries with tags of 32 bits: 12 bytes per key. For runs that are small now and will be merged.
#[derive(Clone, Copy, Debug)]
pub struct Wide;

impl Form for Narrow {
    const WAYS: usize = 10;
    const TAG_BITS: u32 = 16;
    const HOME_LINES: usize = 57;
    const KEYS_A_PAGE: usize = 528;
    const HEAD_AT: usize = 20;

    #[inline]
    fn tag(line: &Line, way: usize) -> u32 {
        u32::from(u16::from_le_bytes([line.0[2 * way], line.0[2 * way + 1]]))
    }

    fn set_tag(line: &mut Line, way: usize, tag: u32) {
        line.0[2 * way..2 * way + 2].copy_from_slice(&(tag as u16).to_le_bytes());
    }

    #[inline]
    fn ways_of(line: &Line, tag: u32) -> Range<usize> {
        let tag = tag as u16;
        let tags = line.0[..Self::HEAD_AT].as_chunks::<2>().0;
        let (mut lower, mut equal) = (0u16, 0u16);
        for bytes in tags {
            let it = u16::from_le_bytes(*bytes);
            lower += u16::from(it < tag);
            equal += u16::from(it == tag);
        }
        usize::from(lower)..usize::from(lower + equal)
    }
}

impl Form for Wide {
    const WAYS: usize = 7;
    const TAG_BITS: u32 = 32;
    const HOME_LINES: usize = 56;
    const KEYS_A_PAGE: usize = 345;
    const HEAD_AT: usize = 28;

    #[inline]
    fn tag(line: &Line, way: usize) -> u32 {
        read_u32(line, 4 * way)
    }

    fn set_tag(line: &mut Line, way: usize, tag: u32) {
        line.0[4 * way..4 * way + 4].copy_from_slice(&tag.to_le_bytes());
    }

    #[inline]
    fn ways_of(line: &Line, tag: u32) -> Range<usize> {
        let (mut lower, mut equal) = (0, 0);
        for way in 0..Self::WAYS {
            let it = Self::tag(line, way);
            lower += u32::from(it < tag);
            equal += u32::from(it == tag);
        }
        lower as usize..(lower + equal) as usize
    }
}

#[inline]
fn read_u32(line: &Line, at: usize) -> u32 {
    u32::from_le_bytes([line.0[at], line.0[at + 1], line.0[at + 2], line.0[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<F: Form>() {
        assert_eq!(size_of::<Line>(), 64);
        assert!(F::HEAD_AT + 4 + 4 * F::WAYS <= LINE_BYTES);
        assert!(F::OVERFLOW_SLOTS <= usize::from(u8::MAX));
        let mut line = F::empty();
        assert_eq!(F::ways_of(&line, 5), 0..0);
        for (way, tag) in [3, 3, 9, F::TAG_MAX].into_iter().enumerate() {
            F::put(&mut line, way, tag, 100 + way as u32);
        }
        let head =
            LineHead { entries: 4, overflow_start: 1, overflow_entries: 2, is_spilled: true };
        F::set_head(&mut line, head);
        assert_eq!(F::head(&line), head);
        assert_eq!(
            [2, 3, 4, 9, 10].map(|tag| F::ways_of(&line, tag)),
            [0..0, 0..2, 2..2, 2..3, 3..3]
        );
        // Free entries have the highest tag: the head says where they begin.
        assert_eq!(F::ways_of(&line, F::TAG_MAX), 3..F::WAYS);
        assert_eq!((0..4).map(|way| F::rank(&line, way)).collect::<Vec<_>>(), [100, 101, 102, 103]);
    }

    #[test]
    fn entries_are_found_by_their_tag() {
        check::<Narrow>();
        check::<Wide>();
    }
}
