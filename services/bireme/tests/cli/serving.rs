//! Starts a node, and waits until it serves.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Starts `bireme` with these arguments and environment variables, and `--json`. Returns the process, and the line that
/// it prints when it serves.
pub fn serving(arguments: &[&str], variables: &[(String, String)]) -> (Child, Value) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_bireme"))
        .args(arguments)
        .args(["--listen", "127.0.0.1:0", "--json"])
        .envs(variables.iter().cloned())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (process, serde_json::from_str(&line).unwrap())
}

/// Returns the node's endpoint.
pub fn endpoint(serving: &Value) -> String {
    serving["endpoint"].as_str().unwrap().to_owned()
}
