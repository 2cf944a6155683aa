//! When a store is let be: pure, told of the time and of chance.
//!
//! ```text
//! closed ── failures in a row ──► open, for a pause ──► one probe ── answered ──► closed
//!                                   ▲                       └── failed ──┐
//!                                   └─────────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

use tables::StoreLimits;

/// A probe of which nothing is heard for longer makes way for another: its answer may be read slowly, and its client waits
/// ever longer between its attempts, while the store may be back.
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
    probing: Option<Probing>,
    /// How many there were, by which they are told apart.
    probes: u64,
}

/// A request that finds out whether a store is back. One that made way for another says no more than those that were under
/// way before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe(u64);

#[derive(Debug)]
struct Probing {
    probe: Probe,
    /// When it began, or brought something.
    heard: Instant,
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
            probes: 0,
        }
    }

    /// Whether a request would be sent now.
    ///
    /// # Errors
    /// While the store is let be.
    pub fn check(&self, now: Instant) -> Result<(), LetBe> {
        let Some(until) = self.open_until else { return Ok(()) };
        let again = until.saturating_duration_since(now);
        let silence = |it: &Probing| now.saturating_duration_since(it.heard);
        let is_probing = self.probing.as_ref().is_some_and(|it| silence(it) < PROBE_MAX);
        match again.is_zero() && !is_probing {
            true => Ok(()),
            false => Err(LetBe { failures: self.failures, again }),
        }
    }

    /// When the probe of a store that is let be began, or last brought something.
    pub fn heard(&self) -> Option<Instant> {
        self.probing.as_ref().map(|it| it.heard)
    }

    /// Lets a request be sent, and says so if it is the probe of a store that is let be. What becomes of it is
    /// to be told, also that nobody waits for it any more.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn admit(&mut self, now: Instant) -> Result<Option<Probe>, LetBe> {
        self.check(now)?;
        if self.open_until.is_none() {
            return Ok(None);
        }
        self.probes += 1;
        let probe = Probe(self.probes);
        self.probing = Some(Probing { probe, heard: now });
        Ok(Some(probe))
    }

    /// The probe brought something, which is no answer yet.
    pub fn came(&mut self, probe: Probe, now: Instant) {
        if let Some(probing) = self.probing.as_mut().filter(|it| it.probe == probe) {
            probing.heard = now;
        }
    }

    fn is_the(&self, probe: Option<Probe>) -> bool {
        probe.is_some() && self.probing.as_ref().map(|it| it.probe) == probe
    }

    /// The store answered. Whether it had been let be.
    pub fn answered(&mut self) -> bool {
        let was_open = self.open_until.take().is_some();
        (self.failures, self.probing) = (0, None);
        was_open
    }

    /// It did not, be it as `probe` or not; `chance` is from 0 to 1. Whether it is let be from now on, and was not
    /// before.
    pub fn failed(&mut self, probe: Option<Probe>, now: Instant, chance: f64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let was_open = self.open_until.is_some();
        // Those that were under way when it opened say nothing new.
        let opens = if was_open { self.is_the(probe) } else { self.failures >= self.failures_max };
        if opens {
            // So that nodes which lost the same store don't all come back at once.
            self.open_until = Some(now + self.pause.mul_f64(0.5 + chance));
            self.probing = None;
        }
        opens && !was_open
    }

    /// Nobody waits for the probe's answer any more; another request may be one.
    pub fn abandoned(&mut self, probe: Probe) {
        if self.is_the(Some(probe)) {
            self.probing = None;
        }
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
        assert!(!breaker.failed(None, now, 0.5) && !breaker.failed(None, now, 0.5));
        assert!(breaker.failed(None, now, 0.5));
        (breaker, now)
    }

    fn probe(breaker: &mut Breaker, now: Instant) -> Probe {
        breaker.admit(now).unwrap().expect("it is let be")
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_answer_between_them_does_not() {
        let (mut breaker, now) = breaker();
        for _ in 0..10 {
            assert!(
                !breaker.failed(None, now, 0.5)
                    && !breaker.failed(None, now, 0.5)
                    && !breaker.answered()
            );
        }
        assert_eq!(breaker.admit(now), Ok(None));
        let (mut breaker, now) = open();
        let let_be = LetBe { failures: 3, again: Duration::from_secs(1) };
        assert_eq!(breaker.admit(now), Err(let_be));
    }

    #[test]
    fn after_its_pause_one_probe_decides() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(1);
        probe(&mut breaker, later);
        assert_eq!(breaker.admit(later), Err(LetBe { failures: 3, again: Duration::ZERO }));
        // One that was under way before.
        assert!(breaker.answered());
        assert_eq!(breaker.admit(later), Ok(None));
    }

    #[test]
    fn each_failed_probe_is_followed_by_a_pause() {
        let (mut breaker, mut now) = open();
        for _ in 0..8 {
            let Err(LetBe { again, .. }) = breaker.admit(now) else { panic!("it is open") };
            assert_eq!(again, Duration::from_secs(1));
            now += again;
            let probe = probe(&mut breaker, now);
            // An old failure that comes in late does not end the probe.
            assert!(!breaker.failed(None, now, 0.5));
            assert_eq!(breaker.check(now).unwrap_err().again, Duration::ZERO);
            assert!(!breaker.failed(Some(probe), now, 0.5));
        }
    }

    #[test]
    fn an_abandoned_probe_makes_way_for_another() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(2);
        let first = probe(&mut breaker, later);
        breaker.abandoned(first);
        assert_ne!(probe(&mut breaker, later), first);
    }

    #[test]
    fn a_probe_that_brings_nothing_for_long_makes_way_for_another_and_has_no_more_say() {
        let (mut breaker, now) = open();
        let began = now + Duration::from_secs(2);
        let first = probe(&mut breaker, began);
        let heard = began + Duration::from_secs(1);
        breaker.came(first, heard);
        assert!(breaker.admit(heard + PROBE_MAX - Duration::from_millis(1)).is_err());
        let later = heard + PROBE_MAX;
        let second = probe(&mut breaker, later);
        breaker.came(first, later + Duration::from_secs(1));
        assert_eq!(breaker.heard(), Some(later));
        assert!(!breaker.failed(Some(first), later, 0.5));
        breaker.abandoned(first);
        let under_way = LetBe { failures: 4, again: Duration::ZERO };
        assert_eq!(breaker.admit(later), Err(under_way), "the second is still waited for");
        assert!(!breaker.failed(Some(second), later, 0.5));
        assert_eq!(breaker.check(later).unwrap_err().again, Duration::from_secs(1));
    }
}
