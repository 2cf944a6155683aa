//! Attacks on nodes as they are deployed: processes on loopback, under a memory limit, with a caller who behaves.
//!
//! Each row of the table in `docs/security.md` has one or more tests. A test asserts counts and bounds: the process is
//! alive, its memory is within its setting, nothing was read that was not configured, good callers were answered.
//! Response times under attack are measured by `make bench PIECES=attacks`, not here.
//!
//! | file | what is attacked |
//! |---|---|
//! | `places.rs` | which tables and files a node can be made to read |
//! | `questions.rs` | what a filter, words or a request may cost |
//! | `connections.rs` | sockets, handshakes, streams |
//! | `messages.rs` | messages that do not end, answers that nobody reads, deadlines |
//! | `plain_http.rs` | the same over HTTP/1.1, JSON bodies, and requests of web pages |
//! | `strangers.rs` | who may call an I/O node, and whose rows a query node accepts |
//! | `policy.rs` | what a query node's access policy keeps from callers without a right to it |
//! | `files.rs` | damaged tables; the files that a node creates; its log |
//! | `calls.rs` | calls whose messages are sent by hand |
//! | `cluster.rs` | both tiers as processes, and checks of their health |
//! | `good_caller.rs` | a caller who behaves while a node is attacked |
//! | `impostor.rs` | answers in place of an I/O node, with forged rows |
//! | `growth.rs` | makes an attack larger until it is refused |
//! | `report.rs` | what a test found, for the table |
//!
//! `make attacks` runs them against the development and the release build, because stack frames of the development
//! build are up to six times as large. `BIREME_ATTACKED` names the binary, if it is not the one that was built with the
//! tests.
//!
//! Every load is bounded in count and time, and goes to 127.0.0.1 alone.

mod calls;
mod cluster;
mod connections;
mod files;
mod good_caller;
mod growth;
mod impostor;
mod messages;
mod places;
mod plain_http;
mod policy;
mod questions;
mod report;
mod strangers;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Returns the path of the binary that is attacked.
fn binary() -> PathBuf {
    let named = std::env::var_os("BIREME_ATTACKED");
    named.map_or_else(|| env!("CARGO_BIN_EXE_bireme").into(), PathBuf::from)
}

/// Creates a folder on a real filesystem (`/tmp` may be a tmpfs, which has no O_DIRECT).
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a command of the binary to its end and returns what it printed. It must succeed.
fn run(arguments: &[&str]) -> String {
    let output = std::process::Command::new(binary()).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the file of the sample's 6,927 synsets.
fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/wordnet-sample.parquet")
}

/// Makes a table of 6,927 synsets at `folder/words`, indexed by vector, gloss and key. Returns its path.
fn words_table(folder: &Path) -> PathBuf {
    let table = folder.join("words");
    run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    let indexed = [
        "--vector",
        "vector",
        "--metric",
        "cosine",
        "--text",
        "gloss",
        "--positions",
        "--key",
        "synset",
    ];
    run(&[&["index", "--table", text(&table)], &indexed[..]].concat());
    table
}

#[test]
fn a_cluster_that_nobody_attacks_answers_and_stays_small() {
    let cluster = cluster::Cluster::start(&cluster::Settings::default());
    let caller = good_caller::GoodCaller::start(&cluster);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let seen = caller.stop();
    assert!(seen.answered > 0 && seen.refused.is_empty(), "{seen:?}");
    cluster.assert_healthy();
}
