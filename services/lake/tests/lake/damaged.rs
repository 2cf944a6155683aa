//! Opens tables with damaged files, and uses them as nodes do.
//!
//! A case copies a small table, damages a few of its files ([`harm`]) and uses the copy ([`visit`]). Every use must end
//! in an answer or an error: no panic that reaches the caller, no abort, no hang, and bounded memory. An abort (stack
//! overflow, allocation failure) ends the process, so cases run in child processes with a limit on their address space
//! ([`child`]). A child that dies or stalls is replaced by one that continues after the case at fault.
//!
//! ```text
//! fuzz_damaged_tables ──► corpus: six tables, written once
//!        └─► child process: case by case, "begins N" … "ends N …" on its stdout
//!                 └─► copy ► harm ► visit
//! ```

mod child;
mod corpus;
mod harm;
mod proto;
mod visit;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use fuzz::cases;
use fuzz::rand::Rng;

use self::child::{CHILD, FOLDER, NUMBERS};

/// Number of cases in an ordinary run of the tests.
const CASES: u64 = 160;

/// A child that prints nothing for this long hangs. A case takes less than a second on an idle machine; on a busy one,
/// each use of the case's table may take up to [`visit::USE_MAX`].
const SILENCE_MAX: Duration = Duration::from_secs(240);

#[test]
fn fuzz_damaged_tables() {
    let mut folder = tempfile::tempdir().unwrap();
    // Keep the folder of a repeated case, so that a child can be started by hand in a debugger.
    folder.disable_cleanup(std::env::var_os("BIREME_FUZZ_CASE").is_some());
    corpus::write(folder.path());
    let mut seeds = Vec::new();
    cases("fuzz_damaged_tables", CASES, |rng| seeds.push(rng.random::<u64>()));
    let first = std::env::var("BIREME_FUZZ_CASE").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut remaining: Vec<(u64, u64)> = (first..).zip(seeds).collect();
    let ran = remaining.len();
    while !remaining.is_empty() {
        let mut running = ChildRun::start(folder.path(), &remaining);
        let ended = running.follow(&mut found);
        remaining.drain(..ended);
    }
    for (what, cases) in &found {
        println!("{} x {what}; cases {:?}", cases.len(), &cases[..cases.len().min(8)]);
    }
    assert!(found.is_empty(), "{} kinds of failures in {ran} cases", found.len());
}

/// A child process that runs cases.
struct ChildRun {
    child: Child,
    lines: Receiver<String>,
    stderr: std::thread::JoinHandle<Vec<String>>,
}

impl ChildRun {
    fn start(folder: &std::path::Path, remaining: &[(u64, u64)]) -> Self {
        let numbers: Vec<_> =
            remaining.iter().map(|(number, seed)| format!("{number}:{seed}")).collect();
        let list = folder.join("cases");
        std::fs::write(&list, numbers.join(" ")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([CHILD, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .env(NUMBERS, &list)
            .env("MALLOC_ARENA_MAX", "2")
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let stderr = std::thread::spawn(move || {
            let mut last: Vec<String> = Vec::new();
            for line in stderr.lines().map_while(Result::ok) {
                if last.len() == 200 {
                    last.remove(0);
                }
                last.push(line);
            }
            last
        });
        Self { child, lines, stderr }
    }

    /// Follows the child until it ends or hangs. Returns how many cases ended, including one at which the child died or
    /// hung.
    fn follow(&mut self, found: &mut BTreeMap<String, Vec<u64>>) -> usize {
        let (mut ended, mut begun) = (0, None);
        loop {
            match self.lines.recv_timeout(SILENCE_MAX) {
                Ok(line) => {
                    let mut words = line.splitn(3, ' ');
                    match (words.next(), words.next().and_then(|it| it.parse::<u64>().ok())) {
                        (Some("begins"), Some(number)) => begun = Some(number),
                        (Some("ends"), Some(number)) => {
                            ended += 1;
                            begun = None;
                            if let Some(what) = words.next() {
                                record_failure(found, what, number);
                            }
                        }
                        _ => {}
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill().unwrap();
                    let what = "hangs".to_owned();
                    record_failure(found, &what, begun.expect("a case was begun"));
                    self.child.wait().unwrap();
                    return ended + 1;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().unwrap();
                    let Some(number) = begun else {
                        assert!(
                            status.success() && ended > 0,
                            "a child ended without a case: {status}"
                        );
                        return ended;
                    };
                    let what = format!("dies ({status}): {}", self.abort_message());
                    record_failure(found, &what, number);
                    return ended + 1;
                }
            }
        }
    }

    /// Returns the last two lines on stderr that report an abort.
    fn abort_message(&mut self) -> String {
        let none = std::thread::spawn(Vec::new);
        let lines = std::mem::replace(&mut self.stderr, none).join().unwrap();
        let is_report = |line: &&String| {
            ["memory allocation", "overflowed its stack", "panicked at", "panic in a", "abort"]
                .iter()
                .any(|it| line.contains(it))
        };
        let last: Vec<_> = lines.iter().filter(is_report).rev().take(2).cloned().collect();
        last.join(" | ")
    }
}

/// Records a failure, and prints it, because a long run may be stopped before its end.
fn record_failure(found: &mut BTreeMap<String, Vec<u64>>, what: &str, number: u64) {
    println!("case {number}: {what}");
    found.entry(failure_kind(what)).or_default().push(number);
}

/// Returns the failure `what` without the numbers that vary from case to case, so that equal failures are counted
/// together.
fn failure_kind(what: &str) -> String {
    // Panics are grouped by their location.
    let what = what.split_once(".rs:").filter(|_| what.starts_with("panics")).map_or_else(
        || what.to_owned(),
        |(file, rest)| {
            let line = rest.split([':', ' ']).next().unwrap_or_default();
            let why: String =
                rest.splitn(3, ':').last().unwrap_or_default().chars().take(50).collect();
            format!("{file}.rs:{line}:{}", why.replace(|c: char| c.is_ascii_digit(), ""))
        },
    );
    match what.split_once("allocation of ") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}allocation of{after}")
        }
        None => what,
    }
}
