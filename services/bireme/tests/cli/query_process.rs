//! A query node in a process of its own, which ends with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

pub struct QueryProcess {
    process: Child,
    pub endpoint: String,
}

impl QueryProcess {
    /// Starts a node with one I/O node and one table (`NAME=URI`).
    pub fn start(io_node: &str, table: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_bireme"))
            .args(["query", "--listen", "127.0.0.1:0", "--json"])
            .args(["--io-node", io_node, "--table", table])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).unwrap();
        Self { process, endpoint: serving["endpoint"].as_str().unwrap().to_owned() }
    }
}

impl Drop for QueryProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
