//! Where a batch's time went.

use std::time::Duration;

use tokio::time::Instant;
use wire::BATCH_STAGES;
use wire::fetch::StageTimes;

use crate::core::{CoreHistograms, Times};

/// The moments between a batch's stages, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// It came.
    pub arrived: Instant,
    /// Its rows were located.
    pub located: Instant,
    /// Its first read was asked of a drive; it had its rows then if it needed none.
    pub reading: Instant,
    /// Its last row was there.
    pub assembling: Instant,
    /// Its reply was made.
    pub replied: Instant,
}

impl Timed {
    /// Of a batch that is assembled from `assembling` to `replied`.
    pub fn new(times: &Times, assembling: Instant, replied: Instant) -> Self {
        let located = times.located.unwrap_or(assembling);
        // Rows that come from the table after all are located once more, after the reads.
        let reading = times.reading.unwrap_or(located).max(located);
        Self { arrived: times.arrived, located, reading, assembling, replied }
    }

    /// When each of [`BATCH_STAGES`] began and ended.
    pub fn stages(&self) -> [(Instant, Instant); BATCH_STAGES.len()] {
        let Self { arrived, located, reading, assembling, replied } = *self;
        [(arrived, located), (located, reading), (reading, assembling), (assembling, replied)]
    }

    /// Counts it.
    pub fn record(&self, into: &CoreHistograms) {
        for (stage, (began, ended)) in into.stages.iter().zip(self.stages()) {
            stage.record_time(ended.saturating_duration_since(began));
        }
        into.batch.record_time(self.replied - self.arrived);
    }

    /// As the client is told, with what the batch cost, and whether the spans of its stages are `exported` here.
    pub fn to_wire(self, times: &Times, exported: bool) -> StageTimes {
        let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        StageTimes {
            locate_us: us(self.located - self.arrived),
            read_us: us(self.assembling - self.located),
            assemble_us: us(self.replied - self.assembling),
            queue_us: us(self.reading - self.located),
            drive_reads: times.drive_reads,
            drive_bytes: times.drive_bytes,
            ram_hits: times.ram_hits,
            table_rows: times.table_rows,
            exported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_follow_each_other() {
        let arrived = Instant::now();
        let at = |ms| arrived + Duration::from_millis(ms);
        let times = Times { located: Some(at(2)), reading: Some(at(5)), ..Times::new(arrived) };
        let timed = Timed::new(&times, at(9), at(10));
        let wire = timed.to_wire(&times, false);
        assert_eq!((wire.locate_us, wire.read_us, wire.assemble_us), (2000, 7000, 1000));
        assert_eq!(wire.queue_us, 3000);
        // Located once more, after its reads: nothing goes backwards.
        let times = Times { located: Some(at(7)), ..times };
        assert_eq!(Timed::new(&times, at(9), at(10)).reading, at(7));
        // From RAM alone.
        let times = Times { located: Some(at(2)), ..Times::new(arrived) };
        assert_eq!(Timed::new(&times, at(2), at(3)).reading, at(2));
    }
}
