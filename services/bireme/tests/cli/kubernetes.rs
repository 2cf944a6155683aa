//! Tests what a query node logs if it is to list I/O nodes from Kubernetes, but finds no Kubernetes API.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::{folder, text};

#[test]
fn without_a_kubernetes_api_the_log_names_the_alternatives() {
    let folder = folder();
    let nowhere = folder.path().join("kubeconfig");
    let mut query = Command::new(env!("CARGO_BIN_EXE_bireme"))
        .args(["query", "--listen", "127.0.0.1:0", "--io-nodes-from", "kubernetes:a/b"])
        .env("KUBECONFIG", text(&nowhere))
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(query.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (logs, logged) = mpsc::channel();
    std::thread::spawn(move || lines.try_for_each(|line| logs.send(line)));
    let patience = Instant::now() + Duration::from_secs(60);
    let left = || patience.saturating_duration_since(Instant::now());
    let mut logged = std::iter::from_fn(|| logged.recv_timeout(left()).ok());
    let line = logged.find(|line| line.contains("kubernetes:a/b"));
    query.kill().unwrap();
    query.wait().unwrap();
    let line = line.expect("it is not logged");
    let expected = "from kubernetes:a/b: no Kubernetes API is known here: run in a pod with a \
                    service account, set KUBECONFIG, or name the I/O nodes by dns: or file: (";
    assert!(line.contains(expected), "{line}");
}
