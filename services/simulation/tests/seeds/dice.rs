//! The random numbers of a run, all from its seed. Each component has its own stream, so that a component that draws
//! more numbers does not affect the others.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// One stream of random numbers.
#[derive(Debug)]
pub struct Dice(SmallRng);

impl Dice {
    /// Creates the stream with this name.
    pub fn new(seed: u64, name: &str) -> Self {
        Self(SmallRng::seed_from_u64(xxh3_64_with_seed(name.as_bytes(), seed)))
    }

    /// Returns a number from a range.
    pub fn in_range(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// Returns a number less than `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// Returns true with a probability of `count` in 1,000.
    pub fn per_mille(&mut self, count: u64) -> bool {
        count > 0 && self.in_range(0..=999) < count
    }

    /// Returns one of the elements.
    pub fn pick<'a, T>(&mut self, elements: &'a [T]) -> &'a T {
        &elements[self.below(elements.len())]
    }

    /// Returns a duration in milliseconds, the resolution of the simulated clocks.
    pub fn ms(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.in_range(range))
    }

    /// Returns a number from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        self.0.random_range(-1.0..=1.0)
    }

    /// Returns the generator, for code that draws from one.
    pub fn rng(&mut self) -> &mut SmallRng {
        &mut self.0
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0.random()
    }
}
