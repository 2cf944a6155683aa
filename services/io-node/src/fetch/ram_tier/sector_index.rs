//! The index from sectors to frames: sets of ten ways, each set one cache line of the CPU.
//!
//! A way stores 16 bits of its sector's hash. So a look-up needs only this line to find the sector's frame, or to find
//! that there is none. At most one look-up in 6,000 meets another sector with the same 16 bits, and has to compare the
//! names in two frames. There are two and a half times as many ways as sectors, so that few sectors meet a full set:
//! one in a thousand while the tier fills, and one in 200 once it is full.

use std::cell::Cell;

use super::{FrameNo, bucket_of};

/// The number of ways of a set. Their frames take 40 bytes and their tags 20; with the use counters they fill a cache
/// line.
const WAYS: usize = 10;

/// The average number of sectors in a set when the tier is full. The head of this file says how rarely a set of ten
/// ways is full then.
const SECTORS_A_SET: usize = 4;

/// Bytes of the index per sector.
pub const INDEX_BYTES: usize = size_of::<Set>() / SECTORS_A_SET;

/// Stands for no frame, in a way without a sector.
const NONE: FrameNo = FrameNo(u32::MAX);

/// The number of bits of a way's use counter. S3-FIFO counts up to 3 uses too.
const USE_BITS: u32 = 2;
/// The maximum of a way's use counter.
const USES_MAX: u32 = 3;

#[derive(Clone)]
#[repr(align(64))]
struct Set {
    frames: [FrameNo; WAYS],
    tags: [u16; WAYS],
    /// The use counter of each way, of [`USE_BITS`] bits.
    uses: Cell<u32>,
}

/// The index, as an array of sets.
pub struct SectorIndex(Box<[Set]>);

impl SectorIndex {
    /// Creates an index for `sectors` sectors.
    pub fn new(sectors: usize) -> Self {
        let empty = Set { frames: [NONE; WAYS], tags: [0; WAYS], uses: Cell::new(0) };
        Self(vec![empty; sectors.div_ceil(SECTORS_A_SET)].into())
    }

    fn set(&self, hash: u64) -> &Set {
        &self.0[bucket_of(hash, self.0.len())]
    }

    fn set_mut(&mut self, hash: u64) -> &mut Set {
        let at = bucket_of(hash, self.0.len());
        &mut self.0[at]
    }

    /// Prefetches the set of a hash.
    pub fn prefetch(&self, hash: u64) {
        process::prefetch(std::slice::from_ref(self.set(hash)));
    }

    /// Returns the frames that may hold a sector with this hash.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = FrameNo> {
        let set = self.set(hash);
        set.ways(tag(hash)).map(|way| set.frames[way])
    }

    /// Returns the frame with this hash for which `is_it` holds, and counts a use of it.
    pub fn find(&self, hash: u64, is_it: impl Fn(FrameNo) -> bool) -> Option<FrameNo> {
        let set = self.set(hash);
        let way = set.ways(tag(hash)).find(|&way| is_it(set.frames[way]))?;
        set.add_use(way);
        Some(set.frames[way])
    }

    /// Adds a sector that is not in the index, to a set that is not full.
    pub fn put(&mut self, hash: u64, frame: FrameNo) {
        let set = self.set_mut(hash);
        if let Some(way) = set.way_of(NONE) {
            (set.frames[way], set.tags[way]) = (frame, tag(hash));
            set.forget_uses(way);
        }
    }

    /// Removes the sector of a frame.
    pub fn remove(&mut self, hash: u64, frame: FrameNo) {
        let set = self.set_mut(hash);
        if let Some(way) = set.way_of(frame) {
            set.frames[way] = NONE;
        }
    }

    /// Returns the least used frame of a hash's set, if the set is full.
    pub fn least_used_of_full(&self, hash: u64) -> Option<FrameNo> {
        let set = self.set(hash);
        let least = (0..WAYS).min_by_key(|&way| set.uses_of(way))?;
        set.way_of(NONE).is_none().then_some(set.frames[least])
    }

    /// Decrements a frame's use counter. Returns whether it was above 0.
    pub fn take_use(&self, hash: u64, frame: FrameNo) -> bool {
        let set = self.set(hash);
        set.way_of(frame).is_some_and(|way| set.take_use(way))
    }
}

impl Set {
    /// Returns the ways that hold a sector with this tag.
    fn ways(&self, tag: u16) -> impl Iterator<Item = usize> {
        let is_alike = |way: usize| self.tags[way] == tag && self.frames[way] != NONE;
        let alike = (0..WAYS).fold(0u32, |bits, way| bits | u32::from(is_alike(way)) << way);
        let next = |&bits: &u32| Some(bits & bits.wrapping_sub(1));
        std::iter::successors(Some(alike), next)
            .take_while(|&bits| bits != 0)
            .map(|bits| bits.trailing_zeros() as usize)
    }

    fn way_of(&self, frame: FrameNo) -> Option<usize> {
        self.frames.iter().position(|&it| it == frame)
    }

    fn uses_of(&self, way: usize) -> u32 {
        self.uses.get() >> (USE_BITS * way as u32) & USES_MAX
    }

    fn add_use(&self, way: usize) {
        if self.uses_of(way) < USES_MAX {
            self.uses.set(self.uses.get() + (1 << (USE_BITS * way as u32)));
        }
    }

    fn take_use(&self, way: usize) -> bool {
        let has_any = self.uses_of(way) > 0;
        if has_any {
            self.uses.set(self.uses.get() - (1 << (USE_BITS * way as u32)));
        }
        has_any
    }

    fn forget_uses(&self, way: usize) {
        self.uses.set(self.uses.get() & !(USES_MAX << (USE_BITS * way as u32)));
    }
}

/// Returns the lower bits of a hash. The upper bits select the set.
fn tag(hash: u64) -> u16 {
    hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_one_cache_line() {
        assert_eq!(size_of::<Set>(), 64);
    }

    #[test]
    fn sectors_with_the_same_set_and_tag_are_distinguished() {
        let mut index = SectorIndex::new(1);
        for number in 0..WAYS as u32 {
            assert_eq!(index.least_used_of_full(7), None);
            index.put(7, FrameNo(number));
        }
        for number in 0..WAYS as u32 {
            assert_eq!(index.find(7, |it| it == FrameNo(number)), Some(FrameNo(number)));
        }
        assert_eq!(index.find(8, |_| true), None);
        index.find(7, |it| it != FrameNo(4));
        assert_eq!(index.candidates(7).count(), WAYS);
        assert!(index.take_use(7, FrameNo(3)) && !index.take_use(7, FrameNo(3)));
        assert_eq!(index.least_used_of_full(7), Some(FrameNo(3)));
        index.remove(7, FrameNo(3));
        assert_eq!(index.find(7, |it| it == FrameNo(3)), None);
        assert_eq!(index.least_used_of_full(7), None);
    }

    #[test]
    fn uses_are_counted_up_to_three_and_not_inherited() {
        let mut index = SectorIndex::new(1);
        index.put(1, FrameNo(0));
        index.put(2, FrameNo(1));
        (0..9).for_each(|_| assert!(index.find(1, |_| true).is_some()));
        let taken = (0..9).filter(|_| index.take_use(1, FrameNo(0))).count();
        assert_eq!(taken, 3);
        assert!(!index.take_use(2, FrameNo(1)));
        index.find(1, |_| true);
        index.remove(1, FrameNo(0));
        index.put(3, FrameNo(5));
        assert!(!index.take_use(3, FrameNo(5)));
    }
}
