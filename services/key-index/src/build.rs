//! Builds a run from the hashes of its rows.
//!
//! Hashes are distributed to slices by their first bits, each slice is sorted while it is in the CPU's cache, and the
//! sorted entries fill page after page. Besides the hashes and the run, building takes 16 bytes of scratch memory per
//! row, but at most [`SCRATCH_BYTES_MAX`]. If all slices together need more, the hashes are read several times, each
//! time for a part of the slices. Only a key with more rows than fit into this limit makes building exceed the limit,
//! because all rows of a key are in one slice.

use std::ops::Range;

use crate::body::Body;
use crate::fill::Fill;
use crate::geometry::{FormName, Geometry};
use crate::line::{Form, Narrow, Wide};

/// The maximum of scratch memory for building a run, in bytes. Up to 16 million rows are distributed in one pass over
/// the hashes.
pub const SCRATCH_BYTES_MAX: usize = 256 << 20;

/// The minimum average number of entries in a slice, if a run has several slices: 32 KiB, which a first-level cache
/// holds. The average is less than twice this, unless [`SLICE_BITS_MAX`] limits the number of slices.
const SLICE_ENTRIES: u64 = 2_048;

/// The maximum number of slices is 2 to this power. With more, distributing waits for address translation.
const SLICE_BITS_MAX: u32 = 12;

/// The hashes of the key column's rows, in the order of their ranks.
#[derive(Clone, Debug, Default)]
pub struct KeyHashes {
    /// A hash per row; any number for a row without a key.
    hashes: Vec<u64>,
    /// The ranks of the rows without a key, in order.
    nulls: Vec<u32>,
}

impl KeyHashes {
    /// Creates an empty list with room for `rows` rows.
    pub fn with_capacity(rows: usize) -> Self {
        Self { hashes: Vec::with_capacity(rows), nulls: Vec::new() }
    }

    /// Adds the next row: the hash of its key, or `None` if its key is null.
    ///
    /// # Panics
    /// If `hash` is `None` and there are 2^32 rows already.
    #[inline]
    pub fn push(&mut self, hash: Option<u64>) {
        if hash.is_none() {
            let rank = u32::try_from(self.hashes.len()).expect("a run has fewer than 2^32 rows");
            self.nulls.push(rank);
        }
        self.hashes.push(hash.unwrap_or(0));
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the number of rows that have a key.
    pub fn keys(&self) -> usize {
        self.hashes.len() - self.nulls.len()
    }

    /// Calls `each` with the hash and the rank of every row that has a key.
    fn each(&self, mut each: impl FnMut(u64, u32)) {
        let mut nulls = self.nulls.iter().copied().peekable();
        for (rank, &hash) in (0u32..).zip(&self.hashes) {
            if nulls.next_if_eq(&rank).is_none() {
                each(hash, rank);
            }
        }
    }
}

/// Builds the buckets for `hashes`.
pub fn build(geometry: Geometry, hashes: &KeyHashes, scratch_bytes: usize) -> Body {
    match geometry.form() {
        FormName::Narrow => fill(Fill::<Narrow>::new(geometry), hashes, scratch_bytes, geometry),
        FormName::Wide => fill(Fill::<Wide>::new(geometry), hashes, scratch_bytes, geometry),
    }
}

fn fill<F: Form>(
    mut fill: Fill<F>,
    hashes: &KeyHashes,
    scratch_bytes: usize,
    geometry: Geometry,
) -> Body {
    let slices = Slices::new(hashes, geometry.mask());
    let mut scratch = Vec::new();
    for part in slices.parts(scratch_bytes / size_of::<Entry>()) {
        let ends = slices.distribute(hashes, part, &mut scratch);
        let mut start = 0;
        for end in ends {
            let slice = &mut scratch[start..end];
            slice.sort_unstable();
            slice.iter().for_each(|&entry| fill.push((entry >> 32) as u64, entry as u32));
            start = end;
        }
    }
    fill.finish()
}

/// A rank in the lower 32 bits, and above it a hash, of which only the bits that the run keeps are set.
type Entry = u128;

/// The slices of a set of hashes.
struct Slices {
    /// The bits of a hash that the run keeps.
    mask: u64,
    /// The number of leading bits of a hash that select its slice.
    bits: u32,
    /// The number of entries in each slice.
    counts: Vec<usize>,
}

impl Slices {
    fn new(hashes: &KeyHashes, mask: u64) -> Self {
        let slices = hashes.keys() as u64 / SLICE_ENTRIES;
        let bits = slices.max(1).ilog2().min(SLICE_BITS_MAX);
        let mut counts = vec![0; 1 << bits];
        hashes.each(|hash, _| counts[slice_of(hash & mask, bits)] += 1);
        Self { mask, bits, counts }
    }

    /// Divides the slices into parts of at most `entries_max` entries, or of one slice that has more.
    fn parts(&self, entries_max: usize) -> Vec<Range<usize>> {
        let (mut parts, mut start, mut entries) = (Vec::new(), 0, 0);
        for (slice, count) in self.counts.iter().enumerate() {
            if entries + count > entries_max && start < slice {
                parts.push(start..slice);
                (start, entries) = (slice, 0);
            }
            entries += count;
        }
        parts.push(start..self.counts.len());
        parts
    }

    /// Puts the entries of the slices `part` into `scratch`, slice after slice, and returns where each slice ends.
    fn distribute(
        &self,
        hashes: &KeyHashes,
        part: Range<usize>,
        scratch: &mut Vec<Entry>,
    ) -> Vec<usize> {
        let starts = self.counts[part.clone()].iter().scan(0, |next, count| {
            let start = *next;
            *next += count;
            Some(start)
        });
        let mut places: Vec<usize> = starts.collect();
        let entries = self.counts[part.clone()].iter().sum();
        if scratch.capacity() < entries {
            *scratch = Vec::with_capacity(entries);
            process::prefer_huge_pages(scratch.spare_capacity_mut());
        }
        scratch.resize(entries, 0);
        hashes.each(|hash, rank| {
            let hash = hash & self.mask;
            let slice = slice_of(hash, self.bits).wrapping_sub(part.start);
            if let Some(place) = places.get_mut(slice) {
                scratch[*place] = Entry::from(hash) << 32 | Entry::from(rank);
                *place += 1;
            }
        });
        places
    }
}

#[inline]
fn slice_of(hash: u64, bits: u32) -> usize {
    (u128::from(hash) << bits >> 64) as usize
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn little_scratch_memory_gives_the_same_run() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut hashes = KeyHashes::default();
        for _ in 0..40_000 {
            hashes.push(rng.random_bool(0.9).then(|| rng.random()));
        }
        let geometry = Geometry::for_keys(hashes.keys() as u64, 64);
        let usual = build(geometry, &hashes, SCRATCH_BYTES_MAX);
        for bytes in [0, 16 * 5_000] {
            let little = build(geometry, &hashes, bytes);
            assert_eq!(little.lines, usual.lines);
            assert_eq!(little.spill.entries(), usual.spill.entries());
        }
    }

    #[test]
    fn parts_respect_the_limit() {
        let slices = Slices { mask: u64::MAX, bits: 2, counts: vec![3, 4, 9, 1] };
        assert_eq!(slices.parts(8), [0..2, 2..3, 3..4]);
        assert_eq!(slices.parts(12), [0..2, 2..4]);
    }
}
