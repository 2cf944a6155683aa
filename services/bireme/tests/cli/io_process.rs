//! An I/O node in a process of its own, which ends with the test.

use std::process::{Child, Command};

use super::serving::{endpoint, serving};

pub struct IoProcess {
    pub process: Child,
    pub endpoint: String,
    /// The number of extents that the node found on its drive.
    pub extents: u64,
}

impl IoProcess {
    /// Starts a node on one drive. `drive` is a value of `--drive`. `settings` are environment variables, without the
    /// prefix `BIREME_IO_`. The node serves the tables of all tests.
    pub fn start(drive: &str, settings: &[(&str, &str)]) -> Self {
        let variable =
            |(name, value): &(&str, &str)| (format!("BIREME_IO_{name}"), (*value).to_owned());
        let variables: Vec<_> = settings.iter().map(variable).collect();
        let tables = format!("{}/", std::env::temp_dir().display());
        let more_tables = concat!(env!("CARGO_TARGET_TMPDIR"), "/");
        let arguments =
            ["io", "--no-pin", "--drive", drive, "--serve", &tables, "--serve", more_tables];
        let (process, says) = serving(&arguments, &variables);
        Self { process, endpoint: endpoint(&says), extents: says["extents"].as_u64().unwrap() }
    }

    /// Stops it by SIGTERM, and waits for its end.
    pub fn stop(&mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
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
