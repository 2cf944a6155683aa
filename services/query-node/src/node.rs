//! A running query node: its shards, the listener that deals connections to them, and the task that follows its tables
//! and folders, its access policy, its secret, and the I/O nodes for index and deletion files.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::RENEWED_EVERY;
use audit::HandshakeAudit;
use connections::{AcceptOptions, Acceptor, Lifetimes};
use lake::Lake;
use telemetry::Telemetry;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{info, warn};
use wire::query::query_service_server::QueryServiceServer;

use crate::config::QueryConfig;
use crate::error::{QueryError, Result};
use crate::metrics::NodeMetrics;
use crate::service::Service;
use crate::shard::{self, Phase, ShardStart};
use crate::state::NodeState;

/// The maximum time that shutdown waits for the last lines of the audit log, and as long again for the last spans.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// The maximum time that shutdown waits for the cores to drop the requests that have not finished. It takes
/// milliseconds, unless a core is in the middle of long work.
const DROP_PATIENCE: Duration = Duration::from_millis(500);

/// A query node that serves until it is shut down. Dropping it stops it at once.
pub struct QueryNode {
    local_addr: SocketAddr,
    shared: Arc<NodeState>,
    health: HealthReporter,
    /// Becomes true when the node is ready, and stays true.
    ready: watch::Receiver<bool>,
    phase: watch::Sender<Phase>,
    /// Receives each shard's result when the shard has ended.
    ended: mpsc::UnboundedReceiver<Result<()>>,
    acceptor: Option<Acceptor>,
    follower: JoinHandle<()>,
    /// Writes the runs of key indexes. It has a task of its own, because it hashes keys, which must not delay a follower.
    run_writer: JoinHandle<()>,
    telemetry: Telemetry,
}

impl QueryNode {
    /// Validates the configuration, binds the port, and serves on threads of its own. Tables are opened in the
    /// background. A table that cannot be opened is listed with its error and tried again. Must be called within a
    /// multi-threaded Tokio runtime, on which Lance plans and reads.
    ///
    /// The health service (`grpc.health.v1`) reports `SERVING` once the node has tried to open each table of `tables` and
    /// to list each of `folders`, has read a first list of I/O nodes, and has loaded the indexes of tables with
    /// `warm_indexes`. It then reports `SERVING` until shutdown, even if no I/O node answers: rows are then read from the
    /// tables.
    ///
    /// # Errors
    /// [`QueryError::Config`], [`QueryError::Members`] or [`QueryError::Listen`], among others.
    pub async fn start(config: QueryConfig, lake: Lake) -> Result<Self> {
        let listen = config.listen;
        let refresh_interval = config.refresh_interval;
        let shared = Arc::new(NodeState::new(config, lake, Handle::current()).await?);
        let listen_error = |source| QueryError::Listen { address: listen.to_string(), source };
        let listener = std::net::TcpListener::bind(listen).map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        let (health, health_service) = tonic_health::server::health_reporter();
        report(&shared, &health, ServingStatus::NotServing).await;
        let (phase, phases) = watch::channel(Phase::Serving);
        let (ends, ended) = mpsc::unbounded_channel();
        let start = |number| {
            let (phase, health, ended) = (phases.clone(), health_service.clone(), ends.clone());
            shard::start(&shared, ShardStart { number, phase, health, ended })
        };
        let cores = shared.config.core_count();
        let started = (0..cores).map(start).collect::<Result<Vec<_>>>()?;
        let (dealt, states): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        shared.set_cores(states);
        let telemetry = Telemetry::start(
            &shared.config.telemetry,
            &shared.config.identity(),
            NodeMetrics(Arc::clone(&shared)),
            &Handle::current(),
        )?;
        let options = AcceptOptions {
            tls: shared.tls.clone(),
            audit: shared.audit.as_ref().map(|it| HandshakeAudit::new(it, &shared.config.name)),
            slots: Arc::clone(&shared.connection_slots),
            lifetimes: Lifetimes::default(),
        };
        let give = move |core: usize, accepted| drop(dealt[core].send(accepted));
        let acceptor = connections::accept(listener, options, give);
        let acceptor = Some(acceptor.map_err(|error| QueryError::Server(error.to_string()))?);
        let (is_ready, ready) = watch::channel(false);
        let follower = tokio::spawn({
            let (shared, health) = (Arc::clone(&shared), health.clone());
            async move {
                let serve = async {
                    become_ready(&shared, &health).await;
                    is_ready.send_replace(true);
                    follow(&shared, refresh_interval).await;
                };
                let policy = follow_policy(&shared);
                let secret = shared.io_nodes.follow_secret();
                let files = shared.files.follow(&shared.io_nodes);
                let releases = shared.catalog.release_dropped_files();
                tokio::join!(serve, follow_folders(&shared), policy, secret, files, releases);
            }
        });
        let run_writer = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.catalog.write_key_runs().await }
        });
        if shared.is_open_to_others() {
            warn!("access is open: everybody who reaches {local_addr} may read all tables");
        }
        info!(%local_addr, cores, "the query node listens");
        Ok(Self {
            local_addr,
            shared,
            health,
            ready,
            phase,
            ended,
            acceptor,
            follower,
            run_writer,
            telemetry,
        })
    }

    /// Returns the address on which the node listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the address of the Prometheus endpoint, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.telemetry.metrics_addr()
    }

    /// Returns the address that answers only probes, if there is one.
    pub fn probes_addr(&self) -> Option<SocketAddr> {
        self.telemetry.probes_addr()
    }

    /// Waits until the node is ready: it has tried to open each table of `tables` and to list each of `folders`, has read a
    /// first list of I/O nodes, and has loaded the indexes of tables with `warm_indexes`.
    pub async fn ready(&self) {
        // The sender is dropped only with the node.
        let _ = self.ready.clone().wait_for(|&ready| ready).await;
    }

    /// Returns the source of the list of I/O nodes, and their number.
    pub fn io_nodes(&self) -> (&str, usize) {
        let io_nodes = &self.shared.io_nodes;
        let count = io_nodes.views().borrow().members.len();
        (io_nodes.source(), count)
    }

    /// Returns the number of rows that were read from the tables since the start because no I/O node returned them.
    pub fn fallback_rows(&self) -> u64 {
        self.shared.fallback_rows()
    }

    /// Lists the folders, opens tables of `tables` that are not open, tries again to open tables of folders that could
    /// not be opened, and checks open tables for a new version, without waiting for the intervals. Tables with a pinned
    /// version are not checked.
    pub async fn refresh(&self) {
        self.shared.catalog.list_folders().await;
        self.shared.catalog.refresh().await;
    }

    /// Has the I/O nodes evict the files of indexes that were dropped, without waiting until no request can use them.
    pub async fn release_dropped_files(&self) {
        self.shared.catalog.release_files_dropped(Duration::ZERO).await;
    }

    /// Reads the access policy and the issuers' keys again if they have changed, without waiting for the interval.
    pub async fn reload_policy(&self) {
        self.shared.access.reload_if_changed().await;
    }

    /// Reports that the node no longer serves, stops accepting connections, and lets requests finish. Requests that
    /// have not finished after `patience` are dropped.
    ///
    /// # Errors
    /// [`QueryError::Server`] if the server failed.
    pub async fn shutdown(mut self, patience: Duration) -> Result<()> {
        self.run_writer.abort();
        self.follower.abort();
        let _ = (&mut self.run_writer).await;
        // Wait for the task's end: otherwise it might still report that the node is ready.
        let _ = (&mut self.follower).await;
        report(&self.shared, &self.health, ServingStatus::NotServing).await;
        drop(self.acceptor.take());
        self.phase.send_replace(Phase::Draining);
        let ended = match tokio::time::timeout(patience, all_ended(&mut self.ended)).await {
            Ok(ended) => ended,
            Err(_) => {
                warn!("requests were still running after {patience:?}, and are dropped");
                // The audit log gets the lines of these requests when they are dropped.
                self.phase.send_replace(Phase::Stopped);
                let _ = tokio::time::timeout(DROP_PATIENCE, all_ended(&mut self.ended)).await;
                Ok(())
            }
        };
        // Tables keep the files' streams to the I/O nodes, and may outlast the node. These streams would report an I/O
        // node that stops later as lost.
        self.shared.files.disconnect();
        let (tracer, audit) = (self.shared.tracer.clone(), self.shared.audit.clone());
        // The flushes block until the file is written and the spans' receiver has answered.
        let flush = move || {
            audit.iter().for_each(|audit| audit.flush(FLUSH_PATIENCE));
            tracer.flush(FLUSH_PATIENCE);
        };
        let _ = tokio::task::spawn_blocking(flush).await;
        ended
    }
}

impl Drop for QueryNode {
    fn drop(&mut self) {
        self.run_writer.abort();
        self.follower.abort();
        self.phase.send_replace(Phase::Stopped);
    }
}

/// Waits until all shards have ended, and returns the first error. Every shard drops its sender when it ends.
async fn all_ended(shards: &mut mpsc::UnboundedReceiver<Result<()>>) -> Result<()> {
    let mut all = Ok(());
    while let Some(ended) = shards.recv().await {
        all = all.and(ended);
    }
    all
}

/// Reports the health of the node as a whole (the service without a name) and of its query service.
async fn report(shared: &NodeState, health: &HealthReporter, status: ServingStatus) {
    shared.set_ready(status == ServingStatus::Serving);
    for service in ["", QueryServiceServer::<Service>::NAME] {
        health.set_service_status(service, status).await;
    }
}

/// Opens the tables, lists the folders, waits for a list of I/O nodes, loads indexes, and reports that the node serves.
async fn become_ready(shared: &NodeState, health: &HealthReporter) {
    let mut views = shared.io_nodes.views();
    let listed = async { drop(views.wait_for(|view| view.generation > 0).await) };
    tokio::join!(shared.catalog.list_folders(), shared.catalog.refresh(), listed);
    shared.catalog.warm_indexes().await;
    report(shared, health, ServingStatus::Serving).await;
    let listed = shared.catalog.list();
    let open = listed.iter().filter(|table| table.current.is_some()).count();
    info!(tables = listed.len(), open, "the query node is ready");
}

/// Checks the tables for new versions after each interval.
async fn follow(shared: &NodeState, interval: Duration) {
    let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.catalog.refresh().await;
    }
}

/// Lists the folders of tables after each interval.
async fn follow_folders(shared: &NodeState) {
    if shared.config.folders.is_empty() {
        return;
    }
    loop {
        tokio::time::sleep(shared.config.folder_refresh).await;
        shared.catalog.list_folders().await;
    }
}

/// Reads the access policy again when its files have changed.
async fn follow_policy(shared: &NodeState) {
    let mut ticks = tokio::time::interval(RENEWED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.access.reload_if_changed().await;
    }
}
