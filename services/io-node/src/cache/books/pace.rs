//! A limit on bytes per second.

use std::time::Duration;

use tokio::time::Instant;

/// Keeps a rate on average: any number of bytes may be spent at once, and the next bytes then wait for the time that
/// the spent bytes take at the rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    next: Instant,
}

impl Pace {
    /// Creates a pace whose first bytes may be spent at `now`. A rate of 0 means no limit.
    pub fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self { bytes_per_s, next: now }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.bytes_per_s > 0
    }

    /// The time at which the next bytes may be spent; `None` if they may be spent now.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        (self.bytes_per_s > 0 && self.next > now).then_some(self.next)
    }

    /// Spends bytes. Earlier idle time does not shorten later waits.
    pub fn spend(&mut self, bytes: u64, now: Instant) {
        if self.bytes_per_s > 0 {
            let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
            self.next = self.next.max(now) + cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_idle_time_is_not_saved_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(1000, start);
        assert_eq!(pace.wait(start), None);
        pace.spend(500, start);
        assert_eq!((pace.wait(at(499)), pace.wait(at(500))), (Some(at(500)), None));
        pace.spend(100, at(9000));
        pace.spend(100, at(9000));
        assert_eq!(pace.wait(at(9100)), Some(at(9200)));
        let mut free = Pace::new(0, start);
        assert!(pace.is_limited() && !free.is_limited());
        free.spend(u64::MAX, start);
        assert_eq!(free.wait(start), None);
    }
}
