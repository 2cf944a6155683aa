//! An I/O node that is connected and yet fails is asked for nothing for a while; the table answers.
//!
//! One that can't be connected to needs none of this: its client says so at once. NodeState by a node's
//! cores, without a lock: while a node is well it is only read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;
use tracing::{info, warn};

/// A time that has come to its end, or none.
const NONE: u64 = 0;

/// When a node is ejected, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct EjectionPolicy {
    /// Failures one after another; 0 never ejects.
    pub failures: u32,
    /// The first ejection; each further one without a success between them takes twice as long.
    pub time: Duration,
    /// The longest.
    pub time_max: Duration,
}

/// How one I/O node does.
#[derive(Debug)]
pub struct Ejection {
    name: String,
    policy: EjectionPolicy,
    began: Instant,
    seed: u64,
    /// One after another.
    failures: AtomicU32,
    /// Until when it is let be, in milliseconds since `began`; [`NONE`] if it is well.
    until_ms: AtomicU64,
    /// Ejections without a success between them.
    times: AtomicU32,
}

impl Ejection {
    /// A node that is well at `now`. Pauses take their jitter from `seed`.
    pub fn new(name: &str, policy: EjectionPolicy, seed: u64, now: Instant) -> Self {
        let name = name.to_owned();
        let (failures, until_ms, times) = Default::default();
        Self { name, policy, began: now, seed, failures, until_ms, times }
    }

    /// Whether it may be asked at `now`. Once its time is over it is asked once, and by that one answer
    /// it is taken back or let be again.
    pub fn may_ask(&self, now: Instant) -> bool {
        let until = self.until_ms.load(Ordering::Relaxed);
        if until == NONE {
            return true;
        }
        if self.ms(now) < until {
            return false;
        }
        // Whoever asks now without an answer leaves the next try to others, later.
        let next = self.ms(now + self.policy.time);
        let won = self.until_ms.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            self.failures.store(self.policy.failures - 1, Ordering::Relaxed);
        }
        won.is_ok()
    }

    /// Whether it is let be at `now`.
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ms(now) < self.until_ms.load(Ordering::Relaxed)
    }

    /// It answered.
    pub fn succeeded(&self) {
        let is_well = self.until_ms.load(Ordering::Relaxed) == NONE;
        if is_well && self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        if self.until_ms.swap(NONE, Ordering::Relaxed) != NONE {
            info!(member = self.name, "the I/O node answers, and is asked again");
        }
    }

    /// It failed at `now`, for a reason of its own. Whether it is ejected by that.
    pub fn failed(&self, now: Instant, why: &str) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures != self.policy.failures {
            return false;
        }
        let times = self.times.fetch_add(1, Ordering::Relaxed);
        let pause = self.pause(times);
        self.until_ms.store(self.ms(now + pause), Ordering::Relaxed);
        let member = &self.name;
        warn!(member, failures, ?pause, "the I/O node fails and is asked for nothing: {why}");
        true
    }

    /// From half of what is due up to all of it, so that query nodes don't all try at once.
    fn pause(&self, times: u32) -> Duration {
        let EjectionPolicy { time, time_max, .. } = self.policy;
        let due = time.saturating_mul(1 << times.min(16)).min(time_max);
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(u64::from(times)));
        due.mul_f64(random.random_range(0.5..=1.0))
    }

    /// Never [`NONE`].
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
    fn a_node_is_ejected_by_failures_one_after_another() {
        let (node, now) = node();
        fail(&node, now, 2);
        node.succeeded();
        assert_eq!(fail(&node, now, 2), [false, false]);
        assert!(node.may_ask(now));
        assert_eq!(fail(&node, now, 3), [true, false, false], "what was on its way counts no more");
        assert!(!node.may_ask(now) && node.is_ejected(now));
        assert!(!node.may_ask(now + POLICY.time / 2 - Duration::from_millis(2)));
    }

    #[test]
    fn one_request_tries_it_and_its_answer_decides() {
        let (node, now) = node();
        fail(&node, now, 3);
        let later = now + POLICY.time;
        assert_eq!([node.may_ask(later), node.may_ask(later)], [true, false]);
        // The second time is longer: from 10 to 20 s.
        assert!(node.failed(later, "x"));
        assert!(!node.may_ask(later + POLICY.time - Duration::from_millis(2)));
        let later = later + 2 * POLICY.time;
        assert!(node.may_ask(later));
        node.succeeded();
        assert!(node.may_ask(later) && node.may_ask(later) && !node.is_ejected(later));
        assert_eq!(fail(&node, later, 3), [false, false, true]);
    }

    #[test]
    fn one_failure_may_be_enough_and_one_answer_takes_it_back() {
        let now = Instant::now();
        let node = Ejection::new("io-0", EjectionPolicy { failures: 1, ..POLICY }, 7, now);
        assert_eq!(fail(&node, now, 1), [true]);
        let later = now + POLICY.time;
        assert!(node.may_ask(later));
        node.succeeded();
        assert!(node.may_ask(later) && node.may_ask(later) && !node.is_ejected(later));
    }

    #[test]
    fn a_try_without_an_answer_is_followed_by_another() {
        let (node, now) = node();
        fail(&node, now, 3);
        let later = now + POLICY.time;
        assert!(node.may_ask(later));
        assert!(!node.may_ask(later + POLICY.time / 2));
        assert!(node.may_ask(later + POLICY.time));
    }

    #[test]
    fn pauses_double_up_to_the_most() {
        let (node, _) = node();
        for (times, due) in [(0, 10), (1, 20), (2, 30), (3, 30), (40, 30)] {
            let (due, pause) = (Duration::from_secs(due), node.pause(times));
            assert!(due / 2 <= pause && pause <= due, "{pause:?} of {due:?}");
        }
    }

    #[test]
    fn no_failures_never_eject() {
        let now = Instant::now();
        let node = Ejection::new("io-0", EjectionPolicy { failures: 0, ..POLICY }, 7, now);
        assert!(fail(&node, now, 100).iter().all(|ejected| !ejected));
        assert!(node.may_ask(now));
    }
}
