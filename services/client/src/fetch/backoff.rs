//! Pauses between attempts to connect.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Pauses that double, with jitter: each is between half of the due pause and all of it, so that clients that lost the
/// same node do not all reconnect at the same moment. (The crate `backon` adds its jitter to the due pause, which would
/// exceed the maximum that is set.)
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    due: Duration,
    random: SmallRng,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self { min, max, due: min, random: SmallRng::seed_from_u64(seed) }
    }

    /// Returns the next pause, and doubles the due one up to the maximum.
    pub fn pause(&mut self) -> Duration {
        let pause = self.due.mul_f64(self.random.random_range(0.5..=1.0));
        self.due = (self.due * 2).min(self.max);
        pause
    }

    /// Starts again with the shortest pause, after a success.
    pub fn reset(&mut self) {
        self.due = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_are_reset() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(350), 7);
        for due in [100, 200, 350, 350] {
            let pause = backoff.pause();
            assert!(ms(due) / 2 <= pause && pause <= ms(due), "{pause:?} of {due}");
        }
        backoff.reset();
        assert!(backoff.pause() <= ms(100));
    }
}
