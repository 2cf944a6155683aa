//! A query node's configuration. It is validated before anything starts.

mod access;
mod web_origin;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use connections::idle;
use connections::tls::{ClientTlsConfig, ServerTlsConfig};
use lake::{StoreLimits, TableFolder, TableUri, UriPrefix, shown};
use membership::{IoNodeConfig, MemberList, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use telemetry::{Identity, TelemetryConfig};

use crate::error::{QueryError, Result};

pub use access::AccessConfig;
pub use web_origin::WebOrigin;

/// A query node's configuration. Durations and sizes are written with units: `2s`, `64GiB`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueryConfig {
    /// The address to listen on for gRPC and plain HTTP; port 0 takes a free one.
    #[schemars(extend("format" = "address"))]
    pub listen: SocketAddr,
    /// TLS for clients' connections. Without it they are unencrypted.
    pub tls: Option<ServerTlsConfig>,
    /// The access policy: a file, which is read again when it changes, or `open` for everybody who reaches the port. If
    /// left out, everybody who reaches the port may use the node, which must then listen on loopback.
    #[schemars(with = "Option<String>")]
    pub access: Option<AccessConfig>,
    /// Origins of web pages that may call the node over plain HTTP, such as `https://app.example.com`. Requests of all other
    /// pages are refused, so that no page can read the tables that its visitor's machine reaches. Without TLS,
    /// requests to a public host name are refused too, unless this list has its origin, or they have a key or a token that
    /// an access policy checks.
    #[schemars(with = "Vec<String>")]
    pub browser_origins: Vec<WebOrigin>,
    /// The file of the audit log, which gets one JSON line for each request, and for each TLS handshake that is
    /// refused; `/dev/stdout` for standard output. Without it there is no such log.
    #[schemars(extend("format" = "path"))]
    pub audit: Option<PathBuf>,
    /// TLS for connections to I/O nodes. Without it they are unencrypted.
    pub io_tls: Option<ClientTlsConfig>,
    /// The file of the secret that this node shares with the I/O nodes, for connections without TLS or in addition to
    /// it: one secret on a line, two while one replaces the other; the first one is used. I/O nodes that do not prove
    /// that they know it are refused. The file is read again when it changes.
    #[schemars(extend("format" = "path"))]
    pub peer_secret: Option<PathBuf>,
    /// The node's name, for traces and status.
    pub name: String,
    /// Number of cores that serve, each with its own thread; 0 uses all cores that the process may use.
    pub cores: usize,
    /// The time for which a core polls for work after a request has arrived or was answered, before its thread sleeps;
    /// 0 never polls, and 1s is the maximum. Waking a sleeping thread takes 10 to 50 µs on a virtual machine, once for
    /// the request and once for the rows of the I/O nodes. Polling saves that time if answers or further requests
    /// arrive soon, but keeps the CPU busy.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub idle_poll: Duration,
    /// The tables to serve, by the name that requests use.
    pub tables: BTreeMap<String, TableConfig>,
    /// Folders of tables to serve, such as `s3://bucket/tables/`: local paths, or `s3://`, `gs://` or `az://`. A folder
    /// `NAME.lance` in one of them is the table `NAME`, as LanceDB and Lance's directory namespace lay tables out. A table
    /// in a namespace has its id as its name, such as `eu$orders`. The folders are listed about every 5 s: tables that
    /// appear are served, and tables that have gone are not. If several tables have the same name, it stands for the one
    /// in `tables`, or else for the one in the first folder.
    #[schemars(with = "Vec<String>")]
    pub folders: Vec<TableFolder>,
    /// The I/O nodes, as a fixed list; at least one, unless `io_nodes_from` is set.
    pub io_nodes: Vec<IoNodeConfig>,
    /// The source of a list of I/O nodes that is followed: `dns:HOST:PORT`, `file:PATH` or
    /// `kubernetes:[NAMESPACE/]SERVICE[,SERVICE][:PORT]`.
    pub io_nodes_from: Option<Source>,
    /// The time for which an I/O node keeps its chunks after `io_nodes_from` no longer lists it, or lists it as not
    /// ready. In the meantime its rows are read from the table if it can't be reached.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub member_hold: Duration,
    /// The time after which a new I/O node owns its whole share of the chunks; they move to it gradually.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub slow_start: Duration,
    /// Limits for requests to object stores.
    pub store: StoreLimits,
    /// Options for object stores, such as `aws_endpoint`.
    pub storage: HashMap<String, String>,
    /// A folder of further options that are secret: a file for each, named like the option or its environment variable
    /// (`AWS_SECRET_ACCESS_KEY`). Keys and tokens of S3 and Azure are read again every 30 s.
    #[schemars(extend("format" = "path"))]
    pub storage_secrets: Option<PathBuf>,
    /// Memory that the node may use in total. What the caches leave is divided between callers' requests with their
    /// answers, and the working memory of searches; requests that exceed their part are refused. 0 uses 80 % of the
    /// memory of the machine or control group.
    #[schemars(with = "String", extend("format" = "size"))]
    pub memory: ByteSize,
    /// The part of `memory` for index partitions, and texts that full-text indexes do not cover, over all tables. An
    /// eighth of it is for lists of the rows that pass filters.
    #[schemars(with = "String", extend("format" = "size"))]
    pub index_cache: ByteSize,
    /// The part of `memory` for key indexes, over all tables: 8 to 12 bytes per row. A table's key column is indexed in
    /// memory from its first look-up on, or from the start if `bireme index` has written its index beside the table.
    /// While that index is loaded, it takes little more memory than afterwards. While an index is built, each row of
    /// the part that is being built takes up to 40 bytes, including the 8 to 12 that stay. A part is one data file, or
    /// several smaller ones with up to a million rows together. If a written index does not fit, 0.01 bytes per row are
    /// in memory, and look-ups read its pages from the I/O nodes' drives. An index that is not written and does not fit
    /// is not built: keys are then looked up through the table's BTREE or by scans, as are all keys if this is 0.
    #[schemars(with = "String", extend("format" = "size"))]
    pub key_index: ByteSize,
    /// The interval at which a table is checked for a new version.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub refresh_interval: Duration,
    /// The timeout of requests that set no deadline.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub timeout: Duration,
    /// Export of metrics, traces and logs.
    pub telemetry: TelemetryConfig,

    // The fields below are not settings: their values are the same for all users. Tests choose other values.
    /// The interval at which the file or DNS is read for the list of I/O nodes.
    #[serde(skip)]
    pub member_refresh: Duration,
    /// The interval at which folders of tables are listed. Each listing costs a request for every 1,000 tables.
    #[serde(skip)]
    pub folder_refresh: Duration,
    /// Maximum number of requests that run concurrently in each lane of the admission queue, except the lane of
    /// look-ups that read pages of key indexes; 0 uses the number of cores.
    #[serde(skip)]
    pub search_concurrency: usize,
    /// Consecutive failures after which a connected I/O node is ejected: it gets no requests for a while; 0 never
    /// ejects.
    #[serde(skip)]
    pub ejection_failures: u32,
    /// Duration of an I/O node's first ejection, at most. It doubles with each further one until the node answers
    /// again.
    #[serde(skip)]
    pub ejection_time: Duration,
    /// Maximum duration of an ejection.
    #[serde(skip)]
    pub ejection_time_max: Duration,
    /// Maximum number of versions other than the latest that are kept open, over all tables.
    #[serde(skip)]
    pub versions_max: u64,
    /// Maximum number of requests that wait in each lane of the admission queue; further ones are refused.
    #[serde(skip)]
    pub search_queue_max: usize,
    /// Number of streams of each core, and of the background runtime, to each I/O node. Each stream has its own
    /// connection.
    #[serde(skip)]
    pub streams_per_io_node: usize,
    /// Maximum number of batches that wait for one stream to an I/O node; further ones are refused.
    #[serde(skip)]
    pub fetch_queue_max: usize,
    /// Maximum number of Gets of one GetStream that are processed concurrently.
    #[serde(skip)]
    pub gets_in_flight: usize,
}

/// The configuration of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// The table's location: a local path, `s3://`, `gs://` or `az://`.
    pub uri: String,
    /// The key column. Defaults to the one that the table records.
    #[serde(default)]
    pub key: Option<String>,
    /// The only version to serve. Without it, the node follows the latest version.
    #[serde(default)]
    pub version: Option<u64>,
    /// Other locations that the table may read: tables, or prefixes that end in `/`, such as base paths of a shallow
    /// clone and external blobs.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub also_reads: Vec<UriPrefix>,
    /// Files with recall curves that `bireme tune --output` has written, in addition to those beside the table. They are
    /// read again once a minute.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    pub recall_curves: Vec<PathBuf>,
    /// Whether the node loads the table's indexes into `index_cache`, and its key index into `key_index`, before it
    /// reports that it serves (at most 10 minutes long), and those of a new version before it serves that version (at
    /// most 5 seconds long). Indexes that do not fit are loaded in part or not at all.
    #[serde(default)]
    pub warm_indexes: bool,
    /// Whether the node writes the table's key index to files beside the table (`_bireme/keys`), as `bireme index
    /// --key-runs` does, and deletes files that are obsolete. The node writes in the background, once its own key index
    /// covers the latest version, and at most once a minute. Its credentials must allow it. Several nodes may write.
    #[serde(default)]
    pub write_key_runs: bool,
}

impl Default for QueryConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            tls: None,
            access: None,
            browser_origins: Vec::new(),
            audit: None,
            io_tls: None,
            peer_secret: None,
            name: "query-0".into(),
            cores: 0,
            idle_poll: Duration::ZERO,
            tables: BTreeMap::new(),
            folders: Vec::new(),
            io_nodes: Vec::new(),
            io_nodes_from: None,
            member_refresh: Duration::from_secs(5),
            folder_refresh: Duration::from_secs(5),
            member_hold: Duration::from_secs(120),
            slow_start: Duration::from_secs(60),
            ejection_failures: 5,
            ejection_time: Duration::from_secs(5),
            ejection_time_max: Duration::from_secs(60),
            store: StoreLimits::default(),
            storage: HashMap::new(),
            storage_secrets: None,
            memory: ByteSize::b(0),
            index_cache: ByteSize::gib(1),
            key_index: ByteSize::mib(256),
            versions_max: 16,
            search_concurrency: 0,
            search_queue_max: 1024,
            refresh_interval: Duration::from_secs(2),
            timeout: Duration::from_secs(30),
            streams_per_io_node: 2,
            fetch_queue_max: 1024,
            gets_in_flight: 16,
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl QueryConfig {
    /// Checks that the values are in range and agree with each other.
    ///
    /// # Errors
    /// [`QueryError::Config`] or [`QueryError::Members`], with the first field that is wrong.
    pub fn validate(&self) -> Result<()> {
        self.validate_tables()?;
        if let Some(problem) = AccessConfig::fault(self.access.as_ref(), self.listen) {
            return Err(bad("access", problem));
        }
        match &self.io_nodes_from {
            None => drop(self.members()?),
            Some(_) if self.io_nodes.is_empty() => {}
            Some(_) => {
                let problem = "is given beside `io_nodes`; give one of the two".into();
                return Err(bad("io_nodes_from", problem));
            }
        }
        if let Some((field, problem)) = self.io_tls.as_ref().and_then(ClientTlsConfig::fault) {
            return Err(bad(field, problem));
        }
        if let Some((field, problem)) = self.store.fault().or_else(|| self.telemetry.fault()) {
            return Err(bad(field, problem));
        }
        for (field, time) in
            [("refresh_interval", self.refresh_interval), ("timeout", self.timeout)]
        {
            if time < Duration::from_millis(1) {
                return Err(bad(field, "must be at least 1ms".into()));
            }
        }
        if let Some(problem) = idle::fault(self.idle_poll) {
            return Err(bad("idle_poll", problem.into()));
        }
        Ok(())
    }

    /// Returns the identity with which this node exports metrics and traces.
    pub(crate) fn identity(&self) -> Identity {
        let version = env!("CARGO_PKG_VERSION");
        Identity { service: "bireme-query", node: self.name.clone(), version }
    }

    /// Returns the number of cores that serve.
    pub(crate) fn core_count(&self) -> usize {
        match self.cores {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        }
    }

    fn validate_tables(&self) -> Result<()> {
        for (name, table) in &self.tables {
            let field = format!("tables.{name}");
            if name.trim().is_empty() {
                return Err(bad("tables", "has a table without a name; give it one".into()));
            }
            if table.uri.trim().is_empty() {
                return Err(bad(&field, "has no uri; say where the table is".into()));
            }
            if let Err(error) = TableUri::of_config(&table.uri) {
                let problem = format!("has the uri `{}`: {error}", shown(&table.uri));
                return Err(bad(&field, problem));
            }
            if table.version == Some(0) {
                let problem = "pins version 0; leave it out to follow the latest";
                return Err(bad(&field, problem.into()));
            }
            if table.version.is_some() && table.write_key_runs {
                let problem = "pins a version, and `write_key_runs` is for the latest; leave out one of the two";
                return Err(bad(&field, problem.into()));
            }
        }
        for (at, folder) in self.folders.iter().enumerate() {
            if self.folders[..at].contains(folder) {
                return Err(bad("folders", format!("has `{folder}` twice; name it once")));
            }
        }
        Ok(())
    }

    /// Returns the fixed list of I/O nodes, validated.
    pub(crate) fn members(&self) -> Result<MemberList> {
        if self.io_nodes.is_empty() {
            let problem = "is empty; name the I/O nodes with `--io-node URL`, or their source with `--io-nodes-from`";
            return Err(bad("io_nodes", problem.into()));
        }
        let list = MemberList::written(&self.io_nodes);
        list.map_err(|error| QueryError::members("io_nodes", error))
    }
}

fn bad(field: &str, problem: String) -> QueryError {
    QueryError::Config { field: field.into(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        listen = "0.0.0.0:7070"
        access = "open"
        index_cache = "4GiB"
        refresh_interval = "500ms"
        tables.words = { uri = "s3://bucket/words", key = "id" }
        folders = ["s3://bucket/tables"]
        store.requests_max = 100

        [[io_nodes]]
        endpoint = "http://io-0:7071"
        weight = 2.5
    "#;

    fn problem(change: impl FnOnce(&mut QueryConfig)) -> String {
        let mut config: QueryConfig = toml::from_str(FILE).unwrap();
        config.validate().unwrap();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_as_people_write_it_and_unknown_keys_are_reported() {
        let config: QueryConfig = toml::from_str(FILE).unwrap();
        assert_eq!(config.index_cache, ByteSize::gib(4));
        assert_eq!(config.refresh_interval, Duration::from_millis(500));
        assert_eq!(config.tables["words"].key.as_deref(), Some("id"));
        assert_eq!(config.folders[0].as_str(), "s3://bucket/tables/");
        assert_eq!((config.store.requests_max, config.store.breaker_failures), (100, 8));
        let followed = "io_nodes_from = \"kubernetes:bireme/io:grpc\"\nmember_hold = \"5m\"";
        let followed: QueryConfig = toml::from_str(followed).unwrap();
        followed.validate().unwrap();
        assert_eq!(followed.io_nodes_from.unwrap().to_string(), "kubernetes:bireme/io:grpc");
        assert_eq!(followed.member_hold, Duration::from_secs(300));
        let nowhere = toml::from_str::<QueryConfig>("io_nodes_from = \"etcd:x\"").unwrap_err();
        assert!(nowhere.to_string().contains("write dns:HOST:PORT"), "{nowhere}");
        let unknown = toml::from_str::<QueryConfig>("nprobe = 3").unwrap_err();
        assert!(unknown.to_string().contains("unknown field `nprobe`"), "{unknown}");
    }

    #[test]
    fn errors_name_the_field() {
        for (problem, expected) in [
            (
                problem(|c| c.io_nodes.clear()),
                "`io_nodes` is empty; name the I/O nodes with `--io-node",
            ),
            (problem(|c| c.io_nodes.push(c.io_nodes[0].clone())), "give each a name"),
            (problem(|c| c.io_nodes[0].endpoint = "io-0".into()), "`io_nodes`: `io-0` is not"),
            (problem(|c| c.io_nodes[0].weight = 0.0), "has weight 0"),
            (
                problem(|c| c.io_nodes_from = "dns:h:1".parse().ok()),
                "`io_nodes_from` is given beside",
            ),
            (problem(|c| c.store.requests_max = 0), "`store.requests_max` must be at least 1"),
            (problem(|c| c.idle_poll = Duration::from_secs(2)), "`idle_poll` must be at most 1s"),
            (problem(|c| c.access = None), "`access` is missing, and 0.0.0.0:7070 can be reached"),
            (problem(|c| c.timeout = Duration::ZERO), "`timeout` must be at least 1ms"),
            (problem(|c| c.tables.get_mut("words").unwrap().uri.clear()), "`tables.words`"),
            (
                problem(|c| c.folders.push(c.folders[0].clone())),
                "`folders` has `s3://bucket/tables/` twice",
            ),
            (problem(|c| c.tables.get_mut("words").unwrap().version = Some(0)), "version 0"),
            (
                problem(|c| {
                    let table = c.tables.get_mut("words").unwrap();
                    (table.version, table.write_key_runs) = (Some(7), true);
                }),
                "`tables.words` pins a version, and `write_key_runs` is for the latest",
            ),
        ] {
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
