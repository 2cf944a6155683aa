//! Starts both tiers as they are deployed: real sockets, real files with O_DIRECT, real rings. Tests of faults of
//! drives can replace the files by simulated drives.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytesize::ByteSize;
use client::fetch::{FetchClient, FetchOptions, Instant, Projection, TableVersion};
use client::query::{QueryClient, Taken};
use client::{ClientTlsConfig, Endpoint};
use futures::StreamExt;
use io_node::{DriveConfig, EngineChoice, IoConfig, IoNode};
use lake::{Lake, LakeOptions, UriPrefix};
use query_node::{IoNodeConfig, QueryConfig, QueryNode, TableConfig};
use ring::sim::{SimConfig, SimDisk};
use tempfile::TempDir;
use wire::fetch::{DescribeResponse, WarmRequest};

/// Creates a folder on the drive of the build output. The system's folder for temporary files may be a tmpfs, which may
/// lack O_DIRECT.
pub fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns the deadline of a request or a wait in tests: 60 seconds from now.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Returns an I/O node's configuration for tests: small, unpinned (tests share cores), without a RAM tier.
pub fn io_config(folder: &Path) -> IoConfig {
    IoConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        serve: served(),
        drives: vec![DriveConfig { path: folder.join("slab"), size: Some(ByteSize::mib(256)) }],
        cores: 2,
        pin: false,
        ram_tier: ByteSize::b(0),
        segment: ByteSize::mib(16),
        slots: 64,
        // Rows of a read that takes longer come from the table. With the default of 500 ms, a drive that many tests use
        // at the same time would change the counts that tests compare.
        read_timeout: Duration::from_secs(10),
        ..IoConfig::default()
    }
}

/// Returns the prefixes with which the URIs of the tests' tables begin.
fn served() -> Vec<UriPrefix> {
    let temporary = std::env::temp_dir();
    let folders = [temporary.to_str().unwrap(), env!("CARGO_TARGET_TMPDIR")];
    let prefixes = folders.map(|folder| format!("{}/", folder.trim_end_matches('/')));
    let prefixes = prefixes.into_iter().chain(["s3://lake/".into()]);
    prefixes.map(|prefix| UriPrefix::of_config(&prefix).unwrap()).collect()
}

/// Creates the reader of tables for an I/O node with this configuration.
pub fn lake_of(config: &IoConfig) -> Arc<Lake> {
    let cache = config.lake_cache_bytes();
    Arc::new(Lake::new(LakeOptions::for_row_reads(cache, config.storage.clone(), config.store)))
}

/// Starts an I/O node on a blocking thread.
pub async fn start_io(config: IoConfig) -> IoNode {
    tokio::task::spawn_blocking(move || IoNode::start(config.clone(), lake_of(&config)))
        .await
        .unwrap()
        .unwrap()
}

/// Starts an I/O node over the drives of a node that was dropped. Waits until the dropped node has released them.
pub async fn start_io_again(config: IoConfig) -> IoNode {
    let deadline = soon();
    loop {
        let again = config.clone();
        let start = move || IoNode::start(again.clone(), lake_of(&again));
        match tokio::task::spawn_blocking(start).await.unwrap() {
            Ok(node) => return node,
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
        assert!(Instant::now() < deadline, "the drive is still in use");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts an I/O node on a simulated disk. `lake` reads its tables.
pub async fn start_io_on(disk: &SimDisk, config: IoConfig, lake: Arc<Lake>) -> IoNode {
    let disk = disk.clone();
    let start = move || IoNode::start_simulated(config, &disk, lake).unwrap();
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Stops an I/O node on a blocking thread.
pub async fn stop_io(node: IoNode) {
    tokio::task::spawn_blocking(|| node.stop(Duration::from_secs(10))).await.unwrap();
}

/// The read engines, which must return the same rows.
pub const ENGINES: [EngineChoice; 2] = [EngineChoice::IoUring, EngineChoice::Pread];

/// An I/O node with a client of its own.
pub struct Io {
    pub node: IoNode,
    pub client: FetchClient,
    pub folder: TempDir,
}

impl Io {
    pub async fn start(change: impl FnOnce(&mut IoConfig)) -> Self {
        let folder = folder();
        let mut config = io_config(folder.path());
        change(&mut config);
        Self::with(start_io(config).await, folder)
    }

    /// Starts a node on simulated drives of 64 MiB each.
    pub async fn simulated(drives: usize, change: impl FnOnce(&mut IoConfig)) -> (Self, SimDisk) {
        let config = SimConfig { drives: vec![64 << 20; drives], ..SimConfig::default() };
        let disk = SimDisk::new(config);
        (Self::on(&disk, change).await, disk)
    }

    /// Starts a node on a simulated disk, which may contain what an earlier node wrote.
    pub async fn on(disk: &SimDisk, change: impl FnOnce(&mut IoConfig)) -> Self {
        let folder = folder();
        let mut config = io_config(folder.path());
        config.segment = ByteSize::mib(4);
        change(&mut config);
        let lake = lake_of(&config);
        Self::with(start_io_on(disk, config, lake).await, folder)
    }

    /// Connects a client to a node.
    pub fn with(node: IoNode, folder: TempDir) -> Self {
        let endpoint = endpoint(node.local_addr());
        let client = FetchClient::new(endpoint, FetchOptions::default()).unwrap();
        Self { node, client, folder }
    }

    pub async fn open(&self, uri: &str, version: u64, columns: &[&str]) -> Projection {
        let columns: Vec<_> = columns.iter().map(|c| (*c).to_owned()).collect();
        let table = TableVersion { uri, branch: "", version, identity: "" };
        self.client.open(table, &columns, soon()).await.unwrap()
    }

    /// Fills all extents of a version. Panics if an extent can't be filled.
    pub async fn warm(&self, uri: &str, version: u64) {
        let request = WarmRequest { table_uri: uri.into(), version, ..Default::default() };
        let mut progress = self.client.warm(request).await.unwrap();
        let mut last = None;
        while let Some(step) = progress.next().await {
            last = Some(step.unwrap());
        }
        let last = last.unwrap();
        assert_eq!(last.extents_failed, 0, "{}", last.last_error);
        assert_eq!(last.extents_done, last.extents_total);
    }

    pub async fn describe(&self) -> DescribeResponse {
        self.client.describe(Duration::from_secs(10)).await.unwrap()
    }

    pub async fn stop(self) {
        stop_io(self.node).await;
    }
}

pub fn endpoint(address: std::net::SocketAddr) -> Endpoint {
    address.to_string().parse().unwrap()
}

/// Returns all rows of a take as one batch.
pub fn joined(taken: &Taken) -> RecordBatch {
    let schema = taken.batches[0].schema();
    arrow_select::concat::concat_batches(&schema, &taken.batches).unwrap()
}

/// Returns the sum of a counter over a node's cores.
pub fn total(described: &DescribeResponse, of: impl Fn(&wire::fetch::Core) -> u64) -> u64 {
    described.cores.iter().map(of).sum()
}

/// A query node over I/O nodes.
pub struct Cluster {
    pub query: QueryNode,
    pub client: QueryClient,
    pub io: Vec<Io>,
}

impl Cluster {
    /// Starts a cluster that serves `tables` (name, URI) from `io_nodes` I/O nodes.
    pub async fn start(io_nodes: usize, tables: &[(&str, &Path)]) -> Self {
        Self::start_with(io_nodes, tables, |_, _| {}).await
    }

    /// Starts a cluster with a changed configuration.
    pub async fn start_with(
        io_nodes: usize,
        tables: &[(&str, &Path)],
        change: impl Fn(&mut IoConfig, &mut QueryConfig),
    ) -> Self {
        Self::start_secured(io_nodes, tables, &ClientTlsConfig::default(), change).await
    }

    /// Starts a cluster with a changed configuration. If the query node uses TLS, the client connects with `tls`.
    pub async fn start_secured(
        io_nodes: usize,
        tables: &[(&str, &Path)],
        tls: &ClientTlsConfig,
        change: impl Fn(&mut IoConfig, &mut QueryConfig),
    ) -> Self {
        let mut query = query_config(tables);
        let mut io = Vec::new();
        for number in 0..io_nodes {
            let change = |config: &mut IoConfig| {
                config.name = format!("io-{number}");
                change(config, &mut query);
            };
            io.push(Io::start(change).await);
        }
        query.io_nodes = io.iter().map(|io| member(&io.node)).collect();
        let lake = Lake::new(query.lake_options());
        let scheme = if query.tls.is_some() { "https" } else { "http" };
        let query = QueryNode::start(query, lake).await.unwrap();
        let endpoint = format!("{scheme}://{}", query.local_addr()).parse().unwrap();
        let client = QueryClient::connect_with(&endpoint, tls).await.unwrap();
        Self { query, client, io }
    }

    /// Starts a query node that asks the members `asked`, which stand for the nodes `io`.
    pub async fn over(io: Vec<Io>, asked: Vec<IoNodeConfig>, tables: &[(&str, &Path)]) -> Self {
        let query = QueryConfig { io_nodes: asked, ..query_config(tables) };
        let lake = Lake::new(query.lake_options());
        let query = QueryNode::start(query, lake).await.unwrap();
        let client = QueryClient::connect(&endpoint(query.local_addr())).await.unwrap();
        Self { query, client, io }
    }

    pub async fn stop(self) {
        self.query.shutdown(Duration::from_secs(10)).await.unwrap();
        for io in self.io {
            io.stop().await;
        }
    }
}

fn query_config(tables: &[(&str, &Path)]) -> QueryConfig {
    QueryConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tables: tables.iter().map(|&(name, uri)| (name.to_owned(), table(uri))).collect(),
        refresh_interval: Duration::from_millis(100),
        ..QueryConfig::default()
    }
}

fn table(uri: &Path) -> TableConfig {
    TableConfig { uri: uri.to_str().unwrap().into(), ..TableConfig::default() }
}

/// Returns a node's entry in a list of I/O nodes.
pub fn member(node: &IoNode) -> IoNodeConfig {
    IoNodeConfig::at(node.local_addr().to_string()).named(node.config().name.clone())
}

/// Connects to a query node.
pub async fn client_of(node: &QueryNode) -> QueryClient {
    let endpoint = format!("http://{}", node.local_addr()).parse().unwrap();
    QueryClient::connect(&endpoint).await.unwrap()
}

/// Returns the path of the sample that ships with the project.
pub fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bireme/demo/wordnet-sample.parquet")
}
