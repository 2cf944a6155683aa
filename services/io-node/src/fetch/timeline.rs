//! The timeline of a batch: the times at which its stages began.

use std::time::Duration;

use tokio::time::Instant;
use wire::BATCH_STAGES;
use wire::fetch::StageTimes;

use super::requests::RequestTimes;
use crate::shard::CoreHistograms;

/// The times at which a batch's stages begin and end, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTimeline {
    /// The time at which the batch arrived.
    pub arrived: Instant,
    /// The time at which the batch's rows were located, and those from the table had arrived.
    pub located: Instant,
    /// The time at which the first read that counts for the batch ([`RequestTimes::drive_reads`]) was submitted to a
    /// drive; equal to `located` if there was none.
    pub reading: Instant,
    /// The time at which the last row arrived.
    pub assembling: Instant,
    /// The time at which the reply was ready.
    pub replied: Instant,
}

impl BatchTimeline {
    /// Creates the timeline of a batch that was assembled from `assembling` to `replied`.
    pub fn new(times: &RequestTimes, assembling: Instant, replied: Instant) -> Self {
        let located = times.located.unwrap_or(assembling);
        // If a drive fails to deliver rows, the batch is located again after its first reads.
        let reading = times.reading.unwrap_or(located).max(located);
        Self { arrived: times.arrived, located, reading, assembling, replied }
    }

    /// Returns when each of [`BATCH_STAGES`] began and ended.
    pub fn stages(&self) -> [(Instant, Instant); BATCH_STAGES.len()] {
        let Self { arrived, located, reading, assembling, replied } = *self;
        [(arrived, located), (located, reading), (reading, assembling), (assembling, replied)]
    }

    /// Adds the durations to histograms.
    pub fn record(&self, into: &CoreHistograms) {
        for (stage, (began, ended)) in into.stages.iter().zip(self.stages()) {
            stage.record_time(ended.saturating_duration_since(began));
        }
        into.batch.record_time(self.replied - self.arrived);
    }

    /// Returns the message for the client, with the batch's costs and whether its spans were `exported`.
    pub fn to_wire(self, times: &RequestTimes, exported: bool) -> StageTimes {
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
        let times = RequestTimes {
            located: Some(at(2)),
            reading: Some(at(5)),
            ..RequestTimes::new(arrived)
        };
        let timeline = BatchTimeline::new(&times, at(9), at(10));
        let wire = timeline.to_wire(&times, false);
        assert_eq!((wire.locate_us, wire.read_us, wire.assemble_us), (2000, 7000, 1000));
        assert_eq!(wire.queue_us, 3000);
        // Located again after its reads: the times remain in order.
        let times = RequestTimes { located: Some(at(7)), ..times };
        assert_eq!(BatchTimeline::new(&times, at(9), at(10)).reading, at(7));
        // All rows were in RAM.
        let times = RequestTimes { located: Some(at(2)), ..RequestTimes::new(arrived) };
        assert_eq!(BatchTimeline::new(&times, at(2), at(3)).reading, at(2));
    }
}
