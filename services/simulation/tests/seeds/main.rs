//! Simulates complete I/O nodes and their clients from one seed. Whatever fails, every answer must be right.
//!
//! The nodes run the real code ([`io_node::SteppedNode`]): cores with sessions, stages, RAM tier and rings; filler,
//! eviction, journals, scrubber and recovery. The clients are [`client::fetch`], over real HTTP/2 and gRPC. Some look
//! rows up by key, with the crates `key_index` and `key_proof`, while versions are published. Others have credentials,
//! and get what [`access`] lets them see (`callers/`). Drives ([`ring::sim`]), network, object store and clock are
//! simulated. Each run takes place on one thread, except that a node that starts reads its journals on several.
//!
//! `BIREME_SEEDS=17..18` runs seed 17, and `BIREME_TRACE=1` prints its events. `BIREME_MINUTES=10` runs new seeds for
//! that long. `BIREME_REPEATS=500` runs that many seeds twice, to check that runs are reproducible. A run is
//! reproducible if it takes less than a second of real time. After that time, a node's HTTP/2 forgets the streams that
//! it has reset, and hyper does not let servers configure this. So runs of a seed may differ on a busy machine.

mod arena;
mod callers;
mod clients;
mod dice;
mod fairness;
mod files;
mod happened;
mod hung_drive;
mod key_clients;
mod key_index;
mod keyed;
mod network;
mod node;
mod observer;
mod panics;
mod projections;
mod slow_table;
mod store;
mod strangers;
mod trace;
mod troubles;
mod truth;
mod world;

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::happened::Happened;
use crate::world::Outcome;

/// The default number of seeds. In this many runs or more, every event that `happened.rs` requires must happen.
const SEEDS: u64 = 200;

/// The default number of seeds with callers, which take longer. In this many runs or more, every event of
/// [`callers::MUST`] must happen.
const CALLER_SEEDS: u64 = 24;

/// The default number of seeds that run twice. If this many or more run, a node must drain in at least one of them.
const REPEATS: usize = 8;

/// The real time after which a node's HTTP/2 forgets a stream that it has reset: the default of `h2`.
const FORGETS_AFTER: Duration = Duration::from_secs(1);

/// The maximum number of times that a seed is run twice if its runs differ and one took at least [`FORGETS_AFTER`].
const TRIES: usize = 10;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the seeds to run, `default` of them unless others are given, and the time at which to stop.
fn seeds(default: u64) -> (Range<u64>, Option<Instant>) {
    if let Some(minutes) = variable("BIREME_MINUTES") {
        let minutes: f64 = minutes.parse().expect("BIREME_MINUTES is a number");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
        return (now.as_secs() * 1000..u64::MAX, Some(until));
    }
    let given = variable("BIREME_SEEDS").unwrap_or_else(|| default.to_string());
    let number = |text: &str| text.parse().expect("BIREME_SEEDS is like 300 or 17..18");
    let range = match given.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&given),
    };
    (range, None)
}

/// Runs a seed. All runs of a seed have the same outcome. Prints its events if the second argument is true.
type Run = fn(u64, bool) -> Outcome;

/// Runs a seed. Returns the seed as the error if it fails.
fn try_run(seed: u64, run: Run) -> Result<Outcome, u64> {
    panics::note();
    panics::forget();
    let is_shown = variable("BIREME_TRACE").is_some();
    catch_unwind(AssertUnwindSafe(|| run(seed, is_shown))).map_err(|_| {
        eprintln!("\nseed {seed} fails; it repeats with\n    make seed SEED={seed}\n");
        seed
    })
}

/// Runs seeds, `default` of them unless others are given. If at least `default` have run, each event of `must` must
/// have happened.
fn run_seeds(run: Run, default: u64, must: &[&'static str]) {
    let (range, until) = seeds(default);
    let began = Instant::now();
    let next = Mutex::new(range.clone());
    let (failed, has_failed) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let total = Mutex::new((0, 0, 0, 0, Happened::default()));
    let work = || {
        // A run with a time limit stops at the first seed that fails.
        let goes_on = || match until {
            Some(until) => Instant::now() < until && !has_failed.load(Ordering::Relaxed),
            None => true,
        };
        while goes_on() {
            let Some(seed) = next.lock().unwrap().next() else { break };
            match try_run(seed, run) {
                Ok(outcome) => {
                    let mut total = total.lock().unwrap();
                    total.0 += 1;
                    total.1 += outcome.answers.0;
                    total.2 += outcome.answers.1;
                    total.3 += outcome.took_ms;
                    total.4.add(&outcome.happened);
                }
                Err(seed) => {
                    has_failed.store(true, Ordering::Relaxed);
                    failed.lock().unwrap().push(seed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (runs, answers, rows, ms, happened) = total.into_inner().unwrap();
    let took = began.elapsed();
    println!(
        "{runs} seeds from {}: {answers} answers, {rows} rows, {} simulated seconds in {took:?}",
        range.start,
        ms / 1000
    );
    println!("{happened}");
    let failed = failed.lock().unwrap();
    assert!(failed.is_empty(), "seeds fail: {failed:?}");
    let lacks = happened.lacks(must);
    assert!(runs < default || lacks.is_empty(), "never happened: {lacks:?}");
}

#[test]
fn whatever_goes_wrong_every_answer_is_right() {
    run_seeds(world::run, SEEDS, &happened::MUST);
}

#[test]
fn whatever_goes_wrong_no_caller_gets_a_row_of_a_table_that_it_may_not_see() {
    run_seeds(callers::run, CALLER_SEEDS, &callers::MUST);
}

/// Runs `seed` twice, and checks that both runs have the same outcome. Tries again if a run was so slow that they may
/// differ.
fn repeated<T: Debug + PartialEq>(seed: u64, run: impl Fn() -> T) -> T {
    let timed = || {
        let began = Instant::now();
        (run(), began.elapsed())
    };
    for _ in 0..TRIES {
        let ((first, first_took), (second, second_took)) = (timed(), timed());
        if first_took.max(second_took) < FORGETS_AFTER {
            assert_eq!(first, second, "the second run of seed {seed} differs");
        }
        if first == second {
            return first;
        }
        eprintln!("seed {seed} differs, but its runs took {first_took:?} and {second_took:?}");
    }
    panic!("seed {seed} differed {TRIES} times, though a run took {FORGETS_AFTER:?} each time");
}

#[test]
fn a_seed_repeats_itself() {
    let count = variable("BIREME_REPEATS").map_or(REPEATS, |it| it.parse().expect("a number"));
    let mut drained = 0;
    for seed in (1000..).take(count) {
        let run = || try_run(seed, world::run).expect("the seed passes");
        drained += repeated(seed, run).happened.count_of("drained");
    }
    assert!(count < REPEATS || drained > 0, "no node drained");
}

#[test]
fn a_seed_with_callers_repeats_itself() {
    for seed in 1000..1002 {
        repeated(seed, || try_run(seed, callers::run).expect("the seed passes"));
    }
}
