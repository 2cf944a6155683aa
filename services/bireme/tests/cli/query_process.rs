//! A query node in a process of its own, which ends with the test.

use std::process::Child;

use super::serving::{endpoint, serving};

pub struct QueryProcess {
    process: Child,
    pub endpoint: String,
}

impl QueryProcess {
    /// Starts a node with one I/O node and one table (`NAME=URI`).
    pub fn start(io_node: &str, table: &str) -> Self {
        let (process, says) = serving(&["query", "--io-node", io_node, "--table", table], &[]);
        Self { process, endpoint: endpoint(&says) }
    }
}

impl Drop for QueryProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
