//! The buckets of a run in memory, and look-ups in them.
//!
//! A page is 64 lines: its buckets, then its overflow lines.
//!
//! ```text
//! line  0 …              a bucket each: the ten (wide: seven) entries with the lowest tags
//! line 57 … (wide: 56)   the other entries of the page's buckets, bucket after bucket, ten (wide: seven) to a line
//! ```
//!
//! A look-up reads its bucket's line. If the bucket overflows and the tag is not below the highest one of the line, it
//! reads the bucket's slots in the overflow lines, nearly always in one line of the same page. What the page has no
//! room for is in the run's [`Spill`].

use std::ops::ControlFlow;

use crate::geometry::{Geometry, Spot, line_of, page_and_line};
use crate::line::{Form, Line, LineHead, PAGE_LINES};
use crate::spill::Spill;

/// The buckets of a run.
#[derive(Clone, Debug)]
pub struct Body {
    pub geometry: Geometry,
    pub lines: Vec<Line>,
    pub spill: Spill,
}

/// Reserves memory for the lines of `pages` pages. It consists of the system's huge pages, if there are any.
pub fn reserve(pages: u32) -> Vec<Line> {
    let mut lines = Vec::with_capacity(pages as usize * PAGE_LINES);
    process::prefer_huge_pages(lines.spare_capacity_mut());
    lines
}

impl Body {
    /// Prefetches the line of a bucket.
    #[inline]
    pub fn prefetch<F: Form>(&self, spot: Spot) {
        process::prefetch(std::slice::from_ref(self.line::<F>(spot.bucket)));
    }

    /// Prefetches the first overflow line that [`Body::each`] will read, if it will read one. Reads the bucket's own
    /// line, and so waits until it is in the CPU's cache.
    #[inline]
    pub fn prefetch_overflow<F: Form>(&self, spot: Spot) {
        let line = self.line::<F>(spot.bucket);
        let head = F::head(line);
        if overflows::<F>(line, head, spot.tag) {
            let (page, _) = page_and_line::<F>(spot.bucket);
            let (line, _) = overflow_slot::<F>(page * PAGE_LINES, head.overflow_start.into());
            process::prefetch(std::slice::from_ref(&self.lines[line]));
        }
    }

    /// Calls `each` with the rank of every entry that has the spot's bucket and tag, until `each` breaks.
    #[inline]
    pub fn each<F: Form>(
        &self,
        spot: Spot,
        mut each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (page, home) = page_and_line::<F>(spot.bucket);
        match each_in_page::<F>(&self.lines, page * PAGE_LINES, home, spot.tag, &mut each)? {
            MayBeSpilled(true) => self.spill.ranks(spot.bucket, spot.tag).try_for_each(each),
            MayBeSpilled(false) => ControlFlow::Continue(()),
        }
    }

    /// Returns the tag and the rank of a bucket's entry `number`. Entries are numbered in the order of their tags, and
    /// those with the same tag in the order of their ranks.
    fn entry<F: Form>(&self, bucket: u32, number: usize) -> Option<(u32, u32)> {
        let line = self.line::<F>(bucket);
        let head = F::head(line);
        let at = |line: &Line, way| Some((F::tag(line, way), F::rank(line, way)));
        let entries = usize::from(head.entries);
        if number < entries {
            return at(line, number);
        }
        let overflow = usize::from(head.overflow_entries);
        if number - entries < overflow {
            let slot = usize::from(head.overflow_start) + number - entries;
            let (page, _) = page_and_line::<F>(bucket);
            let (line, way) = overflow_slot::<F>(page * PAGE_LINES, slot);
            return at(&self.lines[line], way);
        }
        if !head.is_spilled {
            return None;
        }
        let entry =
            &self.spill.entries()[self.spill.range_of(bucket)].get(number - entries - overflow)?;
        Some((entry.tag, entry.rank))
    }

    /// Returns the hash and the rank of every entry, in the order of the hashes. Bits that the run does not keep are 0.
    pub fn entries<F: Form>(&self) -> impl Iterator<Item = (u64, u32)> {
        let buckets = self.geometry.buckets() as u32;
        (0..buckets).flat_map(move |bucket| {
            (0..).map_while(move |number| {
                let (tag, rank) = self.entry::<F>(bucket, number)?;
                Some((self.geometry.hash_of::<F>(Spot { bucket, tag }), rank))
            })
        })
    }

    /// Returns the memory that the buckets take.
    pub fn ram_bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + self.spill.ram_bytes()
    }

    #[inline]
    fn line<F: Form>(&self, bucket: u32) -> &Line {
        &self.lines[line_of::<F>(bucket)]
    }
}

/// Returns whether entries with this tag may be beyond the bucket's line.
#[inline]
fn overflows<F: Form>(line: &Line, head: LineHead, tag: u32) -> bool {
    // The line of a bucket that overflows or spills is full, so its last tag is the tag of an entry. `&` in place of
    // `&&`: one branch, which is rarely taken, is predicted better than three.
    let overflows = (head.overflow_entries > 0) | head.is_spilled;
    overflows & (tag >= F::tag(line, F::WAYS - 1))
}

/// Returns the line, and the entry in it, of a slot in the overflow lines of the page that begins with line `first`.
#[inline]
pub fn overflow_slot<F: Form>(first: usize, slot: usize) -> (usize, usize) {
    (first + F::HOME_LINES + slot / F::WAYS, slot % F::WAYS)
}

/// Whether there may be more entries with the same bucket and tag among the run's spilled entries.
pub struct MayBeSpilled(pub bool);

/// Calls `each` with the rank of every entry of a bucket that has the tag and is in the bucket's page, until `each`
/// breaks. The page begins with line `first` of `lines`, and the bucket is line `home` of the page.
#[inline]
pub fn each_in_page<F: Form>(
    lines: &[Line],
    first: usize,
    home: usize,
    tag: u32,
    mut each: impl FnMut(u32) -> ControlFlow<()>,
) -> ControlFlow<(), MayBeSpilled> {
    let line = &lines[first + home];
    let head = F::head(line);
    let ways = F::ways_of(line, tag);
    // The upper bound excludes free entries, which have the highest tag.
    for way in ways.start..ways.end.min(usize::from(head.entries)) {
        each(F::rank(line, way))?;
    }
    if overflows::<F>(line, head, tag) {
        each_in_overflow::<F>(lines, first, head, tag, each)?;
        return ControlFlow::Continue(MayBeSpilled(head.is_spilled));
    }
    ControlFlow::Continue(MayBeSpilled(false))
}

fn each_in_overflow<F: Form>(
    lines: &[Line],
    first: usize,
    head: LineHead,
    tag: u32,
    mut each: impl FnMut(u32) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let start = usize::from(head.overflow_start);
    for slot in start..start + usize::from(head.overflow_entries) {
        let (line, way) = overflow_slot::<F>(first, slot);
        let line = &lines[line];
        if F::tag(line, way) == tag {
            each(F::rank(line, way))?;
        }
    }
    ControlFlow::Continue(())
}
