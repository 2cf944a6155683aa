//! `bireme up` over the sample, in a process that ends with the test.

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
        let table = folder.path().join("words");
        run(&["ingest", text(&sample()), "--table", text(&table), "--key", "synset"]);
        let index = ["--vector", "vector", "--metric", "cosine", "--text", "gloss", "--positions"];
        run(&[&["index", "--table", text(&table)], &index[..], &["--key", "synset"]].concat());
        let named = format!("words={}", text(&table));
        Self::of(folder, &["--table", &named])
    }

    /// Serves the tables that `arguments` name. The cache is in `folder`.
    pub fn of(folder: TempDir, arguments: &[&str]) -> Self {
        let ready = folder.path().join("ready.json");
        let cache = folder.path().join("cache");
        let process = Command::new(env!("CARGO_BIN_EXE_bireme"))
            .args(["up", "--cache-dir", text(&cache)])
            .args(arguments)
            .args(["--cache-size", "128MiB", "--ready-file", text(&ready)])
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
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

    pub fn json(&self, arguments: &[&str]) -> Vec<Value> {
        json(&[arguments, &["--endpoint", &self.endpoint]].concat())
    }

    pub fn names(&self, arguments: &[&str], exit: i32, name: &str) {
        names(&[arguments, &["--endpoint", &self.endpoint]].concat(), exit, name);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
