//! An I/O node in a process of its own, which ends with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

pub struct IoProcess {
    pub process: Child,
    pub endpoint: String,
    /// The number of extents that the node found on its drive.
    pub extents: u64,
}

impl IoProcess {
    /// Starts a node on one drive, as `--drive` names it. `settings` are environment variables, without the prefix
    /// `BIREME_IO_`. The node serves the tables of all tests.
    pub fn start(drive: &str, settings: &[(&str, &str)]) -> Self {
        let variable =
            |(name, value): &(&str, &str)| (format!("BIREME_IO_{name}"), (*value).to_owned());
        let mut process = Command::new(env!("CARGO_BIN_EXE_bireme"))
            .args(["io", "--listen", "127.0.0.1:0", "--no-pin", "--json", "--drive", drive])
            .args(["--serve", &format!("{}/", std::env::temp_dir().display())])
            .args(["--serve", concat!(env!("CARGO_TARGET_TMPDIR"), "/")])
            .envs(settings.iter().map(variable))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).unwrap();
        let endpoint = serving["endpoint"].as_str().unwrap().to_owned();
        Self { process, endpoint, extents: serving["extents"].as_u64().unwrap() }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for IoProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
