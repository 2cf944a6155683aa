//! State that requests share: per core ([`ShardState`]) and per node ([`NodeState`]).
//!
//! `admission.rs` has the queues of work that waits, `held_rows.rs` counts the memory of rows, and
//! `waiting_requests.rs` has the Gets and look-ups that wait for each other.

mod admission;
mod held_rows;
mod waiting_requests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use access::Access;
use audit::Audit;
use connections::idle::ActivityCounter;
use connections::tls::{ClientCertificates, ServerTls};
use connections::{Caps, ConnectionSlots, connections_by_memory, is_beyond_loopback};
use lake::Lake;
use telemetry::Tracer;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use traffic::{ProjectionMemory, TrafficMemory};

use self::admission::AdmissionQueue;
pub use self::admission::Ask;
pub use self::held_rows::{HeldRows, RowMemory};
pub use self::waiting_requests::{MemberRows, WaitingRequest, WaitingRequests, groups};
use crate::config::{AccessConfig, QueryConfig};
use crate::counters::ShardMetrics;
use crate::error::{QueryError, Result};
use crate::io_nodes::{IoNodes, IoTier, TierFiles};
use crate::memory::core_traffic;
use crate::tables::Catalog;

/// State of one shard, shared by the requests of its core.
pub struct ShardState {
    /// The node's state, shared by all cores.
    pub shared: Arc<NodeState>,
    /// The core's own streams to the I/O nodes.
    pub tier: IoTier,
    /// The core's counters and histograms.
    pub metrics: ShardMetrics,
    /// Counts the beginnings and ends of requests. The thread keeps polling for a while after each of them
    /// (`idle_poll`).
    pub activity: Arc<ActivityCounter>,
    /// The requests for rows by key that wait on the core.
    pub waiting_requests: WaitingRequests,
    /// The memory that the core's callers may hold.
    pub memory: Arc<TrafficMemory>,
    /// The part of `memory` that rows hold.
    pub row_memory: Arc<RowMemory>,
    /// The part of `memory` that the projections of Lookup streams hold.
    pub projection_memory: ProjectionMemory,
    /// The runtime of the core's own thread.
    pub runtime: Handle,
}

/// State of a query node, shared by its cores.
pub struct NodeState {
    pub config: QueryConfig,
    pub access: Access,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    pub catalog: Catalog,
    pub admission: AdmissionQueue,
    pub io_nodes: IoNodes,
    /// Reads index and deletion files from the I/O nodes.
    pub files: Arc<TierFiles>,
    /// TLS for clients; `None` if connections are unencrypted.
    pub tls: Option<Arc<ServerTls>>,
    /// Slots for clients' connections.
    pub connection_slots: Arc<ConnectionSlots>,
    /// The memory that callers of one core may hold, in bytes.
    pub core_traffic: u64,
    /// Exports requests' spans.
    pub tracer: Tracer,
    /// Has one permit, so that one Tune runs at a time.
    pub tunes: Semaphore,
    /// Has one permit, so that one index at a time is loaded ahead of its use.
    pub prewarms: Semaphore,
    /// Has one permit, so that one list at a time of the rows that pass a filter is made ahead of its use.
    pub lists: Arc<Semaphore>,
    cores: OnceLock<Vec<Weak<ShardState>>>,
    fallback_rows: AtomicU64,
    ready: AtomicBool,
}

impl NodeState {
    /// Validates `config` and starts following the list of I/O nodes. Opens no table yet. `background` runs the work
    /// that Lance plans, and sends spans. Waits for the first list, or the first failure, of the I/O nodes' source.
    ///
    /// # Errors
    /// The first problem of the configuration or of a file that it names, or [`QueryError::Members`] if the list of I/O
    /// nodes is refused.
    pub async fn new(config: QueryConfig, lake: Lake, background: Handle) -> Result<Self> {
        config.validate()?;
        let clients = match &config.access {
            // Callers may present a token or a key instead of a certificate.
            Some(AccessConfig::Policy(_)) => ClientCertificates::Optional,
            Some(AccessConfig::Open) | None => ClientCertificates::Required,
        };
        let tls =
            config.tls.as_ref().map(|tls| ServerTls::load_with_http1(tls, clients)).transpose();
        let tls = tls.map_err(|error| QueryError::Tls { field: "tls", error })?;
        let certificates = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let access = match &config.access {
            Some(AccessConfig::Policy(file)) => Access::load(file, certificates).await?,
            Some(AccessConfig::Open) | None => Access::open(),
        };
        let open_log = |path: &PathBuf| {
            Audit::open(path).map_err(|source| QueryError::Audit { path: path.clone(), source })
        };
        let audit = config.audit.as_ref().map(open_log).transpose()?;
        let cores = config.core_count();
        let core_traffic = core_traffic(&config, cores, process::memory_bytes())?;
        let connections = connections_by_memory(cores, core_traffic);
        let caps = Caps::new(connections, process::descriptors());
        let connection_slots = ConnectionSlots::new(caps, cores);
        let io_nodes = IoNodes::start(&config).await?;
        let files = {
            let _streams_run_there = background.enter();
            Arc::new(TierFiles::new(&config, &io_nodes)?)
        };
        lake.read_files_through(Arc::clone(&files) as _);
        let tracer = Tracer::start(&config.telemetry, &config.identity(), &background)?;
        let concurrency = match config.search_concurrency {
            0 => cores,
            concurrency => concurrency,
        };
        Ok(Self {
            access,
            audit,
            catalog: Catalog::new(lake, &config, background.clone()),
            admission: AdmissionQueue::new(concurrency, config.search_queue_max, background),
            io_nodes,
            files,
            tls,
            connection_slots,
            core_traffic,
            tracer,
            cores: OnceLock::new(),
            tunes: Semaphore::new(1),
            prewarms: Semaphore::new(1),
            lists: Arc::new(Semaphore::new(1)),
            fallback_rows: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            config,
        })
    }

    /// Records the running cores. Only the first call has an effect.
    pub fn set_cores(&self, cores: Vec<Weak<ShardState>>) {
        let _ = self.cores.set(cores);
    }

    /// Returns the cores that are running.
    pub fn cores(&self) -> Vec<Arc<ShardState>> {
        self.cores.get().into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Runs an empty task on each core. Returns whether every core that was started has finished its task.
    pub async fn cores_answer(&self) -> bool {
        let cores = self.cores();
        for core in &cores {
            if core.runtime.spawn(async {}).await.is_err() {
                return false;
            }
        }
        self.cores.get().is_some_and(|started| started.len() == cores.len())
    }

    /// Returns whether everybody who reaches the node may use it, and the node listens on more than loopback.
    pub fn is_open_to_others(&self) -> bool {
        self.access.is_open() && is_beyond_loopback(self.config.listen)
    }

    /// Returns whether the node reports that it serves.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Sets whether the node reports that it serves.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Counts rows that are read from the table because no I/O node returns them.
    pub fn count_fallback(&self, rows: usize) {
        self.fallback_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Returns the number of rows that were read from the tables since the start because no I/O node returned them.
    pub fn fallback_rows(&self) -> u64 {
        self.fallback_rows.load(Ordering::Relaxed)
    }
}
