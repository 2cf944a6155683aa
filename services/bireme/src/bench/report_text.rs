//! The report of a run, as people read it.

use std::fmt::Write;

use super::report::{Nodes, Report};
use crate::output::{bytes, count, micros, rate};

/// Returns a line for each figure, with its name first.
pub fn report_text(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{name:<10} {value}");
    };
    let on = match report.table.as_str() {
        "" => String::new(),
        table if report.branch.is_empty() => format!(" on {table} version {}", report.version),
        table => format!(" on {table} version {} of {}", report.version, report.branch),
    };
    line("bench", format!("{}{on}: {}", report.workload, report.request));
    line("load", load(report));
    line("machine", machine(report));
    line(
        "rows/s",
        format!("{}   requests/s {}", rate(report.rows_per_s), rate(report.requests_per_s)),
    );
    line("latency", latency(report));
    line("errors", errors(report));
    if report.missing_rows > 0 {
        line(
            "missing",
            format!("{} requested rows do not exist (deleted)", count(report.missing_rows)),
        );
    }
    if report.rate.is_some() {
        let (late, unstarted) = (count(report.late), count(report.unstarted));
        line("late", format!("{late} started over 1 ms late, {unstarted} due but never started"));
    }
    line("CPU", cpu(report));
    line("drive", drive(&report.nodes));
    line("cache", cache(&report.nodes));
    text
}

fn load(report: &Report) -> String {
    let kind = match report.rate {
        None => format!("closed loop of {}", report.concurrency),
        Some(per_s) => {
            let when = if report.load == "poisson" { " at random times" } else { "" };
            format!("{} requests/s{when}, at most {} at once", rate(per_s), report.concurrency)
        }
    };
    let requests = count(report.requests);
    format!("{kind}, {:.1} s, {requests} requests, seed {}", report.seconds, report.seed)
}

fn machine(report: &Report) -> String {
    let it = &report.machine;
    format!(
        "{}, {} cores, {}, Linux {} (makes the load; {} build)",
        it.cpu,
        it.cores,
        bytes(it.memory_bytes),
        it.kernel,
        it.build
    )
}

fn latency(report: &Report) -> String {
    let Some(it) = &report.latency_us else { return "no request was answered".into() };
    let points =
        [("p50", it.p50), ("p90", it.p90), ("p99", it.p99), ("p99.9", it.p99_9), ("max", it.max)];
    let points: Vec<String> =
        points.iter().map(|(name, us)| format!("{name} {}", micros(*us))).collect();
    let from = if report.rate.is_some() { "   (from the scheduled start)" } else { "" };
    format!("{}{from}", points.join("   "))
}

fn errors(report: &Report) -> String {
    if report.errors.is_empty() {
        return "none".into();
    }
    let reasons: Vec<String> = report
        .errors
        .iter()
        .map(|(reason, number)| format!("{} {reason}", count(*number)))
        .collect();
    let first = report.first_error.as_deref().unwrap_or_default();
    format!("{}   (first: {first})", reasons.join(", "))
}

fn cpu(report: &Report) -> String {
    let nodes = &report.nodes;
    let per_row = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), micros);
    let client = per_row(report.client_cpu_us_per_row);
    if nodes.one_process {
        let both = per_row(nodes.query_cpu_us_per_row);
        let request = per_row(nodes.query_cpu_us_per_request);
        return format!(
            "{both} per row, {request} per request (both tiers, 1 process); client {client} per row"
        );
    }
    let io = format!("I/O node {} per row", per_row(nodes.io_cpu_us_per_row));
    let query = match nodes.query_cpu_us_per_request {
        Some(us) => format!(
            "; query node {} per row, {} per request",
            per_row(nodes.query_cpu_us_per_row),
            micros(us)
        ),
        None => String::new(),
    };
    format!("{io}{query}; client {client} per row")
}

fn drive(nodes: &Nodes) -> String {
    match nodes.drive_reads_per_row.zip(nodes.drive_bytes_per_row) {
        Some((reads, read_bytes)) => format!(
            "{reads:.2} reads, {read_bytes:.0} bytes per row ({} rows served by I/O nodes)",
            count(nodes.io_rows)
        ),
        None => "no row was served by I/O nodes".into(),
    }
}

fn cache(nodes: &Nodes) -> String {
    let tier = match nodes.ram_tier_bytes {
        Some(0) => "RAM tier off".into(),
        Some(size) => format!("RAM tier {}", bytes(size)),
        None => "RAM tier".into(),
    };
    let mut cold = Vec::new();
    if nodes.table_rows > 0 {
        let rows = count(nodes.table_rows);
        cold.push(format!(
            "{rows} rows from the table itself, not filled yet: run `bireme warm` first"
        ));
    }
    if nodes.fallback_rows > 0 {
        let rows = count(nodes.fallback_rows);
        cold.push(format!(
            "{rows} rows from the table by the query node: their I/O node could not answer"
        ));
    }
    if cold.is_empty() {
        cold.push("all rows from the cache".into());
    }
    let cold = cold.join("; ");
    format!("{tier}: {} sector hits in the run; {cold}", count(nodes.ram_hits))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::counters::Counters;
    use crate::bench::machine::Machine;

    #[test]
    fn each_figure_has_its_line() {
        let report = Report {
            workload: "fetch",
            table: "words".into(),
            branch: String::new(),
            version: 3,
            request: serde_json::json!({"rows": 500}),
            load: "fixed_rate",
            concurrency: 1024,
            rate: Some(100.0),
            seed: 1,
            seconds: 10.0,
            requests: 1000,
            rows: 500_000,
            missing_rows: 2,
            rows_per_s: 50_000.0,
            requests_per_s: 100.0,
            latency_us: None,
            errors: BTreeMap::from([("OVERLOADED", 7)]),
            first_error: Some("too many".into()),
            late: 5,
            unstarted: 0,
            nodes: Nodes::new(
                &Counters { io_rows: 10, drive_reads: 10, ..Default::default() },
                1,
                1,
                Some(0),
            ),
            client_cpu_us_per_row: Some(1.5),
            queues: Vec::new(),
            machine: Machine::default(),
        };
        let text = report_text(&report);
        for line in [
            "rows/s     50,000   requests/s 100",
            "errors     7 OVERLOADED   (first: too many)",
            "late       5 started over 1 ms late, 0 due but never started",
            "drive      1.00 reads, 0 bytes per row (10 rows served by I/O nodes)",
            "cache      RAM tier off: 0 sector hits in the run; all rows from the cache",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        let run = Counters { table_rows: 5, fallback_rows: 1234, ..Default::default() };
        let said = cache(&Nodes::new(&run, 1, 1, None));
        assert!(said.contains("5 rows from the table itself, not filled yet"), "{said}");
        assert!(said.contains("; 1,234 rows from the table by the query node"), "{said}");
    }
}
