//! `bireme up` over the sample, in a process that ends with the test.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{folder, json, names, run, sample, text};

pub struct Up {
    pub process: Child,
    pub endpoint: String,
    pub folder: TempDir,
}

impl Up {
    pub fn start() -> Self {
        let folder = folder();
        let named = sample_in(&folder);
        Self::of(folder, &["--table", &named])
    }

    /// Serves the tables that `arguments` name. The cache is in `folder`.
    pub fn of(folder: TempDir, arguments: &[&str]) -> Self {
        Self::logging(folder, arguments, Stdio::inherit())
    }

    /// Like [`of`](Self::of), with the log in `log`.
    fn logging(folder: TempDir, arguments: &[&str], log: Stdio) -> Self {
        let ready = folder.path().join("ready.json");
        let cache = folder.path().join("cache");
        let process = Command::new(env!("CARGO_BIN_EXE_bireme"))
            .args(["up", "--cache-dir", text(&cache)])
            .args(arguments)
            .args(["--cache-size", "128MiB", "--ready-file", text(&ready)])
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut up = Self { process, endpoint: String::new(), folder };
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(ready) = std::fs::read_to_string(&ready)
                && let Ok(ready) = serde_json::from_str::<Value>(&ready)
            {
                up.endpoint = ready["query"].as_str().unwrap().to_owned();
                return up;
            }
            assert!(up.process.try_wait().unwrap().is_none(), "it ended at once");
            assert!(Instant::now() < patience, "it does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it as Ctrl-C does, and waits for its end.
    fn stop(&mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }

    pub fn json(&self, arguments: &[&str]) -> Vec<Value> {
        json(&[arguments, &["--endpoint", &self.endpoint]].concat())
    }

    pub fn names(&self, arguments: &[&str], exit: i32, name: &str) {
        names(&[arguments, &["--endpoint", &self.endpoint]].concat(), exit, name);
    }
}

/// Makes an indexed table of the sample in `folder`. Returns it as an argument of `--table`.
pub fn sample_in(folder: &TempDir) -> String {
    let table = folder.path().join("words");
    run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
    let index = ["--vector", "vector", "--metric", "cosine", "--text", "gloss", "--positions"];
    run(&[&["index", "--table", text(&table)], &index[..], &["--key", "synset"]].concat());
    format!("words={}", text(&table))
}

#[test]
fn a_stop_is_not_logged_as_a_loss() {
    let folder = folder();
    let named = sample_in(&folder);
    let log = folder.path().join("log");
    let to_log = Stdio::from(File::create(&log).unwrap());
    let mut up = Up::logging(folder, &["--table", &named], to_log);
    // The first search reads the index's files through the I/O node.
    assert_eq!(up.json(&["search", "words", "--like", "n02503517", "-k", "3"]).len(), 3);
    let logged = || std::fs::read_to_string(&log).unwrap();
    let before = logged().len();
    up.stop();
    let logged = logged();
    // On a busy machine, a step of a fill may take longer than the stop waits for it.
    let is_other = |line: &&str| !line.contains("a step of a fill does not end");
    let others: Vec<_> = logged[before..].lines().filter(is_other).collect();
    assert_eq!(others, [""; 0], "the log has warnings and errors only");
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
