//! A store's circuit breaker. It is pure: its caller passes in the time and the jitter.
//!
//! ```text
//! closed ── failures in a row ──► open, for a pause ──► half-open: one probe ── answered ──► closed
//!                                   ▲                                  └── failed ──┐
//!                                   └───────────────────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

use stores::StoreLimits;

use super::mark::Mark;

/// A probe that makes no progress for this long is replaced by another, because the store may have recovered meanwhile:
/// a probe also stands still while its caller reads the answer slowly, or while its client waits before a retry.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// A circuit breaker: once a store has failed too often, it is sent only a probe from time to time.
#[derive(Debug)]
pub struct Breaker {
    failures_max: u32,
    /// The time for which the breaker is open, before jitter. The time does not grow with further failures: one request
    /// per pause is no load for a store, and rows that are on no drive keep failing for up to a pause after the store
    /// has recovered.
    pause: Duration,
    failures: u32,
    open_until: Option<Instant>,
    probing: Option<Probing>,
    /// Probes so far; each is identified by its number.
    probes: u64,
}

/// A request that finds out whether a store has recovered. Once another probe has replaced it, its failure starts no
/// new pause; neither does the failure of a request that was sent before the breaker opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe(u64);

#[derive(Debug)]
struct Probing {
    probe: Probe,
    /// The time at which the probe began or last made progress.
    active_at: Instant,
}

/// A request was not sent, because the store's circuit breaker is open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}the store's circuit breaker is open after {failures} failures in a row; the store is tried again in {}",
    Mark::Unanswered,
    wait(*.probe_in)
)]
pub struct BreakerOpen {
    /// Failures in a row.
    pub failures: u32,
    /// The time until the next probe; zero while one is in progress.
    pub probe_in: Duration,
}

fn wait(probe_in: Duration) -> String {
    match probe_in {
        Duration::ZERO => "a moment".into(),
        _ => format!("{} ms", probe_in.as_millis().max(1)),
    }
}

impl Breaker {
    /// A closed breaker.
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

    /// Checks whether a request would be sent now.
    ///
    /// # Errors
    /// [`BreakerOpen`] if the breaker is open, or half-open with a probe in progress.
    pub fn check(&self, now: Instant) -> Result<(), BreakerOpen> {
        let Some(until) = self.open_until else { return Ok(()) };
        let probe_in = until.saturating_duration_since(now);
        let silence = |it: &Probing| now.saturating_duration_since(it.active_at);
        let is_probing = self.probing.as_ref().is_some_and(|it| silence(it) < PROBE_MAX);
        match probe_in.is_zero() && !is_probing {
            true => Ok(()),
            false => Err(BreakerOpen { failures: self.failures, probe_in }),
        }
    }

    /// Returns when the probe in progress began or last made progress; `None` if there is none.
    pub fn probe_active_at(&self) -> Option<Instant> {
        self.probing.as_ref().map(|it| it.active_at)
    }

    /// Admits a request, as the probe if the breaker is half-open. The caller must report the request's outcome, or
    /// that it was abandoned.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn admit(&mut self, now: Instant) -> Result<Option<Probe>, BreakerOpen> {
        self.check(now)?;
        if self.open_until.is_none() {
            return Ok(None);
        }
        self.probes += 1;
        let probe = Probe(self.probes);
        self.probing = Some(Probing { probe, active_at: now });
        Ok(Some(probe))
    }

    /// Notes that the probe made progress. The breaker stays half-open, because progress is not yet an answer.
    pub fn progressed(&mut self, probe: Probe, now: Instant) {
        if let Some(probing) = self.probing.as_mut().filter(|it| it.probe == probe) {
            probing.active_at = now;
        }
    }

    /// Returns whether `probe` is the probe in progress.
    fn is_live(&self, probe: Option<Probe>) -> bool {
        probe.is_some() && self.probing.as_ref().map(|it| it.probe) == probe
    }

    /// Closes the breaker, since the store answered. Returns whether it was open.
    pub fn answered(&mut self) -> bool {
        let was_open = self.open_until.take().is_some();
        (self.failures, self.probing) = (0, None);
        was_open
    }

    /// Counts a failure, of `probe` or of another request; `jitter` is from 0 to 1. Returns whether the failure opened
    /// a closed breaker.
    pub fn failed(&mut self, probe: Option<Probe>, now: Instant, jitter: f64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let was_open = self.open_until.is_some();
        // Requests that were in flight when the breaker opened say nothing new.
        let opens = if was_open { self.is_live(probe) } else { self.failures >= self.failures_max };
        if opens {
            // The pause has jitter, so that nodes which lost the same store don't all send a probe at once.
            self.open_until = Some(now + self.pause.mul_f64(0.5 + jitter));
            self.probing = None;
        }
        opens && !was_open
    }

    /// Notes that nobody waits for the probe's answer any more, so that another request may be the probe.
    pub fn abandoned(&mut self, probe: Probe) {
        if self.is_live(Some(probe)) {
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
        breaker.admit(now).unwrap().expect("the breaker is half-open")
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
        let open = BreakerOpen { failures: 3, probe_in: Duration::from_secs(1) };
        assert_eq!(breaker.admit(now), Err(open));
    }

    #[test]
    fn after_its_pause_one_probe_decides() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(1);
        probe(&mut breaker, later);
        assert_eq!(
            breaker.admit(later),
            Err(BreakerOpen { failures: 3, probe_in: Duration::ZERO })
        );
        // The answer to any request closes the breaker, even if the request was sent before the breaker opened.
        assert!(breaker.answered());
        assert_eq!(breaker.admit(later), Ok(None));
    }

    #[test]
    fn each_failed_probe_is_followed_by_a_pause() {
        let (mut breaker, mut now) = open();
        for _ in 0..8 {
            let Err(BreakerOpen { probe_in, .. }) = breaker.admit(now) else {
                panic!("it is open")
            };
            assert_eq!(probe_in, Duration::from_secs(1));
            now += probe_in;
            let probe = probe(&mut breaker, now);
            // A late failure of an old request does not end the probe.
            assert!(!breaker.failed(None, now, 0.5));
            assert_eq!(breaker.check(now).unwrap_err().probe_in, Duration::ZERO);
            assert!(!breaker.failed(Some(probe), now, 0.5));
        }
    }

    #[test]
    fn an_abandoned_probe_is_replaced() {
        let (mut breaker, now) = open();
        let later = now + Duration::from_secs(2);
        let first = probe(&mut breaker, later);
        breaker.abandoned(first);
        assert_ne!(probe(&mut breaker, later), first);
    }

    #[test]
    fn a_probe_without_progress_is_replaced_and_no_longer_counts() {
        let (mut breaker, now) = open();
        let began = now + Duration::from_secs(2);
        let first = probe(&mut breaker, began);
        let heard = began + Duration::from_secs(1);
        breaker.progressed(first, heard);
        assert!(breaker.admit(heard + PROBE_MAX - Duration::from_millis(1)).is_err());
        let later = heard + PROBE_MAX;
        let second = probe(&mut breaker, later);
        breaker.progressed(first, later + Duration::from_secs(1));
        assert_eq!(breaker.probe_active_at(), Some(later));
        assert!(!breaker.failed(Some(first), later, 0.5));
        breaker.abandoned(first);
        let under_way = BreakerOpen { failures: 4, probe_in: Duration::ZERO };
        assert_eq!(breaker.admit(later), Err(under_way), "the second is still in progress");
        assert!(!breaker.failed(Some(second), later, 0.5));
        assert_eq!(breaker.check(later).unwrap_err().probe_in, Duration::from_secs(1));
    }
}
