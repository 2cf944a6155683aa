//! Where a request's time went, for `explain`.

use tokio::time::Instant;
use wire::fetch::StageTimes;
use wire::query::Stage;

use crate::counted::counted;
use crate::stages::Cost;

/// Collects stages in the order of the work; empty unless asked for.
pub struct Trace {
    wanted: bool,
    stages: Vec<Stage>,
    began: Instant,
}

impl Trace {
    /// Starts the clock of the first stage.
    pub fn start(wanted: bool) -> Self {
        Self { wanted, stages: Vec::new(), began: Instant::now() }
    }

    /// Ends a stage, and starts the clock of the next one.
    pub fn stage(&mut self, name: &str, detail: impl FnOnce() -> String) {
        let began = std::mem::replace(&mut self.began, Instant::now());
        if self.wanted {
            let time_us = began.elapsed().as_micros() as u64;
            self.stages.push(Stage { name: name.into(), time_us, detail: detail(), depth: 0 });
        }
    }

    /// Ends a stage that was done by I/O nodes, with what the slowest of them spent within it; what
    /// that leaves was spent here and on the way.
    pub fn io_stage(&mut self, name: &str, rows: usize, cost: &Cost) {
        self.stage(name, || cost.detail(rows));
        if let (Some(stage), Some((node, times))) = (self.stages.last(), &cost.slowest) {
            let inner = within(stage.time_us, node, times);
            self.stages.extend(inner);
        }
    }

    /// What was collected.
    pub fn into_stages(self) -> Vec<Stage> {
        self.stages
    }
}

fn within(stage_us: u64, node: &str, times: &StageTimes) -> [Stage; 4] {
    let stage = |name: &str, time_us: u64, detail: String| Stage {
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
    fn the_time_within_a_stage_adds_up_to_it() {
        let times = StageTimes {
            locate_us: 10,
            read_us: 60,
            assemble_us: 5,
            drive_reads: 1,
            drive_bytes: 4096,
            ..Default::default()
        };
        let inner = within(100, "io-0", &times);
        let spent: Vec<_> = inner.iter().map(|it| (it.name.as_str(), it.time_us)).collect();
        assert_eq!(spent, [("stream", 25), ("locate", 10), ("read", 60), ("assemble", 5)]);
        let read = "1 drive read, 4096 bytes, 0 sectors in RAM, 0 rows from the table";
        assert_eq!(inner[2].detail, read);
        // Two machines' clocks may run a little differently.
        assert_eq!(within(70, "io-0", &times)[0].time_us, 0);
    }
}
