//! `bireme bench eviction`: the hit ratio of a full drive, with the eviction policy of I/O nodes and with other
//! policies.

use clap::Args;
use io_node::simulate::{Capacity, Outcome, bireme, fifo, lru, optimum};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::bench::at_least_1;
use crate::error::Result;
use crate::output::{Align, Output, TextTable, bytes, count};

const EXAMPLES: &str = "\
Examples:
  bireme bench eviction
  bireme bench eviction --segments 400 --chunks 60000 --reads 2000000 --json

No drive is read or written: the node's own books run over traces of chunk
reads. Zipf traces read the chunk of rank r in proportion to 1/r^a; the
scan reads new chunks beside them, each once; the loop reads more chunks than
fit, in the same order again and again; the shifting trace has five hot sets,
one after another. The optimum knows what will be read. LRU and FIFO evict
single extents, which a log of segments can't. `written_ratio`, in parentheses,
is bytes written for each byte filled.";

/// Arguments of `bireme bench eviction`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct EvictionArgs {
    /// Reads of chunks in each trace
    #[arg(long, value_name = "N", default_value_t = 400_000, value_parser = at_least_1)]
    reads: usize,
    /// Chunks of the table
    #[arg(long, value_name = "N", default_value_t = 6000, value_parser = clap::value_parser!(u32).range(10..))]
    chunks: u32,
    /// Segments of the drive
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    segments: u32,
    /// Extents that fit a segment
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    extents_per_segment: u32,
    /// The seed of the traces
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

type Policy = (&'static str, fn(&[u32], Capacity) -> Result<Outcome>);

const POLICIES: [Policy; 4] = [
    ("optimum", |trace, capacity| Ok(optimum(trace, capacity))),
    ("bireme", |trace, capacity| Ok(bireme(trace, capacity)?)),
    ("LRU", |trace, capacity| Ok(lru(trace, capacity))),
    ("FIFO", |trace, capacity| Ok(fifo(trace, capacity))),
];

/// Runs all policies over all traces.
pub fn run(args: &EvictionArgs, out: &mut Output) -> Result<()> {
    let capacity =
        Capacity { segments: args.segments, extents_per_segment: args.extents_per_segment };
    let mut outcomes = Vec::new();
    for (name, trace) in traces(args) {
        let each: Result<Vec<_>> =
            POLICIES.iter().map(|(_, policy)| policy(&trace, capacity)).collect();
        outcomes.push((name, each?));
    }
    if out.json() {
        return out.document(&to_json(args, &outcomes));
    }
    out.line(format_args!(
        "{} reads a trace, {} chunks, room for {} ({}); hit ratio, and bytes written for each filled\n",
        count(args.reads as u64),
        count(args.chunks.into()),
        count(capacity.extents() as u64),
        bytes(capacity.bytes()),
    ))?;
    let mut headers = vec![("trace", Align::Left)];
    headers.extend(POLICIES.map(|(name, _)| (name, Align::Right)));
    let mut text = TextTable::new(headers);
    for (name, outcomes) in &outcomes {
        let mut row = vec![(*name).to_owned()];
        row.extend(outcomes.iter().map(|it| match it.written_ratio > 1.0 {
            true => format!("{:.3} ({:.2})", it.hit_ratio, it.written_ratio),
            false => format!("{:.3}", it.hit_ratio),
        }));
        text.row(row);
    }
    out.bytes(text.text(out.width()).as_bytes())
}

fn to_json(args: &EvictionArgs, outcomes: &[(&str, Vec<Outcome>)]) -> Value {
    let policy = |((name, _), outcome): (&Policy, &Outcome)| {
        json!({
            "policy": name,
            "hit_ratio": outcome.hit_ratio,
            "written_ratio": outcome.written_ratio,
        })
    };
    let trace = |(name, outcomes): &(&str, Vec<Outcome>)| {
        let policies: Vec<_> = POLICIES.iter().zip(outcomes).map(policy).collect();
        json!({"trace": name, "policies": policies})
    };
    json!({
        "workload": "eviction",
        "reads": args.reads,
        "chunks": args.chunks,
        "segments": args.segments,
        "extents_per_segment": args.extents_per_segment,
        "seed": args.seed,
        "traces": outcomes.iter().map(trace).collect::<Vec<_>>(),
    })
}

fn traces(args: &EvictionArgs) -> Vec<(&'static str, Vec<u32>)> {
    let (chunks, reads) = (args.chunks, args.reads);
    let fitting = args.segments * args.extents_per_segment;
    let random = &mut StdRng::seed_from_u64(args.seed);
    let mut scanned = chunks;
    let with_scan =
        zipf(random, chunks, 0.9, reads).into_iter().enumerate().flat_map(|(at, chunk)| {
            // During a tenth of the trace, each read is followed by a scan's read of a new chunk.
            let scans = at % 10_000 < 1000;
            scanned += u32::from(scans);
            [Some(chunk), scans.then_some(scanned)].into_iter().flatten()
        });
    let with_scan = with_scan.collect();
    let shifting = (0..5).flat_map(|_| zipf(random, chunks, 1.0, reads / 5)).collect();
    vec![
        ("zipf 1.0", zipf(random, chunks, 1.0, reads)),
        ("zipf 0.7", zipf(random, chunks, 0.7, reads)),
        ("zipf 0.9 and scans", with_scan),
        ("five hot sets", shifting),
        ("loop", (0..reads as u32).map(|at| at % (fitting + fitting / 2).max(1)).collect()),
    ]
}

/// Returns `reads` chunks that follow a Zipf distribution. Which chunk has which rank is random.
fn zipf(random: &mut StdRng, chunks: u32, exponent: f64, reads: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let weights = (1..=chunks).map(|rank| {
        sum += f64::from(rank).powf(-exponent);
        sum
    });
    let sums: Vec<f64> = weights.collect();
    let mut names: Vec<u32> = (0..chunks).collect();
    names.shuffle(random);
    let draw = |_| {
        let at = random.random_range(0.0..sum);
        names[sums.partition_point(|&up_to| up_to <= at).min(names.len() - 1)]
    };
    (0..reads).map(draw).collect()
}
