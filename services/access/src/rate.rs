//! A rate limit that needs no lock. Its only state is the time at which all work taken so far will have been earned.
//!
//! The limit is a bucket that holds the work of one second. Work is admitted while the bucket holds at least one unit,
//! even if the work takes more than the bucket holds. The debt then has to be earned before more work is admitted. So a
//! request of any number of rows can be answered, and the average rate is kept. (The crate `governor` refuses work that
//! exceeds its bucket.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time in which an empty bucket is filled.
const BURST: Duration = Duration::from_secs(1);

/// The work taken so far, as the time in nanoseconds at which all of it is earned.
#[derive(Debug, Default)]
pub struct Taken(AtomicU64);

impl Taken {
    /// Takes `units` at a rate of `per_second`. `now` is the time since any fixed moment.
    ///
    /// # Errors
    /// The time until a unit can be taken.
    pub fn take(&self, units: u64, per_second: u64, now: Duration) -> Result<(), Duration> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (now, burst) = (nanoseconds(now), nanoseconds(BURST));
        let time_of = |units: u64| {
            let nanoseconds = u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
            u64::try_from(nanoseconds).unwrap_or(u64::MAX)
        };
        let (unit, cost) = (time_of(1), time_of(units));
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned| {
            let from = earned.max(now);
            // If earning a unit takes as long as filling the bucket, or longer, the bucket has to be full.
            (from - now <= burst.saturating_sub(unit)).then(|| from.saturating_add(cost))
        });
        taken.map(drop).map_err(|earned| {
            let wait = earned.max(now) - now - burst.saturating_sub(unit);
            Duration::from_nanos(wait)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_second_of_work_is_taken_at_once_and_the_rest_at_the_rate() {
        let taken = Taken::default();
        let at = ms(5000);
        let at_once = (0..100).take_while(|_| taken.take(1, 10, at).is_ok()).count();
        assert_eq!(at_once, 10);
        assert_eq!(taken.take(1, 10, at), Err(ms(100)));
        assert_eq!(taken.take(1, 10, at + ms(99)), Err(ms(1)));
        assert_eq!(taken.take(1, 10, at + ms(100)), Ok(()));
        assert_eq!(taken.take(1, 10, at + ms(100)), Err(ms(100)));
    }

    #[test]
    fn more_than_a_second_of_work_is_taken_once_and_earned_before_the_next() {
        let taken = Taken::default();
        assert_eq!(taken.take(35, 10, ms(0)), Ok(()));
        assert_eq!(taken.take(1, 10, ms(0)), Err(ms(2600)));
        assert_eq!(taken.take(1, 10, ms(2600)), Ok(()));
        let slow = Taken::default();
        assert_eq!(slow.take(1, 1, ms(0)), Ok(()));
        assert_eq!(slow.take(1, 1, ms(400)), Err(ms(600)));
        assert_eq!(slow.take(1, 1, ms(1000)), Ok(()));
    }
}
