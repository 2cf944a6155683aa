//! An I/O node: its cores, the listener that distributes connections to them, and the background tasks. This folder
//! only composes the mechanisms, which are in the other folders.

mod core_thread;
mod memory;
mod metrics;
mod parts;
mod readiness;
mod start_warm;
mod stepped;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use audit::HandshakeAudit;
use connections::{AcceptOptions, Acceptor, Lifetimes};
use futures::FutureExt;
use ring::sim::SimDisk;
use tables::Tables;
use telemetry::{Identity, Telemetry, Tracer};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use tokio::sync::oneshot::error::TryRecvError;

use self::core_thread::{CoreStart, run};
use self::metrics::NodeMetrics;
use self::parts::{NodeParts, Threads};
use self::readiness::become_ready;
use self::start_warm::run_at_start;
use crate::cache::{FillLane, FillThreads, Filler};
use crate::config::{self, IoConfig};
use crate::drive::{self, Drives};
use crate::error::{NodeError, os_error};
use crate::fetch::CorePlan;
use crate::serve::ServiceState;
use crate::shard::Accepted;
use crate::shard::mailbox::{Mailbox, Message};
use crate::table::ServedTables;

pub use metrics::METRICS;
pub use stepped::{SteppedNode, SteppedState};

/// A running I/O node. Dropping it without [`stop`](Self::stop) abandons the work under way. The drop blocks until no
/// step of a fill is polled any more: milliseconds as a rule, and 5 s at most.
pub struct IoNode {
    local_addr: SocketAddr,
    engine: String,
    shared: Arc<ServiceState>,
    cores: Vec<JoinHandle<()>>,
    acceptor: Option<Acceptor>,
    running: RunningTasks,
    recovery: Recovery,
    telemetry: Telemetry,
}

/// The running cores and background threads of a node. Dropping this ends them, including those of a node that fails to
/// start.
struct RunningTasks {
    /// The threads for fills.
    fills: Vec<FillLane>,
    /// The runtime of the background threads; `None` after it was shut down.
    background: Option<Runtime>,
    /// The mailboxes of the cores that were started.
    mailboxes: Arc<[Mailbox]>,
}

impl RunningTasks {
    fn send_to_cores(&self, message: fn() -> Message) {
        self.mailboxes.iter().for_each(|mailbox| drop(mailbox.send(message())));
    }
}

impl Drop for RunningTasks {
    fn drop(&mut self) {
        // The cores must not drain: work under way may wait for the background threads, which end now.
        self.send_to_cores(|| Message::End);
        // All lanes are told to end before the first one is waited for, so that they end within one time limit.
        for lane in &mut self.fills {
            lane.end();
        }
        self.fills.clear();
        // The owner may drop the node within another runtime, where blocking on a runtime is not allowed.
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

/// The number of extents that a node found on its drives when it started, and the time that finding them took.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// The number of extents.
    pub extents: usize,
    /// The time to read and decode the journals.
    pub reading: Duration,
    /// The time to add the extents to the directory.
    pub placing: Duration,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a node that serves has the real clock; a SteppedNode is simulated"
)]
impl IoNode {
    /// Opens the drives, starts one ring per core, recovers the extents on the drives, and listens. Returns once the
    /// node serves rows of `tables`.
    ///
    /// # Errors
    /// The configuration contradicts itself; a drive, or a file that the configuration names, cannot be used; a ring
    /// cannot start; the node cannot listen on an address, its own or that of metrics or probes. Nothing is left
    /// running.
    pub fn start(config: IoConfig, tables: Arc<dyn Tables>) -> Result<Self, NodeError> {
        config.validate()?;
        let drives = Drives::open(&config)?;
        Self::start_on(config, drives, tables, Lifetimes::default())
    }

    /// Starts a node with other lifetimes of connections than the default. For tests.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_with_lifetimes(
        config: IoConfig,
        tables: Arc<dyn Tables>,
        lifetimes: Lifetimes,
    ) -> Result<Self, NodeError> {
        config.validate()?;
        let drives = Drives::open(&config)?;
        Self::start_on(config, drives, tables, lifetimes)
    }

    /// Starts a node on the drives of `disk`, whose faults a test controls.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_simulated(
        mut config: IoConfig,
        disk: &SimDisk,
        tables: Arc<dyn Tables>,
    ) -> Result<Self, NodeError> {
        let drives = Drives::simulated(&config, disk)?;
        config.drives = drives.configured();
        config.validate()?;
        Self::start_on(config, drives, tables, Lifetimes::default())
    }

    fn start_on(
        config: IoConfig,
        drives: Drives,
        tables: Arc<dyn Tables>,
        lifetimes: Lifetimes,
    ) -> Result<Self, NodeError> {
        let started = Instant::now();
        let listener = bind(config.listen)?;
        let cpus = cpus(&config)?;
        let count = config.background_threads;
        let background = background(count)?;
        // Start only half as many lanes as background threads, so that fills do not occupy all CPUs: a kernel without
        // preemption cannot take the CPU from a lane's thread while that thread is in a long system call.
        let fills: std::io::Result<Vec<_>> =
            (0..count.div_ceil(2)).map(|_| FillLane::start()).collect();
        let fills = fills.map_err(os_error("starting the threads of fills"))?;
        let identity = Identity {
            service: "bireme-io",
            node: config.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let handle = background.handle().clone();
        let threads =
            Threads { background: handle.clone(), fills: FillThreads::from_lanes(&fills) };
        let background = Some(background);
        let mut running = RunningTasks { fills, background, mailboxes: Arc::new([]) };
        let tracer = Tracer::start(&config.telemetry, &identity, &handle)?;
        // Derive the lowest epoch from the clock, so that no epoch is used twice.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_min = since.as_micros() as u64;
        let (config, served) = resolved(config, Arc::clone(&tables), &handle)?;
        let tables = (tables, served);
        let parts = NodeParts::new(config, drives, tables, cpus.len(), threads, tracer, epoch_min)?;
        let NodeParts { shared, core, memory, tls, connection_slots, mails, mut filler, claims } =
            parts;
        let node = &shared.node;
        running.mailboxes = Arc::clone(&node.mailboxes);
        let (cores, engine) = start_cores(&shared, &core, &cpus, mails)?;
        // Only bind the ports here. The metrics are served once the extents are found again: until then they would say
        // that the drives are empty.
        let telemetry = Telemetry::bind(&node.config.telemetry, &handle)?;
        let began = Instant::now();
        let found = drive::claim_and_recover(&node.slabs, &claims)?;
        let reading = began.elapsed();
        let extents = handle.block_on(filler.restore(found));
        let recovery = Recovery { extents, reading, placing: began.elapsed() - reading };
        tracing::info!(extents, took = ?started.elapsed(), "extents on the drives are found again");
        handle.spawn(run_filler(filler));
        handle.spawn(run_at_start(Arc::clone(&shared)));
        handle.spawn(become_ready(Arc::clone(&shared)));
        if let Some(file) = shared.peers.secret_file() {
            handle.spawn(Arc::clone(file).follow());
        }
        let local_addr = listener.local_addr().map_err(os_error("listening"))?;
        let options = AcceptOptions {
            tls: tls.clone(),
            audit: node.audit.as_ref().map(|it| HandshakeAudit::new(it, &node.config.name)),
            slots: Arc::clone(&connection_slots),
            lifetimes,
        };
        let acceptor = accept(&node.mailboxes, listener, options).map_err(os_error("listening"))?;
        tracing::info!(%local_addr, %engine, name = node.config.name, "I/O node serves");
        if node.config.is_open_beyond_loopback() {
            tracing::warn!(
                "anyone who reaches {local_addr} may read all tables of `serve`, because `access` is `open`; name the \
                 query nodes in `peers`, or share a secret with them (`peer_secret`)"
            );
        }
        let metrics = NodeMetrics { shared: Arc::clone(&shared), memory, tls, connection_slots };
        let telemetry = telemetry.start(&identity, metrics, &handle)?;
        let acceptor = Some(acceptor);
        Ok(Self { local_addr, engine, shared, cores, acceptor, running, recovery, telemetry })
    }

    /// Returns the address that the node listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns a description of the engine of the node's rings.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Returns the node's configuration.
    pub fn config(&self) -> &IoConfig {
        &self.shared.node.config
    }

    /// Returns the path of each drive's slab, and its size in bytes.
    pub fn drives(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.shared.node.slabs.iter().map(|slab| (slab.path(), slab.len()))
    }

    /// Returns the address at which Prometheus can read the node's metrics, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.telemetry.metrics_addr()
    }

    /// Returns the address that answers only probes, if there is one.
    pub fn probes_addr(&self) -> Option<SocketAddr> {
        self.telemetry.probes_addr()
    }

    /// Returns how many extents were found on the node's drives at the start, and how long that took.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns whether the node's health reports serving: the start warm has ended or timed out, and the hit ratio is
    /// high enough or the wait for it has ended.
    pub fn is_ready(&self) -> bool {
        self.shared.readiness.is_ready()
    }

    /// Returns the number of extents on the node's drives.
    pub fn extents(&self) -> u64 {
        self.shared.node.fills.stats().extents.load(Ordering::Relaxed)
    }

    /// Fills `extents` extents of `sectors` sectors each, `at_once` at a time. They are encoded beforehand, so the
    /// returned duration measures only the writing and recording.
    ///
    /// # Errors
    /// The reason why an extent could not be filled.
    pub fn fill_ready(
        &self,
        extents: u32,
        sectors: u32,
        at_once: usize,
    ) -> Result<Duration, NodeError> {
        let name = uuid::Uuid::new_v4().as_u128();
        let filled = self.shared.node.fills.fill_ready(name, extents, sectors, at_once);
        self.shared.node.background.block_on(filled)
    }

    /// Stops the node: it accepts no more connections, writes the last extents to the journals, ends each stream once
    /// its batches are answered, and drains the rings. Whatever is not done within `limit` is abandoned, except that the
    /// audit log has a second in any case. The node is then dropped, which may take up to 5 s more while a step
    /// of a fill is polled.
    pub fn stop(mut self, limit: Duration) {
        drop(self.acceptor.take());
        self.shared.readiness.end();
        let deadline = Instant::now() + limit;
        let mut stopped = self.shared.node.fills.stop();
        // The rings still run. Writing the journals may use half of the time; the other half is for the streams.
        let until = Instant::now() + limit / 2;
        while stopped.try_recv() == Err(TryRecvError::Empty) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        self.running.send_to_cores(|| Message::Stop);
        for thread in self.cores.drain(..) {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        if let Some(audit) = &self.shared.node.audit {
            let left = deadline.saturating_duration_since(Instant::now());
            audit.flush(left.max(AUDIT_PATIENCE));
        }
        self.shared.node.tracer.flush(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Runs the filler. A panic means that an invariant of the cache's books is broken, so nothing in them can be relied
/// on. The process then aborts; after a restart the books are rebuilt from the journals.
async fn run_filler(filler: Filler) {
    if AssertUnwindSafe(filler.run()).catch_unwind().await.is_err() {
        tracing::error!("the cache's books are wrong, which is a defect; the process ends");
        std::process::abort();
    }
}

/// The minimum time that [`IoNode::stop`] gives the audit log to write its lines, also if the cores have used up the
/// whole limit.
const AUDIT_PATIENCE: Duration = Duration::from_secs(1);

/// The interval at which [`IoNode::stop`] checks whether the filler, and then each core, has stopped. Each of these
/// waits takes at most this much longer. The wait for the lanes of fills, after them, has a limit of its own.
const POLL: Duration = Duration::from_millis(2);

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, NodeError> {
    let listen_error = |source| NodeError::Listen { address: address.to_string(), source };
    let listener = std::net::TcpListener::bind(address).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    Ok(listener)
}

fn background(threads: usize) -> Result<Runtime, NodeError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("bireme-io-background")
        .enable_all()
        .build()
        .map_err(os_error("starting the background's threads"))
}

/// Returns the configuration with resolved table URIs, and the tables that are served. The URIs are resolved on
/// `background`, because the caller may already be inside a runtime, in which blocking on a future is not allowed.
fn resolved(
    mut config: IoConfig,
    tables: Arc<dyn Tables>,
    background: &Handle,
) -> Result<(IoConfig, ServedTables), NodeError> {
    let (done, resolved) = std::sync::mpsc::channel();
    background.spawn(async move {
        let served = config::resolve(&mut config, tables.as_ref()).await;
        let _ = done.send((config, served));
    });
    let ended =
        |_| os_error("resolving the URIs of tables")(std::io::Error::other("its task ended"));
    resolved.recv().map_err(ended)
}

fn accept(
    cores: &Arc<[Mailbox]>,
    listener: std::net::TcpListener,
    options: AcceptOptions,
) -> std::io::Result<Acceptor> {
    let cores = Arc::clone(cores);
    connections::accept(listener, options, move |core, accepted| {
        let accepted = Accepted::Socket(Box::new(accepted));
        drop(cores[core].send(Message::Connection(accepted)));
    })
}

/// Returns a CPU for each core's thread, or `None` for each if threads are not pinned.
fn cpus(config: &IoConfig) -> Result<Vec<Option<usize>>, NodeError> {
    let allowed =
        ring::affinity::allowed_cores().map_err(os_error("asking for the affinity mask"))?;
    let count = if config.cores == 0 { allowed.len() } else { config.cores };
    if config.pin && count > allowed.len() {
        let problem = format!(
            "is {count}, and the affinity mask allows {}; ask for fewer or set pin = false",
            allowed.len()
        );
        return Err(NodeError::Config { field: "cores", problem });
    }
    Ok((0..count).map(|at| config.pin.then(|| allowed[at])).collect())
}

type Started = (Vec<JoinHandle<()>>, String);

fn start_cores(
    shared: &Arc<ServiceState>,
    plan: &CorePlan,
    cpus: &[Option<usize>],
    mails: Vec<mpsc::UnboundedReceiver<Message>>,
) -> Result<Started, NodeError> {
    let mut threads = Vec::new();
    let mut engine = String::new();
    for (number, (&cpu, mail)) in cpus.iter().zip(mails).enumerate() {
        let (started, outcome) = std::sync::mpsc::channel();
        let (shared, plan) = (Arc::clone(shared), plan.clone());
        let start = CoreStart { number, cpu, shared, plan, mail, started };
        let thread = std::thread::Builder::new()
            .name(format!("bireme-io-{number}"))
            .spawn(move || run(start))
            .map_err(os_error("starting a core's thread"))?;
        threads.push(thread);
        // Receiving fails if the thread panicked, which dropped its sender.
        engine = match outcome.recv() {
            Ok(outcome) => outcome?,
            Err(_) => {
                let source = std::io::Error::other("its thread ended");
                return Err(NodeError::Os { doing: "starting a core", source });
            }
        };
    }
    Ok((threads, engine))
}
