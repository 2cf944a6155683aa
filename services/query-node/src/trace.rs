//! Where a request's time went, for `explain`.

use tokio::time::Instant;
use wire::fetch::StageTimes;
use wire::query::Stage;

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

    /// Ends a stage that was done by I/O nodes, with what the slowest of them spent within it.
    pub fn io_stage(&mut self, name: &str, rows: usize, cost: &Cost) {
        self.stage(name, || cost.detail(rows));
        if let (true, Some((node, times))) = (self.wanted, &cost.slowest) {
            self.stages.extend(within(node, times));
        }
    }

    /// What was collected.
    pub fn into_stages(self) -> Vec<Stage> {
        self.stages
    }
}

fn within(node: &str, times: &StageTimes) -> [Stage; 3] {
    let stage = |name: &str, time_us: u32, detail: String| Stage {
        name: name.into(),
        time_us: u64::from(time_us),
        detail,
        depth: 1,
    };
    let read = format!(
        "{} drive reads, {} bytes, {} sectors in RAM, {} rows from the table",
        times.drive_reads, times.drive_bytes, times.ram_hits, times.table_rows
    );
    [
        stage("locate", times.locate_us, format!("at {node}, the slowest")),
        stage("read", times.read_us, read),
        stage("assemble", times.assemble_us, String::new()),
    ]
}
