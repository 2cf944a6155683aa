//! `bireme top`: shows the nodes' rates and latencies, updated at an interval.

use std::time::Duration;

use clap::Args;
use client::query::{QueryClient, StatusResponse};
use console::Term;
use serde_json::{Value, json};
use telemetry::{Buckets, Scale};
use tokio::time::{Instant, MissedTickBehavior};
use wire::fetch::Histogram;
use wire::query::{Calls, IoNode};

use super::status::state_of;
use crate::arguments::{Connection, parse_at_least_1, parse_duration};
use crate::error::Result;
use crate::output::{Align, Output, TextTable, bytes, micros, rate};

const EXAMPLES: &str = "\
Examples:
  bireme top
  bireme top --interval 5s --count 12 --json >> minute.jsonl

Latencies are those of the interval's requests, accurate to 5 %. The first line
comes after the first interval. The command ends after --count intervals, with
Ctrl-C, or when nothing reads its output any more (`| head`). Only one query
node is asked: requests to others show only in the I/O nodes' numbers.";

/// Arguments of `bireme top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// The interval between samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// The number of intervals to show [default: until it is interrupted]
    #[arg(long, value_name = "N", value_parser = parse_at_least_1)]
    count: Option<u32>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the rates of each interval.
pub async fn run(args: TopArgs, out: &mut Output) -> Result<()> {
    let client = args.connection.open().await?;
    let term = Term::stdout();
    let mut shown = 0;
    let mut before = sample(&client).await?;
    let mut ticks = tokio::time::interval_at(Instant::now() + args.interval, args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..args.count.unwrap_or(u32::MAX) {
        ticks.tick().await;
        let now = sample(&client).await?;
        let span = Span { seconds: (now.at - before.at).as_secs_f64(), before: &before.status };
        if out.json() {
            out.line(format_args!("{}", span.to_json(&now.status)))?;
        } else {
            let text = span.to_text(&now.status, out.width()) + "\n";
            if term.is_term() {
                // The new lines replace those of the last interval.
                let _ = term.clear_last_lines(shown);
                shown = text.lines().count();
            }
            out.bytes(text.as_bytes())?;
        }
        out.flush()?;
        before = now;
    }
    Ok(())
}

/// The nodes' status at one moment.
struct StatusSample {
    at: Instant,
    status: StatusResponse,
}

async fn sample(client: &QueryClient) -> Result<StatusSample> {
    let status = client.clone().status().await?;
    Ok(StatusSample { at: Instant::now(), status })
}

/// The interval between two samples.
struct Span<'a> {
    seconds: f64,
    before: &'a StatusResponse,
}

/// The rate of requests and their latencies in microseconds, which are `None` without requests.
struct Times {
    per_s: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

impl Span<'_> {
    fn per_s(&self, now: u64, before: u64) -> f64 {
        // A restarted node counts from 0 again. If a counter has decreased, its whole value is the increase since the
        // restart.
        now.checked_sub(before).unwrap_or(now) as f64 / self.seconds
    }

    fn times(&self, now: Option<&Histogram>, before: Option<&Histogram>) -> Times {
        let read = |sent: Option<&Histogram>| {
            sent.map_or_else(
                || Buckets::none(Scale::Seconds),
                |it| Buckets::from_wire(Scale::Seconds, it),
            )
        };
        let times = read(now).since(&read(before));
        let us = |quantile| (times.count() > 0).then(|| times.quantile(quantile) * 1e6);
        let per_s = times.count() as f64 / self.seconds;
        Times { per_s, p50_us: us(0.5), p99_us: us(0.99) }
    }

    fn calls(&self, now: &Calls) -> Times {
        let before = self.before.calls.iter().find(|it| it.rpc == now.rpc);
        self.times(now.seconds.as_ref(), before.and_then(|it| it.seconds.as_ref()))
    }

    fn node(&self, now: &IoNode) -> NodeRates {
        let none = IoNode::default();
        let same = |it: &&IoNode| it.endpoint == now.endpoint && it.name == now.name;
        let before = self.before.io_nodes.iter().find(same).unwrap_or(&none);
        let per_s = |of: fn(&IoNode) -> u64| self.per_s(of(now), of(before));
        NodeRates {
            rows: per_s(|it| it.rows),
            drive_reads: per_s(|it| it.drive_reads),
            drive_bytes: per_s(|it| it.drive_read_bytes),
            ram_hits: per_s(|it| it.ram_hits),
            table_rows: per_s(|it| it.table_rows),
            cores: per_s(|it| it.cpu_us) / 1e6,
            batches: self.times(now.batch_seconds.as_ref(), before.batch_seconds.as_ref()),
            reads: self.times(now.read_seconds.as_ref(), before.read_seconds.as_ref()),
        }
    }

    fn to_text(&self, now: &StatusResponse, width: usize) -> String {
        let mut text = format!(
            "query node {}: {} errors/s, {} waiting, {:.2} cores, {}; {} rows/s from the tables\n\n",
            now.node,
            rate(self.per_s(now.errors, self.before.errors)),
            now.search_queue,
            self.per_s(now.cpu_us, self.before.cpu_us) / 1e6,
            bytes(now.resident_bytes),
            rate(self.per_s(now.fallback_rows, self.before.fallback_rows)),
        );
        let mut calls = TextTable::new([
            ("rpc", Align::Left),
            ("requests/s", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
        ]);
        for call in &now.calls {
            let Times { per_s, p50_us, p99_us } = self.calls(call);
            calls.row(vec![call.rpc.clone(), rate(per_s), took(p50_us), took(p99_us)]);
        }
        text += &calls.text(width);
        let mut nodes = TextTable::new([
            ("I/O node", Align::Left),
            ("state", Align::Left),
            ("rows/s", Align::Right),
            ("batch p50", Align::Right),
            ("p99", Align::Right),
            ("reads/s", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("bytes/s", Align::Right),
            ("RAM hits/s", Align::Right),
            ("from table/s", Align::Right),
            ("in flight", Align::Right),
            ("queued", Align::Right),
            ("cores", Align::Right),
            ("cache used", Align::Right),
        ]);
        for node in &now.io_nodes {
            let rates = self.node(node);
            nodes.row(vec![
                if node.name.is_empty() { node.endpoint.clone() } else { node.name.clone() },
                if node.reachable { state_of(node.state()).into() } else { "unreachable".into() },
                rate(rates.rows),
                took(rates.batches.p50_us),
                took(rates.batches.p99_us),
                rate(rates.drive_reads),
                took(rates.reads.p50_us),
                took(rates.reads.p99_us),
                bytes(rates.drive_bytes as u64),
                rate(rates.ram_hits),
                rate(rates.table_rows),
                node.in_flight.to_string(),
                node.queued.to_string(),
                format!("{:.2}", rates.cores),
                bytes(node.used_bytes),
            ]);
        }
        text + "\n" + &nodes.text(width)
    }

    fn to_json(&self, now: &StatusResponse) -> Value {
        let times = |times: &Times| json!({"per_s": times.per_s, "p50_us": times.p50_us, "p99_us": times.p99_us});
        let calls = now.calls.iter().map(|call| (call.rpc.clone(), times(&self.calls(call))));
        let io_node = |node: &IoNode| {
            let rates = self.node(node);
            json!({
                "name": node.name,
                "endpoint": node.endpoint,
                "state": state_of(node.state()),
                "reachable": node.reachable,
                "rows_per_s": rates.rows,
                "drive_reads_per_s": rates.drive_reads,
                "drive_bytes_per_s": rates.drive_bytes,
                "ram_hits_per_s": rates.ram_hits,
                "table_rows_per_s": rates.table_rows,
                "cores": rates.cores,
                "batches": times(&rates.batches),
                "reads": times(&rates.reads),
                "in_flight": node.in_flight,
                "queued": node.queued,
                "used_bytes": node.used_bytes,
            })
        };
        json!({
            "seconds": self.seconds,
            "node": now.node,
            "errors_per_s": self.per_s(now.errors, self.before.errors),
            "search_queue": now.search_queue,
            "cores": self.per_s(now.cpu_us, self.before.cpu_us) / 1e6,
            "fallback_rows_per_s": self.per_s(now.fallback_rows, self.before.fallback_rows),
            "calls": calls.collect::<serde_json::Map<_, _>>(),
            "io_nodes": now.io_nodes.iter().map(io_node).collect::<Vec<_>>(),
        })
    }
}

fn took(us: Option<f64>) -> String {
    us.map_or_else(|| "-".into(), micros)
}

/// The rates of an I/O node.
struct NodeRates {
    rows: f64,
    drive_reads: f64,
    drive_bytes: f64,
    ram_hits: f64,
    table_rows: f64,
    /// CPU seconds per second.
    cores: f64,
    batches: Times,
    reads: Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(rows: u64, milliseconds: &[u64]) -> IoNode {
        let times = telemetry::Histogram::new(Scale::Seconds);
        milliseconds.iter().for_each(|&ms| times.record_time(Duration::from_millis(ms)));
        let batch_seconds = Some((&times.buckets()).into());
        IoNode { name: "io-0".into(), reachable: true, rows, batch_seconds, ..Default::default() }
    }

    #[test]
    fn rates_are_of_the_interval_or_since_a_nodes_restart() {
        let before = StatusResponse { io_nodes: vec![node(100, &[1, 1])], ..Default::default() };
        let span = Span { seconds: 2.0, before: &before };
        let rates = span.node(&node(300, &[1, 1, 8, 8]));
        assert_eq!((rates.rows, rates.batches.per_s), (100.0, 1.0));
        assert!((8000.0..8800.0).contains(&rates.batches.p50_us.unwrap()));
        assert!(rates.reads.p50_us.is_none());
        let restarted = span.node(&node(50, &[4]));
        assert_eq!((restarted.rows, restarted.batches.per_s), (25.0, 0.5));
        let now = StatusResponse { io_nodes: vec![node(300, &[1])], ..Default::default() };
        assert!(span.to_text(&now, 200).contains("io-0"));
        assert_eq!(span.to_json(&now)["io_nodes"][0]["rows_per_s"], 100.0);
    }
}
