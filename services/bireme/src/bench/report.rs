//! The report of a run, as programs read it: field names are stable.

use std::collections::BTreeMap;

use serde::Serialize;

use super::counters::Counters;
use super::load::{LoadArgs, Measured};
use super::machine::Machine;
use super::queues::Queues;
use super::tally::Latency;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The workload: `fetch`, `take`, `search`, `get` or `empty`.
    pub workload: &'static str,
    /// The table's name; empty if the load uses none.
    pub table: String,
    /// The table's branch; empty for the main one.
    pub branch: String,
    /// The version of the branch.
    pub version: u64,
    /// The arguments of each request.
    pub request: serde_json::Value,
    /// The kind of load: `closed`, `fixed_rate` (at equal intervals) or `poisson` (at random times).
    pub load: &'static str,
    /// The maximum number of requests at the same time.
    pub concurrency: usize,
    /// Requests per second that were scheduled; `None` in a closed loop.
    pub rate: Option<f64>,
    /// The seed with which requests are drawn.
    pub seed: u64,
    /// The time from the load's start until its last request has ended, in seconds.
    pub seconds: f64,
    /// Requests that were answered.
    pub requests: u64,
    /// Rows that came back, or were scored on the I/O node.
    pub rows: u64,
    /// Requested rows that do not exist.
    pub missing_rows: u64,
    /// Rows per second.
    pub rows_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Latencies; at a fixed rate, from the scheduled start.
    pub latency_us: Option<Latency>,
    /// Requests that failed, by reason.
    pub errors: BTreeMap<&'static str, u64>,
    /// The message of one of the failures, which need not be the earliest.
    pub first_error: Option<String>,
    /// Requests started more than 1 ms after they were due.
    pub late: u64,
    /// Requests that were due and never started.
    pub unstarted: u64,
    /// The nodes' counters.
    pub nodes: Nodes,
    /// CPU of the load generator for each row, in microseconds.
    pub client_cpu_us_per_row: Option<f64>,
    /// Samples of the nodes' queues; empty unless --sample is given.
    pub queues: Vec<Queues>,
    /// The machine that generated the load.
    pub machine: Machine,
}

/// The nodes' counters over the run, which include other callers' requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nodes {
    /// Whether both tiers are one process. If so, the CPU time of each tier is that of the whole process.
    pub one_process: bool,
    /// Rows that the I/O nodes served, including the candidates of searches.
    pub io_rows: u64,
    /// CPU of the I/O nodes for each row that they served, in microseconds.
    pub io_cpu_us_per_row: Option<f64>,
    /// CPU of the query node for each row that came back, in microseconds.
    pub query_cpu_us_per_row: Option<f64>,
    /// CPU of the query node for each request, in microseconds.
    pub query_cpu_us_per_request: Option<f64>,
    /// Physical reads for each row that the I/O nodes served.
    pub drive_reads_per_row: Option<f64>,
    /// Bytes of physical reads for each row that the I/O nodes served.
    pub drive_bytes_per_row: Option<f64>,
    /// Sectors found in RAM tiers.
    pub ram_hits: u64,
    /// Rows that I/O nodes answered from the table, because their chunk was not filled or a drive did not deliver them.
    pub table_rows: u64,
    /// Rows that the query node read from the table because their I/O node could not answer.
    pub fallback_rows: u64,
    /// Bytes of the RAM tier, if known.
    pub ram_tier_bytes: Option<u64>,
}

impl Nodes {
    /// Computes the figures of a run of `requests` that returned `rows`.
    pub fn new(run: &Counters, requests: u64, rows: u64, ram_tier_bytes: Option<u64>) -> Self {
        let query = |per| run.query_cpu_us.and_then(|cpu| ratio(cpu, per));
        Self {
            one_process: run.one_process,
            io_rows: run.io_rows,
            io_cpu_us_per_row: ratio(run.io_cpu_us, run.io_rows),
            query_cpu_us_per_row: query(rows),
            query_cpu_us_per_request: query(requests),
            drive_reads_per_row: ratio(run.drive_reads, run.io_rows),
            drive_bytes_per_row: ratio(run.drive_read_bytes, run.io_rows),
            ram_hits: run.ram_hits,
            table_rows: run.table_rows,
            fallback_rows: run.fallback_rows,
            ram_tier_bytes,
        }
    }
}

/// Returns `sum` per `count`; `None` if `count` is 0.
fn ratio(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// The workload and its table.
pub struct Subject {
    /// The workload: `fetch`, `take`, `search`, `get` or `empty`.
    pub workload: &'static str,
    /// The table's name.
    pub table: String,
    /// The table's branch; empty for the main one.
    pub branch: String,
    /// The version of the branch.
    pub version: u64,
    /// The arguments of each request.
    pub request: serde_json::Value,
}

impl Report {
    /// Creates the report of a run.
    pub fn new(
        subject: Subject,
        load: &LoadArgs,
        measured: &Measured,
        run: &Counters,
        ram_tier_bytes: Option<u64>,
    ) -> Self {
        let Measured { tally, seconds, client_cpu_us, queues } = measured;
        let (requests, rows) = (tally.requests(), tally.rows());
        Self {
            workload: subject.workload,
            table: subject.table,
            branch: subject.branch,
            version: subject.version,
            request: subject.request,
            load: match (load.rate, load.poisson) {
                (None, _) => "closed",
                (Some(_), false) => "fixed_rate",
                (Some(_), true) => "poisson",
            },
            concurrency: load.concurrency(),
            rate: load.rate,
            seed: load.seed,
            seconds: *seconds,
            requests,
            rows,
            missing_rows: tally.missing(),
            rows_per_s: rows as f64 / seconds,
            requests_per_s: requests as f64 / seconds,
            latency_us: tally.latency(),
            errors: tally.errors().clone(),
            first_error: tally.first_fault().map(|fault| fault.message.clone()),
            late: tally.late(),
            unstarted: tally.unstarted(),
            nodes: Nodes::new(run, requests, rows, ram_tier_bytes),
            client_cpu_us_per_row: ratio(*client_cpu_us, rows),
            queues: queues.clone(),
            machine: Machine::here(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_by_exact_values() {
        let run = Counters {
            io_cpu_us: 3000,
            query_cpu_us: Some(500),
            io_rows: 1500,
            drive_reads: 1500,
            drive_read_bytes: 1500 * 4096,
            ram_hits: 7,
            table_rows: 3,
            fallback_rows: 2,
            one_process: false,
        };
        let nodes = Nodes::new(&run, 10, 100, Some(1));
        assert_eq!(nodes.io_cpu_us_per_row, Some(2.0));
        assert_eq!(
            (nodes.query_cpu_us_per_row, nodes.query_cpu_us_per_request),
            (Some(5.0), Some(50.0))
        );
        assert_eq!(
            (nodes.drive_reads_per_row, nodes.drive_bytes_per_row),
            (Some(1.0), Some(4096.0))
        );
        assert_eq!((nodes.ram_hits, nodes.table_rows, nodes.fallback_rows), (7, 3, 2));
        let nothing = Nodes::new(&Counters::default(), 0, 0, None);
        assert_eq!((nothing.io_cpu_us_per_row, nothing.query_cpu_us_per_row), (None, None));
    }
}
