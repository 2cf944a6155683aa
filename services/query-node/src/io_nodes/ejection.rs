//! Ejects an I/O node that is connected but keeps failing: it gets no requests for a while, and the table answers
//! instead.
//!
//! A node that cannot be connected to needs no ejection: its client refuses requests at once. All cores share an
//! ejection's state without a lock. While the node is healthy the state is only read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;
use tracing::{info, warn};

/// Value of `until_ms` while a node is not ejected.
const NONE: u64 = 0;

/// Configures when a node is ejected, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct EjectionPolicy {
    /// Consecutive failures after which a node is ejected; 0 never ejects.
    pub failures: u32,
    /// Duration of the first ejection. It doubles with each further ejection without a success in between. Jitter
    /// shortens each ejection by up to half.
    pub time: Duration,
    /// Maximum duration of an ejection.
    pub time_max: Duration,
}

/// The ejection state of one I/O node.
#[derive(Debug)]
pub struct Ejection {
    name: String,
    policy: EjectionPolicy,
    began: Instant,
    seed: u64,
    /// Consecutive failures.
    failures: AtomicU32,
    /// The end of the ejection, in milliseconds since `began`, or [`NONE`].
    until_ms: AtomicU64,
    /// Ejections since the last success.
    times: AtomicU32,
}

impl Ejection {
    /// Creates the state of a healthy node. `seed` determines the jitter of the pauses.
    pub fn new(name: &str, policy: EjectionPolicy, seed: u64, now: Instant) -> Self {
        let name = name.to_owned();
        let (failures, until_ms, times) = Default::default();
        Self { name, policy, began: now, seed, failures, until_ms, times }
    }

    /// Returns whether a request may be sent to the node at `now`. When an ejection is over, one request is allowed to try
    /// the node, and its outcome ends the ejection or begins the next one: a caller that gets `true` must send it.
    pub fn allow_request(&self, now: Instant) -> bool {
        let until = self.until_ms.load(Ordering::Relaxed);
        if until == NONE {
            return true;
        }
        if self.ms(now) < until {
            return false;
        }
        // If this request brings no outcome (its caller may cancel it), another one may try after `policy.time`.
        let next = self.ms(now + self.policy.time);
        let won = self.until_ms.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            // One more failure then reaches the policy's limit and ejects the node again.
            self.failures.store(self.policy.failures - 1, Ordering::Relaxed);
        }
        won.is_ok()
    }

    /// Returns whether the node is ejected at `now`.
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ms(now) < self.until_ms.load(Ordering::Relaxed)
    }

    /// Records an answer, which ends an ejection.
    pub fn succeeded(&self) {
        let is_well = self.until_ms.load(Ordering::Relaxed) == NONE;
        if is_well && self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        if self.until_ms.swap(NONE, Ordering::Relaxed) != NONE {
            info!(member = self.name, "the I/O node answers again and is no longer ejected");
        }
    }

    /// Records a failure of the node itself. Returns whether the node is ejected for it.
    pub fn failed(&self, now: Instant, why: &str) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        // Further failures of requests that were sent before the ejection do not make it longer.
        if failures != self.policy.failures {
            return false;
        }
        let times = self.times.fetch_add(1, Ordering::Relaxed);
        let pause = self.pause(times);
        self.until_ms.store(self.ms(now + pause), Ordering::Relaxed);
        let member = &self.name;
        warn!(member, failures, ?pause, "the I/O node keeps failing and is ejected: {why}");
        true
    }

    /// Returns the duration of an ejection after `times` earlier ones without a success in between: from half of the
    /// due time to all of it, so that query nodes do not all try the node at the same moment.
    fn pause(&self, times: u32) -> Duration {
        let EjectionPolicy { time, time_max, .. } = self.policy;
        let due = time.saturating_mul(1 << times.min(16)).min(time_max);
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(u64::from(times)));
        due.mul_f64(random.random_range(0.5..=1.0))
    }

    /// Returns the milliseconds since `began`, plus 1 so that the result is never [`NONE`].
    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_millis() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: EjectionPolicy = EjectionPolicy {
        failures: 3,
        time: Duration::from_secs(10),
        time_max: Duration::from_secs(30),
    };

    fn node() -> (Ejection, Instant) {
        let now = Instant::now();
        (Ejection::new("io-0", POLICY, 7, now), now)
    }

    fn fail(node: &Ejection, now: Instant, times: usize) -> Vec<bool> {
        (0..times).map(|_| node.failed(now, "x")).collect()
    }

    #[test]
    fn consecutive_failures_eject_a_node() {
        let (node, now) = node();
        fail(&node, now, 2);
        node.succeeded();
        assert_eq!(fail(&node, now, 2), [false, false]);
        assert!(node.allow_request(now));
        assert_eq!(fail(&node, now, 3), [true, false, false], "later failures do not count");
        assert!(!node.allow_request(now) && node.is_ejected(now));
        assert!(!node.allow_request(now + POLICY.time / 2 - Duration::from_millis(2)));
    }

    #[test]
    fn after_an_ejection_one_request_decides() {
        let (node, now) = node();
        fail(&node, now, 3);
        let later = now + POLICY.time;
        assert_eq!([node.allow_request(later), node.allow_request(later)], [true, false]);
        // The second ejection is longer: from 10 to 20 s.
        assert!(node.failed(later, "x"));
        assert!(!node.allow_request(later + POLICY.time - Duration::from_millis(2)));
        let later = later + 2 * POLICY.time;
        assert!(node.allow_request(later));
        node.succeeded();
        assert!(node.allow_request(later) && node.allow_request(later) && !node.is_ejected(later));
        assert_eq!(fail(&node, later, 3), [false, false, true]);
    }

    #[test]
    fn one_failure_may_eject_and_one_answer_ends_the_ejection() {
        let now = Instant::now();
        let node = Ejection::new("io-0", EjectionPolicy { failures: 1, ..POLICY }, 7, now);
        assert_eq!(fail(&node, now, 1), [true]);
        let later = now + POLICY.time;
        assert!(node.allow_request(later));
        node.succeeded();
        assert!(node.allow_request(later) && node.allow_request(later) && !node.is_ejected(later));
    }

    #[test]
    fn a_try_without_an_outcome_is_repeated() {
        let (node, now) = node();
        fail(&node, now, 3);
        let later = now + POLICY.time;
        assert!(node.allow_request(later));
        assert!(!node.allow_request(later + POLICY.time / 2));
        assert!(node.allow_request(later + POLICY.time));
    }

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let (node, _) = node();
        for (times, due) in [(0, 10), (1, 20), (2, 30), (3, 30), (40, 30)] {
            let (due, pause) = (Duration::from_secs(due), node.pause(times));
            assert!(due / 2 <= pause && pause <= due, "{pause:?} of {due:?}");
        }
    }

    #[test]
    fn a_policy_of_0_failures_never_ejects() {
        let now = Instant::now();
        let node = Ejection::new("io-0", EjectionPolicy { failures: 0, ..POLICY }, 7, now);
        assert!(fail(&node, now, 100).iter().all(|ejected| !ejected));
        assert!(node.allow_request(now));
    }
}
