//! When a store is let be: pure, told of the time and of chance.
//!
//! ```text
//! closed ── failures in a row ──► open, for a pause ──► one probe ── answered ──► closed
//!                                   ▲                       └── failed ──┐
//!                                   └─────────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

use tables::StoreLimits;

/// A probe that takes longer makes way for another: its answer may be read slowly, and its client waits ever longer
/// between its attempts, while the store may be back.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// A store that has failed too often is let be, but for a probe now and then.
#[derive(Debug)]
pub struct Breaker {
    failures_max: u32,
    /// Before jitter. Always the same: one request in so long is no load to a store, and rows that no drive has fail
    /// for that long after it is back.
    pause: Duration,
    failures: u32,
    open_until: Option<Instant>,
    /// Since when.
    probing: Option<Instant>,
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store is let be: it failed {failures} times in a row; it is asked again in {}", wait(*.again))]
pub struct LetBe {
    /// Failures in a row.
    pub failures: u32,
    /// After how long it is asked again; zero while that is being done.
    pub again: Duration,
}

fn wait(again: Duration) -> String {
    match again {
        Duration::ZERO => "a moment".into(),
        _ => format!("{} ms", again.as_millis().max(1)),
    }
}

impl Breaker {
    /// Of a store that is thought well of.
    pub fn new(limits: &StoreLimits) -> Self {
        Self {
            failures_max: limits.breaker_failures,
            pause: limits.breaker_pause,
            failures: 0,
            open_until: None,
            probing: None,
        }
    }

    /// Whether a request would be sent now.
    ///
    /// # Errors
    /// While the store is let be.
    pub fn check(&self, now: Instant) -> Result<(), LetBe> {
        let Some(until) = self.open_until else { return Ok(()) };
        let again = until.saturating_duration_since(now);
        let is_probing =
            self.probing.is_some_and(|since| now.saturating_duration_since(since) < PROBE_MAX);
        match again.is_zero() && !is_probing {
            true => Ok(()),
            false => Err(LetBe { failures: self.failures, again }),
        }
    }

    /// Since when a probe of a store that is let be is under way.
    pub fn probing(&self) -> Option<Instant> {
        self.probing
    }

    /// Lets a request be sent, and says whether it is the probe of a store that is let be. What becomes of it is
    /// to be told, also that nobody waits for it any more.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn admit(&mut self, now: Instant) -> Result<bool, LetBe> {
        self.check(now)?;
        self.probing = self.open_until.map(|_| now);
        Ok(self.probing.is_some())
    }

    /// The store answered. Whether it had been let be.
    pub fn answered(&mut self) -> bool {
        let was_open = self.open_until.take().is_some();
        (self.failures, self.probing) = (0, None);
        was_open
    }

    /// It did not, nor as a probe if this `is_probe`; `chance` is from 0 to 1. Whether it is let be from now on,
    /// and was not before.
    pub fn failed(&mut self, is_probe: bool, now: Instant, chance: f64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let was_open = self.open_until.is_some();
        // Those that were under way when it opened say nothing new.
        let opens = if was_open { is_probe } else { self.failures >= self.failures_max };
        if opens {
            // So that nodes which lost the same store don't all come back at once.
            self.open_until = Some(now + self.pause.mul_f64(0.5 + chance));
            self.probing = None;
        }
        opens && !was_open
    }

    /// Nobody waits for the probe's answer any more; another request may be one.
    pub fn abandoned(&mut self) {
        self.probing = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> (Breaker, Instant) {
        let limits = StoreLimits {
            breaker_failures: 3,
            breaker_pause: Duration::from_secs(1),
            ..Default::default()
        };
        (Breaker::new(&limits), Instant::now())
    }

    fn open() -> (Breaker, Instant) {
        let (mut breaker, now) = breaker();
        assert!(!breaker.failed(false, now, 0.5) && !breaker.failed(false, now, 0.5));
        assert!(breaker.failed(false, now, 0.5));
        (breaker, now)
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_answer_between_them_does_not() {
        let (mut breaker, now) = breaker();
        for _ in 0..10 {
            assert!(
                !breaker.failed(false, now, 0.5)
                    && !breaker.failed(false, now, 0.5)
                    && !breaker.answered()
            );
        }
        assert_eq!(breaker.admit(now), Ok(false));
        let (mut breaker, now) = open();
        let let_be = LetBe { failures: 3, again: Duration::from_secs(1) };
        assert_eq!(breaker.admit(now), Err(let_be));
    }

    #[test]
    fn after_its_pause_one_probe_decides() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(1);
        assert_eq!(breaker.admit(later), Ok(true));
        assert_eq!(breaker.admit(later), Err(LetBe { failures: 3, again: Duration::ZERO }));
        // One that was under way before.
        assert!(breaker.answered());
        assert_eq!(breaker.admit(later), Ok(false));
    }

    #[test]
    fn each_failed_probe_is_followed_by_a_pause() {
        let (mut breaker, mut now) = open();
        for _ in 0..8 {
            let Err(LetBe { again, .. }) = breaker.admit(now) else { panic!("it is open") };
            assert_eq!(again, Duration::from_secs(1));
            now += again;
            assert_eq!(breaker.admit(now), Ok(true));
            // An old failure that comes in late does not end the probe.
            assert!(!breaker.failed(false, now, 0.5));
            assert_eq!(breaker.check(now).unwrap_err().again, Duration::ZERO);
            assert!(!breaker.failed(true, now, 0.5));
        }
    }

    #[test]
    fn an_abandoned_probe_makes_way_for_another() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(2);
        assert_eq!(breaker.admit(later), Ok(true));
        breaker.abandoned();
        assert_eq!(breaker.admit(later), Ok(true));
    }

    #[test]
    fn a_probe_that_takes_its_time_makes_way_for_another() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(2);
        assert_eq!(breaker.admit(later), Ok(true));
        assert!(breaker.admit(later + PROBE_MAX - Duration::from_millis(1)).is_err());
        assert_eq!(breaker.admit(later + PROBE_MAX), Ok(true));
        assert!(breaker.admit(later + PROBE_MAX).is_err());
    }
}
