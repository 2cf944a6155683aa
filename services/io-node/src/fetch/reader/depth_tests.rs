//! Tests the limit of reads in flight against a model of a drive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const PHASE: Duration = Duration::from_millis(200);

/// Returns a duration of `us` microseconds.
fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A drive that serves `channels` reads at a time, in the order of their arrival. Each takes 50 to 150 µs.
struct Drive {
    free_at: BinaryHeap<Reverse<u64>>,
    random: u64,
}

impl Drive {
    fn new(channels: usize) -> Self {
        Self { free_at: (0..channels).map(|_| Reverse(0)).collect(), random: 1 }
    }

    /// Submits a read at `now`. Returns the time at which the read ends.
    fn read(&mut self, now: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let takes = 50 + (self.random >> 33) % 101;
        let Reverse(free) = self.free_at.pop().unwrap();
        let ends = free.max(now) + takes;
        self.free_at.push(Reverse(ends));
        ends
    }
}

/// Simulates `cores` cores with 256 slots each, which always have reads waiting, on one drive for `seconds`. Returns
/// the mean limit of each core, and the number of reads in the last second.
fn run(channels: usize, cores: usize, seconds: u64) -> (Vec<f64>, u64) {
    let epoch = Instant::now();
    let mut drive = Drive::new(channels);
    let mut depths: Vec<_> = (0..cores).map(|_| Depth::new(256, epoch, PHASE)).collect();
    let mut busy = vec![0; cores];
    let mut in_flight = BinaryHeap::new();
    let (mut now, mut reads, mut all) = (0, 0, 0);
    while now < seconds * 1_000_000 {
        for (core, depth) in depths.iter_mut().enumerate() {
            let at = epoch + us(now);
            depth.queued(Flow::new(1 + all % 2, 1), at);
            while busy[core] < depth.limit(at) {
                busy[core] += 1;
                in_flight.push(Reverse((drive.read(now), now, core)));
            }
        }
        let Some(Reverse((ends, began, core))) = in_flight.pop() else { unreachable!() };
        now = ends;
        busy[core] -= 1;
        depths[core].ended(epoch + us(began), epoch + us(ends));
        all += 1;
        reads += u64::from(now >= (seconds - 1) * 1_000_000);
    }
    (depths.into_iter().map(|depth| depth.mean).collect(), reads)
}

#[test]
fn one_flow_has_all_slots_and_several_have_what_the_drive_needs() {
    let now = Instant::now();
    let mut depth = Depth::new(256, now, PHASE);
    assert_eq!(depth.limit(now), 256);
    depth.queued(Flow::new(1, 1), now);
    depth.queued(Flow::new(1, 1), now);
    assert_eq!(depth.limit(now), 256);
    let (started, ended) = (now + PHASE / 2, now + PHASE / 2 + Duration::from_millis(1));
    depth.ended(started, ended);
    assert_eq!(depth.measured[0].reads, 0);
    depth.queued(Flow::new(2, 1), now);
    depth.limit(now);
    depth.ended(started, ended);
    assert_eq!(depth.measured[0].reads, 1);
    assert_eq!([depth.limit(now), depth.limit(now + PHASE)], [60, 68]);
    assert_eq!(depth.limit(now + ACTIVE + PHASE), 256);
    assert_eq!(Depth::new(2, now, PHASE).limits(), [1, 2]);
}

#[test]
fn the_number_is_that_of_a_drives_channels() {
    for channels in [8, 32, 100] {
        let (means, reads) = run(channels, 1, 12);
        let (mean, at_most) = (means[0], 10_000 * channels as u64);
        let channels = channels as f64;
        assert!(mean >= channels * 0.85 && mean <= channels * 1.25, "{mean} for {channels}");
        assert!(reads as f64 >= 0.85 * at_most as f64, "{reads} reads/s of {at_most}");
    }
}

#[test]
fn several_cores_share_a_drive() {
    let (means, reads) = run(64, 4, 12);
    let sum: f64 = means.iter().sum();
    assert!((50.0..=90.0).contains(&sum), "{means:?} for 64 channels");
    assert!(reads >= 540_000, "{reads} reads/s of 640,000");
}

#[test]
fn a_drive_that_is_never_busy_gets_all_reads() {
    let (means, _) = run(1000, 1, 8);
    assert_eq!(means, [256.0]);
}
