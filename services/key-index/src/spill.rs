//! Entries that have no room in their page.
//!
//! If keys are unique, one page in 15 or 16 spills entries, six or seven on average (in wide runs one page in 45, and
//! five). A key with many rows spills most of them. Entries are ordered by bucket, tag and rank. In memory, a table
//! says where each page's entries begin.

use std::ops::Range;

/// An entry that has no room in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spilled {
    pub bucket: u32,
    pub tag: u32,
    pub rank: u32,
}

/// All spilled entries of a run.
#[derive(Clone, Debug, Default)]
pub struct Spill {
    entries: Vec<Spilled>,
    /// For each page, the index of its first entry; then the number of entries. Empty if nothing is spilled.
    begins: Box<[u32]>,
    home_lines: u32,
}

impl Spill {
    /// Takes entries that are ordered, of buckets below `pages * home_lines`.
    pub fn new(entries: Vec<Spilled>, pages: u32, home_lines: u32) -> Self {
        debug_assert!(entries.is_sorted());
        let begins = match entries.is_empty() {
            true => Box::default(),
            false => begins(&entries, pages, home_lines),
        };
        Self { entries, begins, home_lines }
    }

    /// Returns all entries.
    pub fn entries(&self) -> &[Spilled] {
        &self.entries
    }

    /// Returns the range of the entries of a bucket.
    pub fn range_of(&self, bucket: u32) -> Range<usize> {
        let page = (bucket / self.home_lines) as usize;
        let (Some(&from), Some(&to)) = (self.begins.get(page), self.begins.get(page + 1)) else {
            return 0..0;
        };
        let (from, to) = (from as usize, to as usize);
        let entries = &self.entries[from..to];
        let start = entries.partition_point(|it| it.bucket < bucket);
        let end = start + entries[start..].partition_point(|it| it.bucket == bucket);
        from + start..from + end
    }

    /// Returns the ranks of a bucket's entries that have a tag.
    pub fn ranks(&self, bucket: u32, tag: u32) -> impl Iterator<Item = u32> {
        let entries = &self.entries[self.range_of(bucket)];
        let start = entries.partition_point(|it| it.tag < tag);
        entries[start..].iter().take_while(move |it| it.tag == tag).map(|it| it.rank)
    }

    /// Returns the memory that the entries and the table of pages take.
    pub fn ram_bytes(&self) -> usize {
        size_of_val(&self.entries[..]) + size_of_val(&self.begins[..])
    }
}

fn begins(entries: &[Spilled], pages: u32, home_lines: u32) -> Box<[u32]> {
    let mut begins = Vec::with_capacity(pages as usize + 1);
    for (index, entry) in entries.iter().enumerate() {
        let page = (entry.bucket / home_lines) as usize;
        // At most 2^32 - 1 entries are in a run.
        begins.resize((page + 1).max(begins.len()), index as u32);
    }
    begins.resize(pages as usize + 1, entries.len() as u32);
    begins.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_a_bucket_are_found() {
        let entry = |(bucket, tag, rank)| Spilled { bucket, tag, rank };
        let entries = [(3, 5, 9), (3, 7, 1), (3, 7, 2), (4, 7, 3), (25, 0, 4)].map(entry);
        let spill = Spill::new(entries.to_vec(), 4, 10);
        assert_eq!(
            [2, 3, 4, 25, 30, 90].map(|bucket| spill.range_of(bucket)),
            [0..0, 0..3, 3..4, 4..5, 5..5, 0..0]
        );
        assert_eq!(spill.ranks(3, 7).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(spill.ranks(3, 6).count(), 0);
        assert_eq!(spill.ram_bytes(), 5 * 12 + 5 * 4);
        assert_eq!(Spill::new(Vec::new(), 4, 10).ram_bytes(), 0);
    }
}
