//! Everything random of a run, out of its seed: a stream of numbers for each who asks, so that one asking more often
//! changes nothing for the others.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// One stream.
#[derive(Debug)]
pub struct Dice(SmallRng);

impl Dice {
    /// The stream that is called `name`.
    pub fn new(seed: u64, name: &str) -> Self {
        Self(SmallRng::seed_from_u64(xxh3_64_with_seed(name.as_bytes(), seed)))
    }

    /// A number from a range.
    pub fn from(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// Less than `end`, which isn't 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// True `count` times in 1,000.
    pub fn per_mille(&mut self, count: u64) -> bool {
        count > 0 && self.from(0..=999) < count
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// So many milliseconds: clocks here know nothing finer.
    pub fn ms(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.from(range))
    }

    /// A number from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        self.0.random_range(-1.0..=1.0)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.random()
    }
}
