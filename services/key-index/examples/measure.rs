//! Measures the key index: building, loading, merging and looking up. Look-ups are compared with their limit, random
//! reads of as many cache lines.
//!
//! ```text
//! cargo run --release -p key-index --example measure -- [MILLION_KEYS=10] [ROUNDS=5] [ROWS_A_KEY=1]
//! ```
//!
//! Rates and times come from the CPU time of one core. All of them but the rate of hashing are printed for each round,
//! to show their spread. Measurements of the limit and of the look-ups alternate.

use std::hint::black_box;
use std::sync::Arc;

use key_index::{DataFile, Found, Key, KeyHasher, KeyHashes, KeyType, Pages, Run, RunSet};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const SEED: u64 = 0x5eed;

/// The number of look-ups that are timed for one figure.
const LOOKUPS: usize = 4 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let keys = arguments.next().unwrap_or(10) * 1_000_000;
    let rounds = arguments.next().unwrap_or(5);
    let rows_a_key = arguments.next().unwrap_or(1);
    print_machine();
    let hasher = KeyHasher::new(SEED, KeyType::Integer);
    let run = build(keys, rows_a_key, rounds, &hasher);
    let bytes = run.ram_bytes() as f64 / keys as f64;
    println!("memory                      {bytes:.4} B per row, {} spilled", run.spilled_entries());
    load(&run, rounds);
    merge(&run, rounds);
    let set = RunSet::new([Arc::new(run)], [], &files(keys)).expect("runs of one table");
    look_up(&set, keys / rows_a_key, rounds, &hasher);
}

fn print_machine() {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{model}, {cpus} CPUs, load {}", read("/proc/loadavg").trim());
}

/// Returns the data files for `keys` rows, with at most a million rows each.
fn files(keys: u64) -> Vec<DataFile> {
    let file = |number| {
        let rows = (keys - u64::from(number) * 1_000_000).min(1_000_000) as u32;
        DataFile { path: format!("data/{number:032x}.lance"), fragment: number, rows }
    };
    (0..keys.div_ceil(1_000_000) as u32).map(file).collect()
}

fn key(number: u64, hasher: &KeyHasher) -> u64 {
    hasher.hash(Key::Unsigned(number)).expect("an integer")
}

/// Prints the median of the rounds' figures, then all of them.
fn print(what: &str, unit: &str, mut figures: Vec<f64>) {
    let texts: Vec<String> = figures.iter().map(|figure| format!("{figure:.2}")).collect();
    figures.sort_by(f64::total_cmp);
    let median = figures[figures.len() / 2];
    println!("{what:<27} {median:8.2} {unit:<18} ({})", texts.join(" "));
}

/// Returns the CPU time that `work` takes. The elapsed time would depend on what else the machine does.
fn seconds(work: impl FnOnce()) -> f64 {
    let start = process::Usage::now().cpu_us;
    work();
    (process::Usage::now().cpu_us - start) as f64 / 1e6
}

fn build(keys: u64, rows_a_key: u64, rounds: u64, hasher: &KeyHasher) -> Run {
    let mut hashes = KeyHashes::with_capacity(keys as usize);
    let took =
        seconds(|| (0..keys).for_each(|row| hashes.push(Some(key(row / rows_a_key, hasher)))));
    print("hashing integers", "M keys/s", vec![keys as f64 / took / 1e6]);
    let mut run = None;
    let rates = (0..rounds).map(|_| {
        run = None;
        let took = seconds(|| {
            run = Run::build(SEED, KeyType::Integer, files(keys), &hashes).ok();
        });
        keys as f64 / took / 1e6
    });
    let rates = rates.collect();
    print("building", "M keys/s", rates);
    run.expect("a run")
}

fn load(run: &Run, rounds: u64) {
    let bytes = run.to_bytes();
    let times = (0..rounds).map(|_| {
        let mut loaded = None;
        let took = seconds(|| loaded = Run::from_bytes(&bytes).ok());
        assert_eq!(loaded.map(|run| run.entries()), Some(run.entries()));
        took
    });
    print("loading", "s", times.collect());
}

fn merge(run: &Run, rounds: u64) {
    let rates = (0..rounds.min(3)).map(|_| {
        let took = seconds(|| {
            black_box(Run::merge(&[run], |file| file.fragment.is_multiple_of(2)).expect("one run"));
        });
        run.entries() as f64 / took / 1e6
    });
    print("merging (half is dropped)", "M keys read/s", rates.collect());
}

fn look_up(set: &RunSet, keys: u64, rounds: u64, hasher: &KeyHasher) {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut wanted = |from| -> Vec<u64> {
        (0..LOOKUPS).map(|_| key(from + rng.random_range(0..keys), hasher)).collect()
    };
    let (present, missing) = (wanted(0), wanted(keys));
    let lines = Lines::new(set.runs().map(|run| run.ram_bytes()).sum());
    let mut figures = [const { Vec::new() }; 10];
    let mut candidates = 0;
    for _ in 0..rounds {
        let took = [
            lines.batched(&present, 64),
            batched(set, &present, 64, &mut candidates),
            batched(set, &missing, 64, &mut candidates),
            lines.batched(&present, 16),
            batched(set, &present, 16, &mut candidates),
            lines.touched(&present, 64),
            lines.batched(&present, 1),
            batched(set, &present, 1, &mut candidates),
            batched(set, &missing, 1, &mut candidates),
        ];
        for (figures, took) in figures.iter_mut().zip(took) {
            figures.push(LOOKUPS as f64 / took / 1e6);
        }
    }
    batched(set, &missing, 64, &mut candidates);
    println!("candidates of missing keys  {:.6} per key", candidates as f64 / LOOKUPS as f64);
    let names = [
        "64 lines, prefetched",
        "64 present keys",
        "64 missing keys",
        "16 lines, prefetched",
        "16 present keys",
        "64 lines, read twice",
        "1 line",
        "1 present key",
        "1 missing key",
    ];
    for (name, figures) in names.into_iter().zip(figures) {
        print(name, "M/s", figures);
    }
}

fn batched(set: &RunSet, hashes: &[u64], size: usize, candidates: &mut usize) -> f64 {
    let mut found = Found::default();
    *candidates = 0;
    seconds(|| {
        for batch in hashes.chunks(size) {
            set.lookup(batch, &Pages::default(), 1, |_| true, &mut found);
            *candidates += found.rows().len();
            // Use the answer to each single look-up before the next one, as a caller does that waits for it. The CPU
            // may still begin the next look-up earlier.
            if size == 1 {
                black_box(&found);
            }
        }
    })
}

/// A line of memory.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// As much memory as the index takes. Random reads of its lines are the limit that look-ups are compared with.
struct Lines(Vec<Line>);

impl Lines {
    fn new(bytes: usize) -> Self {
        let mut lines = Vec::with_capacity(bytes / 64);
        process::prefer_huge_pages(lines.spare_capacity_mut());
        let mut rng = SmallRng::seed_from_u64(2);
        lines.resize_with(bytes / 64, || Line(rng.random()));
        lines.shuffle(&mut rng);
        Self(lines)
    }

    fn line(&self, hash: u64) -> &Line {
        &self.0[((u128::from(hash) * self.0.len() as u128) >> 64) as usize]
    }

    /// Reads a line per hash; a batch's lines are prefetched. Each batch's lines depend on what the batch before has
    /// read, so that batches do not overlap.
    fn batched(&self, hashes: &[u64], size: usize) -> f64 {
        let mut sum = 0u64;
        seconds(|| {
            for batch in hashes.chunks(size) {
                let last = sum & 1;
                batch.iter().for_each(|hash| {
                    process::prefetch(std::slice::from_ref(self.line(hash ^ last)));
                });
                for hash in batch {
                    sum = sum.wrapping_add(self.line(hash ^ last).0.iter().fold(0, |a, b| a ^ b));
                }
            }
            black_box(sum);
        })
    }

    /// Reads the first word of each of a batch's lines in place of prefetching.
    fn touched(&self, hashes: &[u64], size: usize) -> f64 {
        let mut sum = 0u64;
        seconds(|| {
            for batch in hashes.chunks(size) {
                let last = sum & 1;
                let touched = batch.iter().fold(0, |sum, hash| sum ^ self.line(hash ^ last).0[0]);
                sum = sum.wrapping_add(black_box(touched));
                for hash in batch {
                    sum = sum.wrapping_add(self.line(hash ^ last).0.iter().fold(0, |a, b| a ^ b));
                }
            }
            black_box(sum);
        })
    }
}
