//! Both tiers as processes over one table.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{binary, folder, text, words_table};

/// The time that a probe, a start or a recovery may take before a test fails. It is not a performance goal: the machine
/// is shared, and every process on it may be slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The settings of a [`Cluster`].
pub struct Settings {
    /// Settings of the I/O node by the names of their variables, without `BIREME_IO_`.
    pub io: Vec<(&'static str, String)>,
    /// Settings of the query node, without `BIREME_QUERY_`.
    pub query: Vec<(&'static str, String)>,
    /// Further arguments of the I/O node.
    pub io_arguments: Vec<String>,
    /// Further arguments of the query node.
    pub query_arguments: Vec<String>,
    /// The I/O node that the query node uses, instead of the cluster's own.
    pub io_node: Option<String>,
    /// The token that the well-behaved caller sends. `None` if the query node has no access policy.
    pub token: Option<String>,
    /// Address space of each process, in KiB (`ulimit -v`). An allocation beyond it fails, and the process aborts.
    pub address_space_kib: u64,
    /// File descriptors of each process (`ulimit -n`).
    pub descriptors: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let set = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        Self {
            io: set(&[
                ("MEMORY", "896MiB"),
                ("RAM_TIER", "32MiB"),
                ("SEGMENT", "16MiB"),
                ("CORES", "2"),
            ]),
            query: set(&[
                ("CORES", "2"),
                ("INDEX_CACHE", "128MiB"),
                ("KEY_INDEX", "16MiB"),
                ("REFRESH_INTERVAL", "200ms"),
            ]),
            io_arguments: Vec::new(),
            query_arguments: Vec::new(),
            io_node: None,
            token: None,
            address_space_kib: 5 << 20,
            descriptors: None,
        }
    }
}

/// One I/O node and one query node over the table `words` (see [`words_table`]).
pub struct Cluster {
    pub io: Node,
    pub query: Node,
    /// The table's folder.
    pub table: PathBuf,
    /// The token of [`Settings`].
    pub token: Option<String>,
    folder: TempDir,
}

impl Cluster {
    /// Makes the table and starts both nodes.
    pub fn start(settings: &Settings) -> Self {
        let folder = folder();
        let table = words_table(folder.path());
        Self::start_over(settings, folder, table)
    }

    /// Starts both nodes over `table`, which they serve as `words`, with their files in `folder`.
    pub fn start_over(settings: &Settings, folder: TempDir, table: PathBuf) -> Self {
        let drive = format!("{}:256MiB", text(&folder.path().join("slab")));
        let io = ["io", "--no-pin", "--drive", &drive, "--serve", text(&table)];
        let io = Node::start(&io, "IO", &settings.io, &settings.io_arguments, settings, &folder);
        let named = format!("words={}", text(&table));
        let io_node = settings.io_node.as_ref().unwrap_or(&io.endpoint);
        let query = ["query", "--table", &named, "--io-node", io_node];
        let more = &settings.query_arguments;
        let query = Node::start(&query, "QUERY", &settings.query, more, settings, &folder);
        let token = settings.token.clone();
        Self { io, query, table, token, folder }
    }

    /// Returns the folder of the cluster's files, which is removed with the cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Asserts that both nodes run, that their gRPC health and `/live` say so, and that a row is found.
    pub fn assert_healthy(&self) {
        for node in [&self.io, &self.query] {
            node.assert_alive();
            node.assert_answers_probes();
        }
        let mut get = vec!["get", "words", "n02503517", "--endpoint", &self.query.endpoint];
        let file = self.folder().join("token");
        if let Some(token) = &self.token {
            std::fs::write(&file, token).unwrap();
            get.extend(["--token-file", text(&file)]);
        }
        let found = super::run(&get);
        assert!(found.contains("elephant"), "{found}");
    }
}

/// One node as a process, ended with the test.
pub struct Node {
    process: std::sync::Mutex<Child>,
    pid: u32,
    /// The endpoint of its gRPC service, as `http://127.0.0.1:PORT`.
    pub endpoint: String,
    /// The address of `/metrics`, and of `/live` and `/ready` too.
    pub metrics: SocketAddr,
    /// The address of `/live` and `/ready` only.
    pub probes: SocketAddr,
    log: PathBuf,
}

impl Node {
    fn start(
        arguments: &[&str],
        tier: &str,
        variables: &[(&str, String)],
        more: &[String],
        settings: &Settings,
        folder: &TempDir,
    ) -> Self {
        let log = folder.path().join(format!("{}.log", tier.to_lowercase()));
        let mut limits = format!("ulimit -v {}; ", settings.address_space_kib);
        if let Some(descriptors) = settings.descriptors {
            limits += &format!("ulimit -n {descriptors}; ");
        }
        let mut process = Command::new("/bin/bash")
            .args(["-c", &format!("{limits}exec \"$0\" \"$@\"")])
            .arg(binary())
            .args(arguments)
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--probes", "127.0.0.1:0", "--json"])
            .args(more)
            .envs(variables.iter().map(|(name, value)| (format!("BIREME_{tier}_{name}"), value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("{arguments:?} does not start: {}", std::fs::read_to_string(&log).unwrap())
        });
        let address = |of: &str| -> SocketAddr {
            let url = serving[of].as_str().unwrap();
            url.trim_start_matches("http://").trim_end_matches("/metrics").parse().unwrap()
        };
        Self {
            pid: process.id(),
            process: process.into(),
            endpoint: serving["endpoint"].as_str().unwrap().to_owned(),
            metrics: address("metrics"),
            probes: address("probes"),
            log,
        }
    }

    /// Returns the address of its gRPC service.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.trim_start_matches("http://").parse().unwrap()
    }

    /// Returns the node's stderr so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Returns whether the process runs.
    pub fn is_alive(&self) -> bool {
        self.process.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Fails with the end of the log if the process has ended.
    pub fn assert_alive(&self) {
        let log = self.log();
        let end = log.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        assert!(self.is_alive(), "the node has ended: {}", &log[end..]);
    }

    /// Returns the resident memory now, in MiB.
    pub fn resident_mib(&self) -> u64 {
        self.status_mib("VmRSS:")
    }

    /// Returns the peak of the resident memory since the start, in MiB.
    pub fn peak_mib(&self) -> u64 {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
    }

    /// Returns the number of its file descriptors now.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }

    /// Returns the first line of the answer at `address` to `GET /live`; `None` without an answer within [`PATIENCE`].
    pub fn live(&self, address: SocketAddr) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"GET /live HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.lines().next().map(str::to_owned)
    }

    /// Returns the metrics port's answer to `GET /metrics`, with its headers.
    pub fn scrape(&self) -> String {
        let mut stream = TcpStream::connect_timeout(&self.metrics, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: node\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the process's status, as its gRPC health service reports it over a new connection.
    pub async fn health(&self) -> Result<ServingStatus, String> {
        let endpoint = tonic::transport::Endpoint::from_shared(self.endpoint.clone()).unwrap();
        let asked = async {
            let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
            let request = HealthCheckRequest { service: String::new() };
            let answer = HealthClient::new(channel).check(request).await;
            answer.map(|it| it.into_inner().status()).map_err(|status| status.to_string())
        };
        tokio::time::timeout(PATIENCE, asked).await.map_err(|_| "no answer".to_owned())?
    }

    /// Fails unless gRPC health and `/live` answer within [`PATIENCE`], both over new connections. A probe may be
    /// refused for a moment while a node closes connections, so a refused probe is repeated.
    pub fn assert_answers_probes(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let health = runtime.block_on(self.health());
            let live = self.live(self.probes);
            let is_live = live.as_deref().is_some_and(|line| line.contains("200"));
            if health == Ok(ServingStatus::Serving) && is_live {
                return;
            }
            self.assert_alive();
            assert!(Instant::now() < until, "health: {health:?}, /live: {live:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap();
        let _ = process.kill();
        let _ = process.wait();
    }
}
