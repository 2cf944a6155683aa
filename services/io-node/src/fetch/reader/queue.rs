//! The queue of pieces that wait on a core, and an estimate of how long a new piece would wait. Pure.

use std::time::Duration;

use scheduler::{BATCH_TURN, Cost, FairQueue, Flow, Priority};
use tokio::time::Instant;

/// The minimum time over which the speed is measured: long enough for a drive to process its queue a few times.
const MEASURED_MIN: Duration = Duration::from_millis(20);

/// The minimum number of pieces over which the speed is measured.
const LEFT_MIN: usize = 64;

/// The factor by which the remembered speed decays with each lower measurement. After seven of them, which take at
/// least 0.14 s, half of it is left.
const REMEMBERED: f64 = 0.9;

/// The age at which a measured speed is forgotten, because the cause of a low speed may be over.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

/// The waiting pieces of a core, and the speed at which they leave the queue.
pub struct Queue<P> {
    pieces: FairQueue<P>,
    speed: Speed,
}

/// The speed at which pieces leave the queue while more pieces wait.
#[derive(Default)]
struct Speed {
    /// The time at which the current measurement began; `None` while no pieces wait.
    since: Option<Instant>,
    /// The number of pieces that have left the queue since the measurement began.
    left: usize,
    /// Whether this is the first measurement since the queue was empty. It is discarded, because after a burst has
    /// arrived, the core is busy with work other than reading.
    is_first: bool,
    /// The time of the last measurement.
    looked: Option<Instant>,
    /// The speed in pieces per second; `None` while it is unknown.
    a_second: Option<f64>,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self { pieces: FairQueue::default(), speed: Speed::default() }
    }
}

impl<P: Cost> Queue<P> {
    /// Adds a piece.
    #[inline]
    pub fn push(&mut self, piece: P, flow: Flow, priority: Priority) {
        self.pieces.push(piece, flow, priority);
    }

    /// Removes and returns the next piece for which `is_wanted` is true. The unwanted pieces before it are removed too,
    /// and their flows are not charged for them.
    #[inline]
    pub fn pop_wanted(&mut self, is_wanted: impl FnMut(&P) -> bool) -> Option<P> {
        self.pieces.pop_wanted(is_wanted)
    }

    /// Returns all waiting pieces, in no particular order.
    pub fn into_pieces(self) -> impl Iterator<Item = P> {
        self.pieces.into_work()
    }

    /// Returns the number of waiting pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the number of waiting pieces of a flow.
    pub fn len_of(&self, flow: Flow) -> usize {
        self.pieces.cost_of(flow) as usize
    }

    /// Returns whether no piece waits.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Records that `left` pieces were submitted to the drives at `now`.
    pub fn submitted(&mut self, left: usize, now: Instant) {
        let more = !self.is_empty();
        self.speed.submitted(left, more, now);
    }

    /// Estimates how long a new piece of a flow would wait, from the measured speed. Zero while no speed is known.
    pub fn wait(&self, flow: Flow, priority: Priority) -> Duration {
        let Some(a_second) = self.speed.a_second else { return Duration::ZERO };
        let (turns, turns_of_class, others) = match priority {
            Priority::Interactive => (BATCH_TURN, BATCH_TURN - 1, Priority::Batch),
            Priority::Batch => (BATCH_TURN, 1, Priority::Interactive),
        };
        let of_class = self.pieces.cost_before(flow, priority) as f64;
        let with_others = of_class * turns as f64 / turns_of_class as f64;
        let before = with_others.min(of_class + self.pieces.len_of(others) as f64);
        Duration::try_from_secs_f64(before / a_second).unwrap_or(Duration::MAX)
    }
}

impl Speed {
    /// Measures the speed only while more pieces wait, because an idle drive does not show its speed.
    fn submitted(&mut self, left: usize, more: bool, now: Instant) {
        let Some(since) = self.since else {
            (self.since, self.left, self.is_first) = (more.then_some(now), 0, true);
            if self.looked.is_none_or(|looked| now - looked > FORGOTTEN_AFTER) {
                self.a_second = None;
            }
            return;
        };
        self.left += left;
        let took = now - since;
        if took >= MEASURED_MIN && self.left >= LEFT_MIN {
            let measured = self.left as f64 / took.as_secs_f64();
            if !std::mem::take(&mut self.is_first) {
                self.looked = Some(now);
                // The core may have been slow for other reasons, so the best recent measurement counts, and decays.
                let before = self.a_second.unwrap_or(0.0) * REMEMBERED;
                self.a_second = Some(measured.max(before).max(1.0));
            }
            (self.since, self.left) = (Some(now), 0);
        }
        if !more {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row;

    impl Cost for Row {
        fn cost(&self) -> u32 {
            1
        }
    }

    /// The flow that most tests use.
    fn one() -> Flow {
        Flow::default()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_wait_is_the_number_of_pieces_ahead_divided_by_the_speed() {
        let mut queue = Queue::default();
        let start = Instant::now();
        (0..10_000).for_each(|_| queue.push(Row, one(), Priority::Interactive));
        assert_eq!(queue.wait(one(), Priority::Interactive), Duration::ZERO);
        // 100 every 5 ms: 20,000 per second.
        for tick in 0..=20 {
            (0..100).for_each(|_| assert!(queue.pop_wanted(|_| true).is_some()));
            queue.submitted(100, start + ms(5 * tick));
        }
        assert_eq!(queue.len(), 7900);
        assert_eq!(queue.wait(one(), Priority::Interactive), ms(395));
        assert_eq!(queue.wait(one(), Priority::Batch), Duration::ZERO);
        (0..500).for_each(|_| queue.push(Row, one(), Priority::Batch));
        assert_eq!(queue.wait(one(), Priority::Batch), ms(200));
        assert_eq!(queue.wait(one(), Priority::Interactive), ms(420));
        // A second flow waits for its own pieces, and for the first flow's fair share meanwhile, not for the first
        // flow's whole queue.
        let other = Flow::new(7, 3);
        assert!(queue.wait(other, Priority::Interactive) < ms(1));
        (0..300).for_each(|_| queue.push(Row, other, Priority::Interactive));
        assert_eq!((queue.len_of(one()), queue.len_of(other)), (8400, 300));
        // 300 pieces of its own, 100 of the first flow, and 400 / 7 of batch work.
        let wait = queue.wait(other, Priority::Interactive);
        assert!(wait >= ms(22) && wait <= ms(23), "{wait:?}");
    }

    #[test]
    fn an_idle_drive_does_not_count_as_slow() {
        let mut queue = Queue::default();
        let start = Instant::now();
        // One every 100 ms, each read at once.
        for tick in 0..100 {
            queue.push(Row, one(), Priority::Interactive);
            queue.pop_wanted(|_| true);
            queue.submitted(1, start + ms(100 * tick));
        }
        (0..1000).for_each(|_| queue.push(Row, one(), Priority::Interactive));
        assert_eq!(queue.wait(one(), Priority::Interactive), Duration::ZERO);
    }
}
