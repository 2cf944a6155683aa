//! The number of reads in flight while several flows are active. Pure.
//!
//! The queue decides which piece is read next, but not how long its read takes: a drive serves what it was given in an
//! order of its own. If one flow's reads fill all slots, another flow's read waits behind them in the drive. So a core
//! gives drives all the reads that it has slots for only while one flow is active. While there are several, it keeps as
//! many in flight as keep the drives busy, and no more.
//!
//! This number is found by trying. In every second phase, of `IoConfig::depth_phase`, a few more reads are in flight than in the
//! others. If the drives are not busy, reads take equally long in both. If they are, reads take longer in proportion:
//! they only wait in the drive. The number grows in the first case and shrinks in the second. The phases are those of a
//! clock that all cores of a node share, because one core's reads are only a part of those that a drive has.

use std::time::Duration;

use scheduler::Flow;
use tokio::time::Instant;

/// Several flows count as active for this long after reads of two flows were queued one after the other.
const ACTIVE: Duration = Duration::from_secs(5);

/// Reads in flight before any are measured, and at the least.
const FIRST: f64 = 64.0;
const LEAST: f64 = 4.0;

/// The part by which the numbers of reads in the two phases differ from their mean.
const DEVIATION: f64 = 1.0 / 16.0;

/// The growth of a read's duration, relative to that of the number of reads in flight, at which the number is kept: 0
/// while the drives have capacity left, 1 when they have none. At a half, twice the reads give 41 % more per second.
const GROWTH_KEPT: f64 = 0.5;

/// The steps, as logarithms, by which the number grows or shrinks. A step in the same direction as the one before is
/// longer than that by [`LONGER`], one in the other direction half as long: the number is found soon, and then changes
/// little, although a single measurement may be far off.
const STEP_MIN: f64 = 0.02;
const STEP_MAX: f64 = 0.25;
const LONGER: f64 = 1.5;

/// The minimum number of reads of a phase from which its duration is known.
const READS_MIN: u32 = 64;

/// The limit of a core's reads in flight.
pub struct Depth {
    slots: u32,
    /// The time from which phases count.
    epoch: Instant,
    /// The duration of a phase.
    phase: Duration,
    /// The mean of both phases' numbers.
    mean: f64,
    /// The last step; below 0 if it made the number smaller.
    step: f64,
    /// The pair of phases that is measured.
    pair: u64,
    measured: [Measured; 2],
    last_flow: Option<u64>,
    /// The time at which the flow changed last.
    changed: Option<Instant>,
}

/// The durations of the reads of a phase.
#[derive(Clone, Copy, Default)]
struct Measured {
    reads: u32,
    /// The sum of the logarithms of their durations, which a few slow reads do not change much.
    logarithms: f64,
}

impl Measured {
    fn mean(self) -> Option<f64> {
        (self.reads >= READS_MIN).then(|| self.logarithms / f64::from(self.reads))
    }
}

impl Depth {
    /// Creates the limit of a core with `slots` slots. All cores of a node have the same `epoch`, from which their phases
    /// count.
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
        }
    }

    /// Notes that reads of a flow were queued.
    pub fn queued(&mut self, flow: Flow, now: Instant) {
        if self.last_flow.replace(flow.id()).is_some_and(|last| last != flow.id()) {
            self.changed = Some(now);
        }
    }

    /// Returns the number of reads that may be in flight.
    pub fn limit(&mut self, now: Instant) -> u32 {
        if self.changed.is_none_or(|changed| now - changed > ACTIVE) {
            return self.slots;
        }
        let phase = self.phase_at(now).0;
        if self.pair != phase / 2 {
            self.adjust();
            self.pair = phase / 2;
        }
        self.limits()[phase as usize % 2]
    }

    /// Notes that a read has ended that was started while others waited for the limit.
    pub fn ended(&mut self, started: Instant, ended: Instant) {
        let (phase, since) = self.phase_at(started);
        // Reads that began before the number of this phase was in flight, or ended after it, do not show its effect.
        if since >= self.phase / 4 && self.phase_at(ended).0 == phase && phase / 2 == self.pair {
            let measured = &mut self.measured[phase as usize % 2];
            measured.reads += 1;
            measured.logarithms += (ended - started).as_secs_f64().max(1e-6).ln();
        }
    }

    /// Returns the phase at a time, and the time since its begin.
    fn phase_at(&self, at: Instant) -> (u64, Duration) {
        let since = at.saturating_duration_since(self.epoch).as_nanos();
        let phase = self.phase.as_nanos();
        ((since / phase) as u64, Duration::from_nanos((since % phase) as u64))
    }

    /// Returns the numbers of both phases.
    fn limits(&self) -> [u32; 2] {
        let low = (self.mean * (1.0 - DEVIATION)) as u32;
        let high = (self.mean * (1.0 + DEVIATION)).ceil() as u32;
        [low, high.min(self.slots)].map(|limit| limit.max(1))
    }

    /// Changes the number by what was measured, and begins to measure anew.
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
