//! `bireme bench limits`: how fast this machine copies, compares and streams rows of one size without Bireme's read
//! path.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;
use distance::{Metric, Query};
use process::Usage;
use rand::Rng;
use rand::rngs::StdRng;
use serde::Serialize;
use serde_json::json;

use super::bare_stream::bare_stream;
use super::row_memory::{BATCH_ROWS, Element, RowMemory};
use crate::bench::{positive, random};
use crate::error::{CliError, Result};
use crate::output::{Output, bytes, rate};

const EXAMPLES: &str = "\
Examples:
  bireme bench limits
  bireme bench limits --rows 100000 --dimension 128 --json

Rows are vectors of f32 in memory. One thread per core copies rows at random
positions, then computes their distances from a vector, as I/O nodes do. Then as
many threads send rows over HTTP/2 to as many others, over loopback, without
copying them first.";

/// Arguments of `bireme bench limits`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LimitsArgs {
    /// Rows in memory
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(500..))]
    rows: u32,
    /// The elements of a row
    #[arg(long, value_name = "N", default_value_t = 768, value_parser = clap::value_parser!(u32).range(1..=65536))]
    dimension: u32,
    /// The duration of each of the three measurements
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0, value_parser = positive)]
    seconds: f64,
}

/// A rate, and its cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limit {
    /// Rows per second, by all threads.
    pub rows_per_s: f64,
    /// CPU of this process for each row, in microseconds.
    pub cpu_us_per_row: f64,
}

/// Measures and prints the limits.
pub fn run(args: &LimitsArgs, out: &mut Output) -> Result<()> {
    let memory = row_memory(args, process::memory_bytes())?;
    let time = Duration::from_secs_f64(args.seconds);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let copies = on_threads(threads, time, || copies(&memory))?;
    let distances = on_threads(threads, time, || distances(&memory))?;
    let stream = measured(|| bare_stream(&memory, threads, time))?;
    if out.json() {
        return out.document(&json!({
            "workload": "limits",
            "rows": args.rows,
            "row_bytes": memory.row_bytes(),
            "threads": threads,
            "copies": copies,
            "distances": distances,
            "stream": stream,
        }));
    }
    let size = bytes(memory.row_bytes() as u64);
    out.line(format_args!("rows of {size} in memory, {threads} threads:"))?;
    for (what, limit) in [
        ("copied", copies),
        ("compared with a vector", distances),
        ("sent over HTTP/2 and received", stream),
    ] {
        let (per_s, cpu) = (rate(limit.rows_per_s), limit.cpu_us_per_row);
        out.line(format_args!("  {what}: {per_s} rows/s, {cpu:.2} µs of CPU a row"))?;
    }
    Ok(())
}

/// Makes the rows, unless they take more than half of this machine's memory, `memory_bytes`.
fn row_memory(args: &LimitsArgs, memory_bytes: Option<u64>) -> Result<RowMemory> {
    let wanted = u64::from(args.rows) * u64::from(args.dimension) * size_of::<Element>() as u64;
    match memory_bytes.filter(|there| wanted > there / 2) {
        None => Ok(RowMemory::new(args.rows as usize, args.dimension as usize)),
        Some(there) => Err(CliError::usage(format!(
            "{} rows of {} elements take {}, more than half of this machine's memory ({}); give fewer --rows",
            args.rows,
            args.dimension,
            bytes(wanted),
            bytes(there),
        ))),
    }
}

/// Returns a function that copies the rows of a batch one behind the other.
fn copies(memory: &RowMemory) -> impl FnMut(&mut StdRng) {
    let mut batch = Vec::with_capacity(BATCH_ROWS * memory.row_bytes());
    move |random| {
        batch.clear();
        (0..BATCH_ROWS).for_each(|_| batch.extend_from_slice(memory.row(random)));
        black_box(&batch);
    }
}

/// Returns a function that computes the distances of the rows of a batch.
fn distances(memory: &RowMemory) -> impl FnMut(&mut StdRng) {
    let mut values = random(0, 0);
    let values = (0..memory.row_bytes() / size_of::<Element>()).map(|_| values.random()).collect();
    let query = Query::new(values, Metric::L2);
    move |random| {
        for _ in 0..BATCH_ROWS {
            let (row, _) = memory.row(random).as_chunks();
            black_box(query.to(row, |element: Element| f32::from_le_bytes(element)));
        }
    }
}

/// Runs work on `threads` threads for `time`, and measures it. `work` returns the function that a thread calls for each
/// batch.
fn on_threads<W: FnMut(&mut StdRng)>(
    threads: usize,
    time: Duration,
    work: impl Fn() -> W + Sync,
) -> Result<Limit> {
    let on_thread = |thread: usize| {
        let (mut work, mut random) = (work(), random(1, thread as u64));
        let began = Instant::now();
        let mut rows = 0;
        while began.elapsed() < time {
            work(&mut random);
            rows += BATCH_ROWS as u64;
        }
        rows
    };
    let on_thread = &on_thread;
    measured(|| {
        Ok(std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || on_thread(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
        }))
    })
}

/// Measures `work`, which returns its number of rows.
fn measured(work: impl FnOnce() -> Result<u64>) -> Result<Limit> {
    let (began, before) = (Instant::now(), Usage::now());
    let rows = work()?.max(1) as f64;
    let cpu_us = Usage::now().cpu_us - before.cpu_us;
    Ok(Limit {
        rows_per_s: rows / began.elapsed().as_secs_f64(),
        cpu_us_per_row: cpu_us as f64 / rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_are_refused_with_their_size() {
        let args = LimitsArgs { rows: 1_000_000, dimension: 768, seconds: 1.0 };
        let refused =
            row_memory(&args, Some(4 << 30)).err().map(|error| error.message().to_owned());
        let expected = "1000000 rows of 768 elements take 2.9 GiB, more than half of this machine's memory (4.0 GiB); \
            give fewer --rows";
        assert_eq!(refused.as_deref(), Some(expected));
        let few = LimitsArgs { rows: 500, ..args };
        assert_eq!(row_memory(&few, Some(4 << 30)).unwrap().row_bytes(), 3_072);
    }
}
