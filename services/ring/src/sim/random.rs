//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), whose numbers do not change
//! between versions of a library.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct SimRandom(u64);

impl SimRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true with a probability of `count` in 1,000.
    pub fn per_mille(&mut self, count: u32) -> bool {
        count > 0 && self.below(1000) < u64::from(count)
    }
}
