//! The configuration of an I/O node: one typed form, checked before anything starts.

mod access;
mod drive_size;
mod serve;
mod share;
mod start_warm;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use address::SECTOR_BYTES;
use bytesize::ByteSize;
use connections::idle;
use connections::tls::ServerTlsConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stores::StoreLimits;
use tables::UriPrefix;
use telemetry::TelemetryConfig;

use crate::error::NodeError;

pub use access::IoAccess;
pub use drive_size::{check_size, too_little};
pub use serve::{AlsoReadsConfig, resolve};
pub use share::{Share, ShareConfig, shares};
pub use start_warm::StartWarmConfig;

/// An I/O node's configuration. Sizes and durations are written as people write them: `64GiB`, `500ms`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IoConfig {
    /// The address to listen on for gRPC; port 0 takes a free one.
    #[schemars(extend("format" = "address"))]
    pub listen: SocketAddr,
    /// TLS for clients' connections. Without it they are unencrypted.
    pub tls: Option<ServerTlsConfig>,
    /// The query nodes that are answered: DNS names and URIs in their certificates, in which `*` stands for any
    /// characters. Needs `tls.client_ca`.
    pub peers: Vec<String>,
    /// The file of the secret that this node shares with the query nodes, for connections without TLS or in addition to
    /// it: one secret on a line, two while one replaces the other. Query nodes that do not prove that they know one of
    /// them are not answered. The file is read again when it changes.
    #[schemars(extend("format" = "path"))]
    pub peer_secret: Option<PathBuf>,
    /// `open` answers anyone who reaches the node. A node that listens beyond loopback needs this, `peers` or
    /// `peer_secret`.
    #[schemars(with = "IoAccess")]
    pub access: Option<IoAccess>,
    /// The file of the audit log, which gets one JSON line for each call, each projection of a Fetch stream, and each
    /// TLS handshake that is refused; `/dev/stdout` for standard output. Without it there is no such log.
    #[schemars(extend("format" = "path"))]
    pub audit: Option<PathBuf>,
    /// The node's own name, for status, logs, metrics, traces, audit lines and `warm_members`. Placement uses the name
    /// that query nodes' lists have for this node: give both the same value.
    pub name: String,
    /// The tables that are served: their URIs, or prefixes that end in `/`, such as `s3://bucket/tables/`. Any other
    /// table is refused, whether it exists or not. If the list is empty, the node does not start.
    #[schemars(with = "Vec<String>")]
    pub serve: Vec<UriPrefix>,
    /// Locations that some tables may read in addition to their own folders. All others read nothing else.
    pub also_reads: Vec<AlsoReadsConfig>,
    /// The drives; at least one.
    pub drives: Vec<DriveConfig>,
    /// The number of cores that serve, with one ring each; 0 for all that the affinity mask allows.
    pub cores: usize,
    /// Whether each core's thread stays on its CPU.
    pub pin: bool,
    /// The time for which a core polls for work after its last batch arrived or was answered, before its thread sleeps;
    /// 0 for not at all, at most a second. Waking a thread takes longer than serving a small batch. Polling avoids that
    /// if batches follow each other closely, but keeps the CPU busy.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub idle_poll: Duration,
    /// The way in which reads and writes are executed.
    pub engine: EngineChoice,
    /// Whether a filesystem without O_DIRECT may be used; reads then go through the page cache.
    pub allow_buffered: bool,
    /// Whether a drive that holds anything else than a slab is overwritten.
    pub overwrite: bool,
    /// The size of the RAM tier, over all cores; 0 turns it off.
    #[schemars(with = "String", extend("format" = "size"))]
    pub ram_tier: ByteSize,
    /// The maximum number of reads in flight per core.
    pub slots: u32,
    /// The size of a segment of the slab, which is reclaimed whole; an extent must fit in it.
    #[schemars(with = "String", extend("format" = "size"))]
    pub segment: ByteSize,
    /// The memory that the node may use in total. After the fixed parts, the directory (the map of all cached extents)
    /// gets 0.3 % of the drives' capacity. Of what is left, half is for connections, streams and batches, from 32 to
    /// 512 MiB per core; the directory gets the rest. 0 for 80 % of the memory of the machine or the control group.
    #[schemars(with = "String", extend("format" = "size"))]
    pub memory: ByteSize,
    /// Guarantees and quotas of tables on the drives.
    pub shares: Vec<ShareConfig>,
    /// Tables that are filled before the node's health reports serving.
    pub warm_at_start: Vec<StartWarmConfig>,
    /// The share of requested rows, 0 to 1, that must come from the node's own drives and memory before its health
    /// reports serving, unless no request arrives for 30 s; 0 for no wait.
    pub hit_ratio_at_start: f64,
    /// The maximum time after its start that the node waits for `warm_at_start` and `hit_ratio_at_start`. Then its
    /// health reports serving in any case.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "time"))]
    pub start_max: Duration,
    /// Names of the I/O nodes, all of the same weight. At the start, only the chunks that this node owns among them are
    /// filled. Empty for all chunks.
    pub warm_members: Vec<String>,
    /// The maximum number of bytes that fills write per second, over all drives; 0 for no maximum.
    #[schemars(with = "String", extend("format" = "size"))]
    pub fill_rate: ByteSize,
    /// Limits for requests to object stores.
    pub store: StoreLimits,
    /// Options for object stores, such as `aws_endpoint`.
    pub storage: HashMap<String, String>,
    /// A folder of further options that are secret: a file for each, named like the option or its environment variable
    /// (`AWS_SECRET_ACCESS_KEY`). Keys and tokens of S3 and Azure are read again every 30 s.
    #[schemars(extend("format" = "path"))]
    pub storage_secrets: Option<PathBuf>,
    /// Export of metrics, traces and logs.
    pub telemetry: TelemetryConfig,

    // The fields below are not settings: their values are fixed for all users. Tests and simulations choose other
    // values.
    /// The longest read; a multiple of 4 KiB, at most 256 KiB.
    #[serde(skip)]
    pub read_max: ByteSize,
    /// The time that a drive may take to answer a read before the rows are read from the table instead.
    #[serde(skip)]
    pub read_timeout: Duration,
    /// The length of a phase in which the limit of reads in flight stays the same, while the node searches for the
    /// number that keeps the drives busy.
    #[serde(skip)]
    pub depth_phase: Duration,
    /// The part of `memory` for connections, streams, and batches with their rows and replies, over all cores; requests
    /// beyond it are refused. 0 for half of what is left after the other parts and the size that the directory should
    /// have (`node/memory.rs`), from 32 to 512 MiB per core.
    #[serde(skip)]
    pub traffic_memory: ByteSize,
    /// The maximum number of concurrent fills. Chunks that are scanned together count as one until they are encoded.
    #[serde(skip)]
    pub fills: usize,
    /// Bytes per second that the scrubber reads to find extents that the drives have lost; 0 for none.
    #[serde(skip)]
    pub scrub_rate: ByteSize,
    /// The maximum number of concurrent reads of rows from tables, over all cores. A batch needs one for each pack from
    /// which rows are missing on the drives.
    #[serde(skip)]
    pub table_reads: usize,
    /// The maximum number of rows that one stream may have outstanding.
    #[serde(skip)]
    pub credit_rows: u32,
    /// The maximum number of rows in one batch.
    #[serde(skip)]
    pub batch_rows_max: u32,
    /// The maximum number of pieces of rows that wait for a read, per core; batches beyond it are shed.
    #[serde(skip)]
    pub queue_rows_max: usize,
    /// The maximum number of waiting fills; a miss beyond it is answered but fills nothing.
    #[serde(skip)]
    pub fill_queue_max: usize,
    /// The maximum number of reads of rows from tables that wait, over all cores; a batch that needs one more is
    /// refused.
    #[serde(skip)]
    pub table_queue_max: usize,
    /// The maximum number of versions of tables that are kept open.
    #[serde(skip)]
    pub tables_max: u64,
    /// The number of threads for work that does not run on the cores, except fills. Fills have half as many lanes
    /// (`cache/io/threads.rs`).
    #[serde(skip)]
    pub background_threads: usize,
}

/// One drive.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// A file, which is created if it does not exist, or a raw block device.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// The slab's size. By default that of the existing file or device, or 4 GiB if there is no file.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("format" = "size"))]
    pub size: Option<ByteSize>,
}

/// The way in which reads and writes are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// io_uring if it is available, or else a pool of threads with pread.
    #[default]
    Auto,
    /// io_uring. The node does not start without it.
    #[serde(alias = "io-uring")]
    IoUring,
    /// A pool of threads with pread.
    Pread,
}

impl Default for IoConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7071)),
            tls: None,
            peers: Vec::new(),
            peer_secret: None,
            access: None,
            audit: None,
            name: "io-0".into(),
            serve: Vec::new(),
            also_reads: Vec::new(),
            drives: Vec::new(),
            cores: 0,
            pin: true,
            idle_poll: Duration::ZERO,
            engine: EngineChoice::Auto,
            allow_buffered: false,
            overwrite: false,
            ram_tier: ByteSize::mib(256),
            slots: 256,
            read_max: ByteSize::kib(32),
            read_timeout: Duration::from_millis(500),
            // In this time, a busy drive completes far more reads than a phase needs (`READS_MIN` in
            // `fetch/reader/depth.rs`).
            depth_phase: Duration::from_millis(200),
            segment: ByteSize::mib(64),
            // Sixteen of the largest batches.
            credit_rows: 64 << 10,
            batch_rows_max: 4096,
            // The rows of sixteen streams that have used all their credits, if each row is one piece.
            queue_rows_max: 1 << 20,
            memory: ByteSize::b(0),
            traffic_memory: ByteSize::b(0),
            fills: 2,
            shares: Vec::new(),
            warm_at_start: Vec::new(),
            hit_ratio_at_start: 0.0,
            start_max: Duration::from_secs(600),
            warm_members: Vec::new(),
            fill_rate: ByteSize::b(0),
            // 1 TB of extents in about 33 hours.
            scrub_rate: ByteSize::mib(8),
            fill_queue_max: 4096,
            table_reads: 4,
            table_queue_max: 1024,
            tables_max: 64,
            background_threads: 2,
            store: StoreLimits::default(),
            storage: HashMap::new(),
            storage_secrets: None,
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl IoConfig {
    /// Checks that the values are valid and agree with each other.
    ///
    /// # Errors
    /// [`NodeError::Config`], naming the first field that is wrong.
    pub fn validate(&self) -> Result<(), NodeError> {
        let bad = |field, problem: String| Err(NodeError::Config { field, problem });
        if self.drives.is_empty() {
            let problem = "is empty; name at least one drive: `--drive PATH:SIZE`, or `[[drives]]` with a `path`";
            return bad("drives", problem.into());
        }
        for drive in &self.drives {
            // Checked before a file of that size is created.
            if let Some(size) = drive.size {
                check_size(&drive.path, size.as_u64(), self.segment)?;
            }
            if self.drives.iter().filter(|other| other.path == drive.path).count() > 1 {
                return bad("drives", format!("names {} twice", drive.path.display()));
            }
        }
        let sector = SECTOR_BYTES as u64;
        let read_max = self.read_max.as_u64();
        if !read_max.is_multiple_of(sector) || !(sector..=256 << 10).contains(&read_max) {
            return bad("read_max", "must be a multiple of 4KiB, at most 256KiB".into());
        }
        if !self.segment.as_u64().is_multiple_of(sector) || self.segment < ByteSize::mib(1) {
            return bad("segment", "must be a multiple of 4KiB, at least 1MiB".into());
        }
        if self.read_timeout < Duration::from_millis(2) {
            return bad("read_timeout", "must be at least 2ms".into());
        }
        if let Some(problem) = idle::fault(self.idle_poll) {
            return bad("idle_poll", problem.into());
        }
        if self.credit_rows < self.batch_rows_max {
            return bad("credit_rows", "must be at least batch_rows_max".into());
        }
        if self.queue_rows_max < self.batch_rows_max as usize {
            return bad("queue_rows_max", "must be at least batch_rows_max".into());
        }
        access::check(self)?;
        serve::check(self)?;
        shares(self)?;
        self.warm_at_start.iter().try_for_each(StartWarmConfig::check)?;
        if !(0.0..=1.0).contains(&self.hit_ratio_at_start) {
            return bad("hit_ratio_at_start", "is a share of rows; write it like 0.9".into());
        }
        if let Some(name) = duplicate(&self.warm_members) {
            return bad("warm_members", format!("names `{name}` twice"));
        }
        if let Some((field, problem)) = self.store.fault().or_else(|| self.telemetry.fault()) {
            return bad(field, problem);
        }
        let counts = [
            ("slots", self.slots as usize),
            ("batch_rows_max", self.batch_rows_max as usize),
            ("queue_rows_max", self.queue_rows_max),
            ("fills", self.fills),
            ("fill_queue_max", self.fill_queue_max),
            ("table_reads", self.table_reads),
            ("table_queue_max", self.table_queue_max),
            ("tables_max", self.tables_max as usize),
            ("background_threads", self.background_threads),
        ];
        for (field, value) in counts {
            if value == 0 {
                return bad(field, "must be at least 1".into());
            }
        }
        Ok(())
    }
}

/// Returns the first name that occurs twice.
fn duplicate(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut IoConfig)) -> Result<(), NodeError> {
        let drive = DriveConfig { path: "/x".into(), size: Some(ByteSize::gib(1)) };
        let serve = vec![UriPrefix::of_config("/t").unwrap()];
        let mut config = IoConfig { serve, drives: vec![drive], ..Default::default() };
        change(&mut config);
        config.validate()
    }

    #[test]
    fn each_contradiction_names_its_field() {
        assert!(with(|_| {}).is_ok());
        let field = |result| match result {
            Err(NodeError::Config { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(field(with(|c| c.drives.clear())), "drives");
        assert_eq!(field(with(|c| c.drives.push(c.drives[0].clone()))), "drives");
        assert_eq!(field(with(|c| c.drives[0].size = Some(ByteSize::mib(1)))), "drives");
        assert_eq!(field(with(|c| c.drives[0].size = Some(c.segment))), "drives");
        assert_eq!(field(with(|c| c.read_max = ByteSize::b(5000))), "read_max");
        assert_eq!(field(with(|c| c.segment = ByteSize::b(4096))), "segment");
        assert_eq!(field(with(|c| c.read_timeout = Duration::ZERO)), "read_timeout");
        assert_eq!(field(with(|c| c.idle_poll = Duration::from_secs(2))), "idle_poll");
        assert_eq!(field(with(|c| c.credit_rows = 1)), "credit_rows");
        assert_eq!(field(with(|c| c.fills = 0)), "fills");
        assert_eq!(field(with(|c| c.serve.clear())), "serve");
        assert_eq!(field(with(|c| c.hit_ratio_at_start = 90.0)), "hit_ratio_at_start");
        assert_eq!(field(with(|c| c.hit_ratio_at_start = f64::NAN)), "hit_ratio_at_start");
        assert!(with(|c| c.hit_ratio_at_start = 1.0).is_ok());
        let names = || vec!["a".to_owned(), "a".to_owned()];
        assert_eq!(field(with(|c| c.warm_members = names())), "warm_members");
        let warm = |uri: &str, columns| StartWarmConfig { uri: uri.into(), version: 0, columns };
        assert_eq!(field(with(|c| c.warm_at_start = vec![warm("", vec![])])), "warm_at_start");
        assert_eq!(field(with(|c| c.warm_at_start = vec![warm("/t", names())])), "warm_at_start");
        assert!(with(|c| c.warm_at_start = vec![warm("/t", vec!["a".into()])]).is_ok());
        assert_eq!(field(with(|c| c.warm_at_start = vec![warm("/u", vec![])])), "serve");
        assert_eq!(
            field(with(|c| c.warm_at_start = vec![warm("/t/../u", vec![])])),
            "warm_at_start"
        );
    }

    #[test]
    fn a_share_of_a_tables_files_needs_only_the_table_to_be_served() {
        let (minimum, maximum, pinned) = (ByteSize::mib(64), None, false);
        let share = |uri: &str| ShareConfig { uri: uri.into(), minimum, maximum, pinned };
        assert!(with(|c| c.shares = vec![share("/t/_files")]).is_ok());
        let error = with(|c| c.shares = vec![share("/u/_files")]).unwrap_err().to_string();
        assert!(error.contains("does not cover /u,"), "{error}");
    }

    #[test]
    fn a_node_that_serves_nothing_is_told_the_line_to_add() {
        let error = with(|c| c.serve.clear()).unwrap_err().to_string();
        assert!(error.contains("add the line `serve = [\"s3://bucket/tables/\"]`"), "{error}");
        let warm = |uri: &str| StartWarmConfig { uri: uri.into(), version: 0, columns: vec![] };
        let error = with(|c| {
            c.serve.clear();
            c.warm_at_start = vec![warm("s3://b/t/"), warm("/u"), warm("/u/")];
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("add the line `serve = [\"/u\", \"s3://b/t\"]`"), "{error}");
    }
}
