//! The limit of a core's reads in flight while several flows are active. Pure.
//!
//! The queue decides which piece is read next, but not how long its read takes: a drive serves the reads in flight in
//! an order of its own. If one flow's reads fill all slots, another flow's read waits behind them in the drive. So a
//! core uses all its slots only while a single flow is active. While several are active, it keeps only as many reads in
//! flight as are needed to keep the drives busy.
//!
//! The limit is found by experiment. Time is divided into phases of `IoConfig::depth_phase`, and in every second phase
//! the limit is a little higher. If the drives have capacity left, reads take equally long in both phases, and the
//! limit grows. If the drives are busy, the additional reads only wait in the drives, so reads take longer in
//! proportion, and the limit shrinks. All cores of a node use the same phases, because they share the drives.

use std::time::Duration;

use scheduler::Flow;
use tokio::time::Instant;

/// Several flows count as active for this long after a core queued reads of one flow and then of another. So the limit
/// stays in effect while a flow has no reads between two of its batches.
const ACTIVE: Duration = Duration::from_secs(5);

/// The limit before any reads are measured. If the measurements ask for it, the limit reaches 256 from here in six
/// pairs of phases (2.4 s).
const FIRST: f64 = 64.0;

/// The minimum of the mean of both phases' limits.
const LEAST: f64 = 4.0;

/// The relative difference between the limit of either phase and the mean of both. Requests of one row wait longer in
/// the higher phase: an eighth too many reads in flight raised their p99 by 11 % (`docs/performance.md`). A smaller
/// difference is harder to measure.
const DEVIATION: f64 = 1.0 / 16.0;

/// The target for the growth of the reads' duration with the number of reads in flight: the change of the duration's
/// logarithm divided by the change of the number's logarithm. The growth is 0 while the drives have capacity left, and
/// 1 when they have none. Below the target the limit grows, above it the limit shrinks. At 0.5, twice as many reads in
/// flight would complete 41 % more reads per second.
const GROWTH_KEPT: f64 = 0.5;

/// The minimum and maximum steps by which the limit changes, as logarithms. A step in the direction of the previous one
/// is [`LONGER`] times as long, and a step in the other direction half as long. So the limit converges quickly and then
/// changes little, even if a single measurement is far off.
const STEP_MIN: f64 = 0.02;
const STEP_MAX: f64 = 0.25;
const LONGER: f64 = 1.5;

/// The minimum number of measured reads in a phase. A phase with fewer reads is not used.
const READS_MIN: u32 = 64;

/// The limit of a core's reads in flight.
pub struct Depth {
    slots: u32,
    /// The time at which phase 0 begins.
    epoch: Instant,
    /// The duration of a phase.
    phase: Duration,
    /// The mean of the limits of the two phases.
    mean: f64,
    /// The latest step; negative if it lowered the limit.
    step: f64,
    /// The number of the present pair of phases.
    pair: u64,
    /// The measurements of both phases of the pair.
    measured: [Measured; 2],
    /// The flow of the latest queued reads.
    last_flow: Option<u64>,
    /// The latest time at which `last_flow` changed from one flow to another.
    changed: Option<Instant>,
    /// Whether several flows were active when the limit was last requested.
    is_in_effect: bool,
}

/// The measured durations of a phase's reads.
#[derive(Clone, Copy, Default)]
struct Measured {
    reads: u32,
    /// The sum of the logarithms of the durations. Logarithms limit the influence of a few slow reads.
    logarithms: f64,
}

impl Measured {
    fn mean(self) -> Option<f64> {
        (self.reads >= READS_MIN).then(|| self.logarithms / f64::from(self.reads))
    }
}

impl Depth {
    /// Creates the limit of a core with `slots` slots. Phase 0 begins at `epoch`, which is the same for all cores of a
    /// node.
    pub fn new(slots: u32, epoch: Instant, phase: Duration) -> Self {
        Self {
            slots,
            epoch,
            phase,
            mean: FIRST.min(slots.into()),
            step: STEP_MAX / 2.0,
            pair: 0,
            measured: [Measured::default(); 2],
            last_flow: None,
            changed: None,
            is_in_effect: false,
        }
    }

    /// Records that reads of a flow were queued.
    pub fn queued(&mut self, flow: Flow, now: Instant) {
        if self.last_flow.replace(flow.id()).is_some_and(|last| last != flow.id()) {
            self.changed = Some(now);
        }
    }

    /// Returns the maximum number of reads in flight.
    pub fn limit(&mut self, now: Instant) -> u32 {
        self.is_in_effect = self.changed.is_some_and(|changed| now - changed <= ACTIVE);
        if !self.is_in_effect {
            return self.slots;
        }
        let phase = self.phase_at(now).0;
        if self.pair != phase / 2 {
            self.adjust();
            self.pair = phase / 2;
        }
        self.limits()[phase as usize % 2]
    }

    /// Records the duration of a read that was started while further pieces waited, so that it was subject to the
    /// limit.
    #[inline]
    pub fn ended(&mut self, started: Instant, ended: Instant) {
        // Measuring takes about 150 instructions, and a core that serves a single flow needs no measurements.
        if self.is_in_effect {
            self.measure(started, ended);
        }
    }

    fn measure(&mut self, started: Instant, ended: Instant) {
        let (phase, since) = self.phase_at(started);
        // A read shows the effect of a phase's limit only if it begins after the phase's first quarter, when the number
        // of reads in flight has reached the limit, and ends within the phase.
        if since >= self.phase / 4 && self.phase_at(ended).0 == phase && phase / 2 == self.pair {
            let measured = &mut self.measured[phase as usize % 2];
            measured.reads += 1;
            measured.logarithms += (ended - started).as_secs_f64().max(1e-6).ln();
        }
    }

    /// Returns the phase at a time, and the time since the phase began.
    fn phase_at(&self, at: Instant) -> (u64, Duration) {
        // In 64 bits, whose division is much faster than that of 128.
        let nanos = |time: Duration| time.as_nanos() as u64;
        let (since, phase) = (nanos(at.saturating_duration_since(self.epoch)), nanos(self.phase));
        (since / phase, Duration::from_nanos(since % phase))
    }

    /// Returns the limits of both phases.
    fn limits(&self) -> [u32; 2] {
        let low = (self.mean * (1.0 - DEVIATION)) as u32;
        let high = (self.mean * (1.0 + DEVIATION)).ceil() as u32;
        [low, high.min(self.slots)].map(|limit| limit.max(1))
    }

    /// Changes the limit according to the measurements, and discards them.
    fn adjust(&mut self) {
        let [low, high] = self.limits();
        let [of_low, of_high] = std::mem::take(&mut self.measured).map(Measured::mean);
        let (Some(of_low), Some(of_high)) = (of_low, of_high) else { return };
        let growth = (of_high - of_low) / (f64::from(high) / f64::from(low)).ln();
        let (direction, length) = (if growth < GROWTH_KEPT { 1.0 } else { -1.0 }, self.step.abs());
        let length = if self.step * direction > 0.0 { length * LONGER } else { length / 2.0 };
        self.step = direction * length.clamp(STEP_MIN, STEP_MAX);
        let slots = f64::from(self.slots);
        self.mean = (self.mean * self.step.exp()).clamp(LEAST.min(slots), slots);
    }
}

#[cfg(test)]
#[path = "depth_tests.rs"]
mod tests;
