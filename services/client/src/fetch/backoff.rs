//! Pauses between attempts to connect.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Doubling pauses with jitter: from half of the pause that is due up to all of it, so that clients
/// which lost the same node don't all come back at once.
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

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.due.mul_f64(self.random.random_range(0.5..=1.0));
        self.due = (self.due * 2).min(self.max);
        pause
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.due = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_most_and_begin_again() {
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
