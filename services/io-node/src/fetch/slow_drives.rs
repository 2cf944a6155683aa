//! Detects slow drives. A drive is slow if all of its reads in one second take many times as long as usual.
//!
//! Such a drive may still answer all reads in time, for example in ten milliseconds instead of a tenth of one.
//! `reader/timeouts.rs` handles drives that do not. A drive is judged by its fastest read in each second, so that
//! neither a core without CPU time nor a long queue counts against the drive.

use std::time::Duration;

use address::DriveNo;
use telemetry::Buckets;
use tokio::time::Instant;

use super::here;

/// The interval at which each drive is judged.
const JUDGED_EVERY: Duration = Duration::from_secs(1);

/// The minimum number of reads in an interval for the drive to be judged. If there are only a few reads, all of them
/// may have met the same pause of the drive.
const READS_MIN: u64 = 16;

/// The factor by which the fastest read must exceed the usual duration for a drive to count as slow. It is meant for
/// drives that become about a hundred times slower: 10 ms in place of 0.1 ms.
const SLOW_FACTOR: f64 = 30.0;

/// The duration, in seconds, up to which a read never counts as slow. A read from object storage takes longer.
const SLOW_MIN_S: f64 = 0.005;

/// Reports slow drives to the filler, for as long as the core runs.
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
                core.node.fills.slow(DriveNo(drive));
            }
        }
    }
}

/// The usual speed of one drive, as one core measures it.
#[derive(Default)]
struct DriveBaseline {
    before: Buckets,
    busy_before: Duration,
    /// The duration of the fastest read, in seconds, leaving out intervals in which the drive was slow.
    fastest: Option<f64>,
    /// The highest rate seen, in reads per second of busy time.
    most: f64,
}

impl DriveBaseline {
    /// Returns whether all reads since the last call were slow. `now` has the durations of all reads since the start,
    /// in seconds; `busy` is the time in which the drive had reads in flight.
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
            // The number of reads in flight follows from Little's law. A read may have to wait for that many others, at
            // the highest rate seen so far.
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

    /// The durations of a drive's reads, the drive's baseline, and its busy time.
    struct Drive(Histogram, DriveBaseline, Duration);

    impl Drive {
        fn new() -> Self {
            Self(Histogram::new(Scale::Seconds), DriveBaseline::default(), Duration::ZERO)
        }

        /// Adds `reads` reads of `us` µs each, `at_a_time` of them in parallel. Returns whether the drive was slow.
        fn second(&mut self, reads: u64, us: u64, at_a_time: u64) -> bool {
            (0..reads).for_each(|_| self.0.record_time(Duration::from_micros(us)));
            self.2 += Duration::from_micros(reads.div_ceil(at_a_time) * us);
            self.1.was_slow(self.0.buckets(), self.2)
        }
    }

    #[test]
    fn a_drive_that_is_a_hundred_times_slower_is_slow_at_any_queue_depth() {
        // The drive serves 8 reads in parallel, each in 80 µs; others wait.
        for (us, at_a_time) in [(80, 1), (80, 8), (880, 88), (2_560, 256)] {
            let mut drive = Drive::new();
            assert!(!drive.second(1000, 80, 8) && !drive.second(1000, us, at_a_time));
            for _ in 0..100 {
                assert!(drive.second(100, us * 100, at_a_time), "{at_a_time} at a time");
            }
            assert!(!drive.second(1000, us, at_a_time), "it is as fast as before");
        }
    }

    #[test]
    fn longer_queues_busy_cores_and_too_few_reads_do_not_count_as_slow() {
        let mut drive = Drive::new();
        assert!(!drive.second(1000, 80, 1));
        // The queue is far longer than before. At the rate seen so far, 1,000 reads in flight take 80 ms, so 10 ms each
        // is not slow.
        assert!(!drive.second(100_000, 10_000, 1000));
        // The core had no CPU time, so 99 reads took long. One fast read shows that the drive is not slow.
        (0..99).for_each(|_| drive.0.record_time(Duration::from_millis(60)));
        assert!(!drive.second(1, 90, 1));
        // Too few reads to judge the drive.
        assert!(!drive.second(15, 60_000, 1));
        // Faster than 5 ms, which never counts as slow.
        assert!(!drive.second(50, 4_500, 1));
        // A drive that was slow from the start sets its own baseline.
        let mut other = Drive::new();
        assert!(!other.second(100, 8_000, 1) && !other.second(100, 8_000, 1));
    }
}
