//! The stages of a call: their times, for metrics, for `explain`, and for the call's trace.

use std::time::{Duration, Instant};

use spelling::counted;
use telemetry::Recording;
use wire::fetch::StageTimes;
use wire::query;

use crate::counters::Stage;
use crate::fetch::Cost;
use crate::trace::{StageRecords, StageWork};

/// The stages of a call that have ended, and the time at which the current one began.
pub struct CallStages {
    began: Instant,
    explains: bool,
    explained: Vec<query::Stage>,
    is_recorded: bool,
    is_sampled: bool,
    /// The stages that have ended, if the call is recorded.
    records: StageRecords,
}

impl CallStages {
    /// Begins the first stage of a call at `began`. `recording` is the call's recording.
    pub fn begin(began: Instant, recording: Option<&Recording>) -> Self {
        Self {
            began,
            explains: false,
            explained: Vec::new(),
            is_recorded: recording.is_some(),
            is_sampled: recording.is_some_and(Recording::is_sampled),
            records: StageRecords::default(),
        }
    }

    /// Begins the first stage of a subcall, which is recorded and explained like this call.
    pub fn of_subcall(&self) -> Self {
        Self {
            began: Instant::now(),
            explained: Vec::new(),
            records: StageRecords::default(),
            ..*self
        }
    }

    /// Adds the stages of a subcall, which has ended. The next stage of this call begins.
    pub fn join(&mut self, subcall: &mut Self) {
        self.explained.append(&mut subcall.explained);
        self.records.append(std::mem::take(&mut subcall.records));
        self.began = Instant::now();
    }

    /// Returns whether somebody will see the stages, because the call's trace is sampled or its caller has asked for
    /// `explain`.
    pub fn is_observed(&self) -> bool {
        self.explains || self.is_sampled
    }

    /// Collects the stages from here on for the caller.
    pub fn explain(&mut self) {
        self.explains = true;
    }

    /// Ends a stage and begins the next one. `detail` describes what the stage did. Returns how long it took.
    pub fn end(&mut self, stage: Stage, detail: impl FnOnce() -> String) -> Duration {
        self.end_with_work(stage, detail, StageWork::default())
    }

    /// Ends a stage that fetches or scores rows. If I/O nodes answered, `explain` shows the times of the slowest one,
    /// and the rest of the stage as `stream`. Returns how long the stage took.
    pub fn end_io(&mut self, stage: Stage, rows: usize, mut cost: Cost) -> Duration {
        let work = std::mem::take(&mut cost.work);
        let took = self.end_with_work(stage, || cost.detail(rows), work);
        if let Some((node, times)) = cost.slowest.as_ref().filter(|_| self.explains) {
            self.explained.extend(io_stages(took.as_micros() as u64, node, times));
        }
        took
    }

    fn end_with_work(
        &mut self,
        stage: Stage,
        detail: impl FnOnce() -> String,
        work: StageWork,
    ) -> Duration {
        let ended = Instant::now();
        let began = std::mem::replace(&mut self.began, ended);
        let detail = if self.is_observed() { detail() } else { String::new() };
        if self.is_recorded {
            let detail = if self.is_sampled { detail.clone() } else { String::new() };
            self.records.push(stage, (began, ended), detail, work);
        }
        let took = ended - began;
        if self.explains {
            let (name, time_us) = (stage.name().into(), took.as_micros() as u64);
            self.explained.push(query::Stage { name, time_us, detail, depth: 0 });
        }
        took
    }

    /// Takes the stages collected for the caller.
    pub fn explained(&mut self) -> Vec<query::Stage> {
        std::mem::take(&mut self.explained)
    }

    /// Takes the stages collected for the trace.
    pub fn take_records(&mut self) -> StageRecords {
        std::mem::take(&mut self.records)
    }
}

/// Divides a stage of `stage_us` microseconds, whose slowest I/O node is `node`, into what happened there.
fn io_stages(stage_us: u64, node: &str, times: &StageTimes) -> [query::Stage; 4] {
    let stage = |name: &str, time_us: u64, detail: String| query::Stage {
        name: name.into(),
        time_us,
        detail,
        depth: 1,
    };
    let [locate_us, read_us, assemble_us] =
        [times.locate_us, times.read_us, times.assemble_us].map(u64::from);
    let read = format!(
        "{}, {}, {} in RAM, {} from the table",
        counted(times.drive_reads, "drive read"),
        counted(times.drive_bytes, "byte"),
        counted(times.ram_hits, "sector"),
        counted(times.table_rows, "row")
    );
    let stream_us = stage_us.saturating_sub(locate_us + read_us + assemble_us);
    [
        stage("stream", stream_us, "plan, batch, and both ways to the I/O node".into()),
        stage("locate", locate_us, format!("at {node}, the slowest")),
        stage("read", read_us, read),
        stage("assemble", assemble_us, String::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_in_a_stage_adds_up_to_it() {
        let times = StageTimes {
            locate_us: 10,
            read_us: 60,
            assemble_us: 5,
            drive_reads: 1,
            drive_bytes: 4096,
            ..Default::default()
        };
        let inner = io_stages(100, "io-0", &times);
        let spent: Vec<_> = inner.iter().map(|it| (it.name.as_str(), it.time_us)).collect();
        assert_eq!(spent, [("stream", 25), ("locate", 10), ("read", 60), ("assemble", 5)]);
        let read = "1 drive read, 4096 bytes, 0 sectors in RAM, 0 rows from the table";
        assert_eq!(inner[2].detail, read);
        // Clocks of two machines may run at slightly different speeds.
        assert_eq!(io_stages(70, "io-0", &times)[0].time_us, 0);
    }
}
