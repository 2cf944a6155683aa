//! Checks persisted pages, so that look-ups can rely on them.

use crate::body::overflow_slot;
use crate::geometry::{Geometry, page_and_line};
use crate::line::{Form, Line, PAGE_LINES};
use crate::spill::Spilled;

/// The counts of the pages that have been checked so far.
#[derive(Debug, Default)]
pub struct Checked {
    /// The number of entries, spilled ones included.
    pub entries: u64,
    /// The number of buckets that are marked as spilled, less those whose spilled entries have been checked.
    pub spilling_buckets: u64,
}

impl Checked {
    /// Checks the lines of a page: the heads, the order of the entries, that ranks are below `rows`, that overflow
    /// slots are given to one bucket after the other, and that everything else is empty.
    pub fn page<F: Form>(&mut self, lines: &[Line], rows: u32) -> Result<(), &'static str> {
        let (home, overflow) = lines.split_at(F::HOME_LINES);
        let mut slots = 0;
        for line in home {
            let head = F::head(line);
            let entries = usize::from(head.entries);
            let others = usize::from(head.overflow_entries);
            if entries > F::WAYS || others > F::OVERFLOW_SLOTS - slots {
                return Err("a bucket has more entries than fit");
            }
            if (others > 0 || head.is_spilled) && entries < F::WAYS {
                return Err("a bucket that is not full overflows");
            }
            let start = if others > 0 { slots } else { 0 };
            if usize::from(head.overflow_start) != start || !has_plain_flag::<F>(line) {
                return Err("a bucket's head is invalid");
            }
            entries_are_ordered::<F>(line, entries, rows)?;
            if others > 0 {
                let mut last = (F::tag(line, F::WAYS - 1), F::rank(line, F::WAYS - 1));
                for slot in slots..slots + others {
                    let (line, way) = (&overflow[slot / F::WAYS], slot % F::WAYS);
                    let next = (F::tag(line, way), F::rank(line, way));
                    if next <= last || next.1 >= rows {
                        return Err("overflow entries are not in order, or not of a row");
                    }
                    last = next;
                }
            }
            slots += others;
            if head.is_spilled && slots < F::OVERFLOW_SLOTS {
                return Err("a bucket spills although its page has room");
            }
            self.entries += (entries + others) as u64;
            self.spilling_buckets += u64::from(head.is_spilled);
        }
        overflow_is_empty_from::<F>(overflow, slots)
    }

    /// Checks the spilled entries: their order, that they come after their bucket's entries in the page, that their
    /// buckets, tags and ranks are in range, and that the entries' buckets, and no others, are marked as spilled. All
    /// pages must have been checked before.
    pub fn spill<F: Form>(
        &mut self,
        spilled: &[Spilled],
        geometry: Geometry,
        lines: &[Line],
        rows: u32,
    ) -> Result<(), &'static str> {
        if spilled.windows(2).any(|two| two[0] >= two[1]) {
            return Err("spilled entries are not in order");
        }
        if !spilled.iter().all(|entry| is_possible::<F>(*entry, geometry, rows)) {
            return Err("a spilled entry is of no bucket or no row");
        }
        for bucket in spilled.chunk_by(|a, b| a.bucket == b.bucket) {
            let (page, home) = page_and_line::<F>(bucket[0].bucket);
            let page = &lines[page * PAGE_LINES..][..PAGE_LINES];
            if !F::head(&page[home]).is_spilled {
                return Err("an entry is spilled of a bucket that does not spill");
            }
            if (bucket[0].tag, bucket[0].rank) <= last_in_page::<F>(page, home) {
                return Err("a spilled entry belongs before an entry in its bucket's page");
            }
            self.spilling_buckets = self.spilling_buckets.wrapping_sub(1);
        }
        self.entries += spilled.len() as u64;
        match self.spilling_buckets {
            0 => Ok(()),
            _ => Err("a bucket spills, but none of its entries is there"),
        }
    }
}

/// Returns whether a run of this shape with `rows` rows may have the spilled entry `entry`.
pub fn is_possible<F: Form>(entry: Spilled, geometry: Geometry, rows: u32) -> bool {
    u64::from(entry.bucket) < geometry.buckets() && entry.tag <= F::TAG_MAX && entry.rank < rows
}

/// Returns the tag and the rank of the last entry in its page of a bucket that spills, which is line `home` of `page`.
fn last_in_page<F: Form>(page: &[Line], home: usize) -> (u32, u32) {
    let head = F::head(&page[home]);
    let (line, way) = match usize::from(head.overflow_entries) {
        // A bucket that spills has a full line.
        0 => (home, F::WAYS - 1),
        others => overflow_slot::<F>(0, usize::from(head.overflow_start) + others - 1),
    };
    (F::tag(&page[line], way), F::rank(&page[line], way))
}

/// Checks the first `entries` entries of a line. The others must be free.
fn entries_are_ordered<F: Form>(
    line: &Line,
    entries: usize,
    rows: u32,
) -> Result<(), &'static str> {
    let mut is_right = true;
    let mut last = None;
    for way in 0..F::WAYS {
        let next = (F::tag(line, way), F::rank(line, way));
        is_right &= match way < entries {
            true => Some(next) > last && next.1 < rows,
            false => next == (F::TAG_MAX, 0),
        };
        last = Some(next);
    }
    let unused = &line.0[F::HEAD_AT + 4 + 4 * F::WAYS..];
    is_right &= unused.iter().all(|&byte| byte == 0);
    is_right.then_some(()).ok_or("entries are not in order, or not of a row")
}

fn overflow_is_empty_from<F: Form>(overflow: &[Line], slots: usize) -> Result<(), &'static str> {
    let rest = &overflow[slots / F::WAYS..];
    for (number, line) in rest.iter().enumerate() {
        let from = if number == 0 { slots % F::WAYS } else { 0 };
        let mut expected = *line;
        (from..F::WAYS).for_each(|way| F::put(&mut expected, way, F::TAG_MAX, 0));
        if expected != *line {
            return Err("a free overflow slot is not empty");
        }
    }
    let is_plain = |line: &Line| line.0[F::HEAD_AT..F::HEAD_AT + 4] == [0; 4];
    let unused = |line: &Line| line.0[F::HEAD_AT + 4 + 4 * F::WAYS..].iter().all(|&byte| byte == 0);
    match overflow.iter().all(|line| is_plain(line) && unused(line)) {
        true => Ok(()),
        false => Err("an overflow line has a head"),
    }
}

fn has_plain_flag<F: Form>(line: &Line) -> bool {
    line.0[F::HEAD_AT + 3] <= 1
}
