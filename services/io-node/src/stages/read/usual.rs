//! How long a drive's reads usually take, and whether all of a second's took many times that.
//!
//! A drive that answers late is one thing (`late.rs`), one that answers in ten milliseconds what took it a tenth of one
//! is another: no read is late, and all of them are slow. It is judged by the fastest read of a second, so that neither a
//! core that had no CPU nor a queue that was long for a while is held against the drive.

use std::time::Duration;

use address::DriveNo;
use telemetry::Buckets;
use tokio::time::Instant;

use crate::core::here;

/// How often a drive is judged.
const JUDGED_EVERY: Duration = Duration::from_secs(1);

/// Reads of a second that are enough to judge by.
const READS_MIN: u64 = 16;

/// How many times what is usual the fastest read has to take.
const TIMES: f64 = 30.0;

/// What is never slow, in seconds: less than what a read of object storage takes.
const SLOW_MIN_S: f64 = 0.005;

/// Tells the filler of drives that are slow, for as long as the core lives.
pub async fn judge() {
    let mut drives: Vec<_> = here().histograms.reads.iter().map(|_| Usual::default()).collect();
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(JUDGED_EVERY).await;
        let (core, since) = (here(), last.elapsed());
        last += since;
        for ((drive, usual), times) in (0..).zip(&mut drives).zip(&core.histograms.reads) {
            if usual.was_slow(times.buckets(), since) {
                core.shared.fills.slow(DriveNo(drive));
            }
        }
    }
}

/// What one drive does, as one core sees it.
#[derive(Default)]
struct Usual {
    before: Buckets,
    /// The fastest read of all seconds that were not slow, in seconds.
    fastest: Option<f64>,
    /// Most reads a second.
    most: f64,
}

impl Usual {
    /// Whether all reads since the last time were slow; `now` are the times of all reads since the start, in seconds.
    fn was_slow(&mut self, now: Buckets, since: Duration) -> bool {
        let reads = now.since(&self.before);
        self.before = now;
        if reads.count() < READS_MIN {
            return false;
        }
        let (first, _) = reads.filled();
        let fastest = if reads.zeros > 0 { 0.0 } else { Buckets::bound(first) };
        let rate = reads.count() as f64 / since.as_secs_f64();
        if let Some(usual) = self.fastest {
            // By Little's law; those before it may have to be read first, one after the other if it knows no better.
            let in_flight = reads.sum / since.as_secs_f64();
            let usual_now = usual.max(in_flight / self.most.max(1.0 / usual));
            if fastest > SLOW_MIN_S.max(TIMES * usual_now) {
                return true;
            }
        }
        self.fastest = Some(self.fastest.map_or(fastest, |usual| usual.min(fastest)));
        self.most = self.most.max(rate);
        false
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{Histogram, Scale};

    use super::*;

    /// A drive that is read for one second after the other.
    struct Drive(Histogram, Usual);

    impl Drive {
        fn new() -> Self {
            Self(Histogram::new(Scale::Seconds), Usual::default())
        }

        /// So many reads, of so many µs each, and so many times that for one of them.
        fn second(&mut self, reads: u64, us: u64) -> bool {
            (0..reads).for_each(|_| self.0.record_time(Duration::from_micros(us)));
            self.1.was_slow(self.0.buckets(), JUDGED_EVERY)
        }
    }

    #[test]
    fn a_hundred_times_slower_is_slow_with_few_reads_and_with_many() {
        // One at a time; 8 of 80 µs at a time, which is the drive's limit, and 256 in its queue.
        for (reads, us) in [(100, 80), (100_000, 80), (100_000, 2_560)] {
            let mut drive = Drive::new();
            assert!(!drive.second(1000, 80) && !drive.second(reads, us));
            // As many at a time, each a hundred times as long; an open loop keeps its rate while it can.
            let in_flight = reads as f64 * us as f64 / 1e6;
            let slow_reads = (in_flight / (us as f64 * 100.0 / 1e6)).max(100.0) as u64;
            assert!(drive.second(slow_reads, us * 100), "{reads} of {us} µs");
            // It is still slow when it has been for long.
            assert!(drive.second(slow_reads, us * 100));
            assert!(!drive.second(reads, us));
        }
    }

    #[test]
    fn long_queues_busy_cores_and_what_is_too_little_to_say_are_not() {
        let mut drive = Drive::new();
        assert!(!drive.second(1000, 80));
        assert!(!drive.second(100_000, 80));
        // Ten times as many at a time as before, at the same rate.
        assert!(!drive.second(100_000, 10_000));
        // One that was quick, of a core that had no CPU else.
        (0..99).for_each(|_| drive.0.record_time(Duration::from_millis(60)));
        assert!(!drive.second(1, 90));
        assert!(!drive.second(15, 60_000));
        // No slower than 5 ms.
        assert!(!drive.second(50, 4_500));
        // What was slow from the start is what is usual.
        let mut other = Drive::new();
        assert!(!other.second(100, 8_000) && !other.second(100, 8_000));
    }
}
