//! How long a drive's reads usually take, and whether all of a second's took many times that.
//!
//! A drive that answers late is one thing (`timeouts.rs`), one that answers in ten milliseconds what took it a tenth of one
//! is another: no read is late, and all of them are slow. It is judged by the fastest read of a second, so that neither a
//! core that had no CPU nor a queue that was long for a while is held against the drive.

use std::time::Duration;

use address::DriveNo;
use telemetry::Buckets;
use tokio::time::Instant;

use crate::shard::here;

/// How often a drive is judged.
const JUDGED_EVERY: Duration = Duration::from_secs(1);

/// Reads of a second that are enough to judge by.
const READS_MIN: u64 = 16;

/// How many times what is usual the fastest read has to take.
const SLOW_FACTOR: f64 = 30.0;

/// What is never slow, in seconds: less than what a read of object storage takes.
const SLOW_MIN_S: f64 = 0.005;

/// Tells the filler of drives that are slow, for as long as the core lives.
pub async fn watch_slow_drives() {
    let mut drives: Vec<_> =
        here().histograms.reads.iter().map(|_| DriveBaseline::default()).collect();
    loop {
        tokio::time::sleep(JUDGED_EVERY).await;
        let (core, now) = (here(), Instant::now());
        let counts = core.reader.drives();
        let times = core.histograms.reads.iter().zip(&counts);
        for ((drive, baseline), (times, counts)) in (0..).zip(&mut drives).zip(times) {
            if baseline.was_slow(times.buckets(), counts.busy_until(now)) {
                core.shared.fills.slow(DriveNo(drive));
            }
        }
    }
}

/// What one drive does, as one core sees it.
#[derive(Default)]
struct DriveBaseline {
    before: Buckets,
    busy_before: Duration,
    /// The fastest read of all seconds that were not slow, in seconds.
    fastest: Option<f64>,
    /// Most reads a second of time in which it was busy.
    most: f64,
}

impl DriveBaseline {
    /// Whether all reads since the last time were slow; `now` are the times of all reads since the start, in seconds, and
    /// for `busy` of them something was asked of the drive.
    fn was_slow(&mut self, now: Buckets, busy: Duration) -> bool {
        let (reads, busy_for) = (now.since(&self.before), busy.saturating_sub(self.busy_before));
        (self.before, self.busy_before) = (now, busy);
        let busy_s = busy_for.as_secs_f64();
        if reads.count() < READS_MIN || busy_s == 0.0 {
            return false;
        }
        let (first, _) = reads.filled();
        let fastest = if reads.zeros > 0 { 0.0 } else { Buckets::bound(first) };
        if let Some(usual) = self.fastest {
            // By Little's law; as many may have to be read before one, as fast as was ever seen.
            let in_flight = reads.sum / busy_s;
            if fastest > SLOW_MIN_S.max(SLOW_FACTOR * usual.max(in_flight / self.most)) {
                return true;
            }
        }
        self.fastest = Some(self.fastest.map_or(fastest, |usual| usual.min(fastest)));
        self.most = self.most.max(reads.count() as f64 / busy_s);
        false
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{Histogram, Scale};

    use super::*;

    /// A drive, what is known of it, and how long it was busy.
    struct Drive(Histogram, DriveBaseline, Duration);

    impl Drive {
        fn new() -> Self {
            Self(Histogram::new(Scale::Seconds), DriveBaseline::default(), Duration::ZERO)
        }

        /// So many reads, of so many µs each, so many of them at a time.
        fn second(&mut self, reads: u64, us: u64, at_a_time: u64) -> bool {
            (0..reads).for_each(|_| self.0.record_time(Duration::from_micros(us)));
            self.2 += Duration::from_micros(reads.div_ceil(at_a_time) * us);
            self.1.was_slow(self.0.buckets(), self.2)
        }
    }

    #[test]
    fn a_hundred_times_slower_is_slow_one_by_one_in_bursts_and_in_long_queues() {
        // What it can do is 8 at a time, each in 80 µs; more have to wait.
        for (us, at_a_time) in [(80, 1), (80, 8), (880, 88), (2_560, 256)] {
            let mut drive = Drive::new();
            assert!(!drive.second(1000, 80, 8) && !drive.second(1000, us, at_a_time));
            for _ in 0..100 {
                assert!(drive.second(100, us * 100, at_a_time), "{at_a_time} at a time");
            }
            assert!(!drive.second(1000, us, at_a_time), "it is as it was");
        }
    }

    #[test]
    fn longer_queues_busy_cores_and_what_is_too_little_to_say_are_not() {
        let mut drive = Drive::new();
        assert!(!drive.second(1000, 80, 1));
        // As it was never asked for: twelve times as long is what one after the other would take.
        assert!(!drive.second(100_000, 10_000, 1000));
        // One that was quick, of a core that had no CPU else.
        (0..99).for_each(|_| drive.0.record_time(Duration::from_millis(60)));
        assert!(!drive.second(1, 90, 1));
        assert!(!drive.second(15, 60_000, 1));
        // No slower than 5 ms.
        assert!(!drive.second(50, 4_500, 1));
        // What was slow from the start is what is usual.
        let mut other = Drive::new();
        assert!(!other.second(100, 8_000, 1) && !other.second(100, 8_000, 1));
    }
}
