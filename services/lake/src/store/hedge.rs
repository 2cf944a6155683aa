//! Decides when a read is hedged, that is, sent a second time. It is pure.

use std::time::Duration;

/// The number of latencies from which the 99th percentile is computed. Ten of them are at the percentile or above it.
const REMEMBERED: usize = 1000;

/// The number of answers after which the percentile is computed again. No read is hedged before the first computation.
const UPDATE_EVERY: usize = 100;

/// The shortest delay of a hedge: below it a second request costs more than it gains.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// The number of reads that earn one hedge, so that a store that is slow as a whole does not get twice the work.
const READS_A_HEDGE: u32 = 20;

/// The maximum number of hedges that can be saved up. A store that becomes slow as a whole gets this many at once, and
/// then one for every 20 reads.
const SAVED_MAX: u32 = 10;

/// The latencies of a store's reads, and the budget of hedges.
#[derive(Debug, Default)]
pub struct Hedge {
    /// The latencies to the first byte of the last answers, in microseconds. The oldest one is overwritten.
    took: Vec<u32>,
    next: usize,
    since_update: usize,
    wait: Option<Duration>,
    /// The budget of hedges, in reads: a hedge costs [`READS_A_HEDGE`].
    saved: u32,
}

impl Hedge {
    /// Counts a read that begins. Returns the time without an answer after which it may be hedged, if at all.
    pub fn wait(&mut self) -> Option<Duration> {
        self.saved = (self.saved + 1).min(SAVED_MAX * READS_A_HEDGE);
        self.wait
    }

    /// Takes one hedge from the budget. Returns whether there was one.
    pub fn spend(&mut self) -> bool {
        match self.saved.checked_sub(READS_A_HEDGE) {
            Some(left) => {
                self.saved = left;
                true
            }
            None => false,
        }
    }

    /// Records the latency of a read, from its first request.
    pub fn answered(&mut self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.took.len() < REMEMBERED {
            self.took.push(took);
        } else {
            self.took[self.next] = took;
            self.next = (self.next + 1) % REMEMBERED;
        }
        self.since_update += 1;
        if self.since_update == UPDATE_EVERY {
            self.since_update = 0;
            let mut took = self.took.clone();
            let at = took.len() * 99 / 100;
            let (_, p99, _) = took.select_nth_unstable(at);
            self.wait = Some(Duration::from_micros((*p99).into()).max(WAIT_MIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_wait_is_the_99th_percentile_of_the_last_thousand() {
        let mut hedge = Hedge::default();
        (1..100).for_each(|n| hedge.answered(ms(n)));
        assert_eq!(hedge.wait(), None);
        hedge.answered(ms(100));
        assert_eq!(hedge.wait(), Some(ms(100)));
        (0..1000).for_each(|n| hedge.answered(if n % 50 == 0 { ms(900) } else { ms(20) }));
        assert_eq!(hedge.wait(), Some(ms(900)));
        (0..1000).for_each(|n| hedge.answered(if n % 200 == 0 { ms(900) } else { ms(20) }));
        assert_eq!(hedge.wait(), Some(ms(20)));
        (0..1000).for_each(|_| hedge.answered(Duration::from_micros(50)));
        assert_eq!(hedge.wait(), Some(WAIT_MIN));
    }

    #[test]
    fn one_read_in_twenty_may_be_hedged() {
        let mut hedge = Hedge::default();
        assert!(!hedge.spend());
        let spent = (0..1000).filter(|_| hedge.wait().is_some() || hedge.spend()).count();
        assert_eq!(spent, 50);
        (0..10_000).for_each(|_| assert_eq!(hedge.wait(), None));
        assert_eq!((0..1000).filter(|_| hedge.spend()).count(), SAVED_MAX as usize);
    }
}
