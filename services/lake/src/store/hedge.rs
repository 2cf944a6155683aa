//! When to ask once more: pure.

use std::time::Duration;

/// Answers by which the tail is judged.
const REMEMBERED: usize = 1000;

/// So many must have come before anything is hedged, and between two looks at them.
const LOOK_EVERY: usize = 100;

/// Below this a second request costs more than it wins.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// Reads to one that may be asked twice: a store that is slow as a whole is not asked for twice the work.
const READS_A_HEDGE: u32 = 20;

/// Hedges that can be saved up.
const SAVED_MAX: u32 = 10;

/// How long reads of a store take, and how many may be asked twice.
#[derive(Debug, Default)]
pub struct Hedge {
    /// Microseconds to the first byte of the last answers; the oldest is overwritten.
    took: Vec<u32>,
    next: usize,
    since_look: usize,
    wait: Option<Duration>,
    /// In reads.
    saved: u32,
}

impl Hedge {
    /// A read begins: after how long without an answer to ask again, if at all.
    pub fn wait(&mut self) -> Option<Duration> {
        self.saved = (self.saved + 1).min(SAVED_MAX * READS_A_HEDGE);
        self.wait
    }

    /// Whether one may be asked for again now, which then counts.
    pub fn spend(&mut self) -> bool {
        match self.saved.checked_sub(READS_A_HEDGE) {
            Some(left) => {
                self.saved = left;
                true
            }
            None => false,
        }
    }

    /// A read was answered, `took` after it was first asked for.
    pub fn answered(&mut self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.took.len() < REMEMBERED {
            self.took.push(took);
        } else {
            self.took[self.next] = took;
            self.next = (self.next + 1) % REMEMBERED;
        }
        self.since_look += 1;
        if self.since_look == LOOK_EVERY {
            self.since_look = 0;
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
    fn one_read_in_twenty_may_be_asked_twice() {
        let mut hedge = Hedge::default();
        assert!(!hedge.spend());
        let spent = (0..1000).filter(|_| hedge.wait().is_some() || hedge.spend()).count();
        assert_eq!(spent, 50);
        (0..10_000).for_each(|_| assert_eq!(hedge.wait(), None));
        assert_eq!((0..1000).filter(|_| hedge.spend()).count(), SAVED_MAX as usize);
    }
}
