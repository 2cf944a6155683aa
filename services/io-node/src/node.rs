//! An I/O node: its cores, the state that they share, and the listener that deals connections to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use connections::tls::ServerTls;
use connections::{
    AcceptOptions, Acceptor, Caps, ConnectionSlots, Lifetimes, connections_by_memory,
};
use ring::sim::SimDisk;
use ring::{Engine, RingConfig, SlabFile};
use tables::Tables;
use telemetry::{Identity, Telemetry, Tracer};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use crate::config::{self, IoConfig, check_promised, shares};
use crate::error::NodeError;
use crate::fill::{FillHandle, FillLane, FillLimits, FillThreads, Filler, Shares};
use crate::memory::MemoryPlan;
use crate::metrics::NodeMetrics;
use crate::readiness::{Readiness, become_ready};
use crate::serve::Accepted;
use crate::shard::mailbox::{Mailbox, Message};
use crate::shard::{CoreSnapshot, CoreStart, run};
use crate::slab::{self, Claim, Drives};
use crate::table::{Registry, ServedTables};
use crate::table_rows::TableReader;
use crate::warm::{StartWarms, run_at_start};

/// Threads for work that is not on the read path.
pub struct Threads {
    /// Short work that callers may wait for: opening tables, reading rows from them, and the filler's bookkeeping.
    pub background: Handle,
    /// Long work that no caller waits for: scans, encoding, writes, and the scrubber.
    pub fills: FillThreads,
}

/// State that all cores of a node share. A fetch locks none of it.
pub struct NodeState {
    /// The configuration, validated.
    pub config: IoConfig,
    /// Threads for short work that is not on the read path ([`Threads::background`]).
    pub background: Handle,
    /// Open versions of tables.
    pub tables: Registry,
    /// The filler.
    pub fills: FillHandle,
    /// The fills that must end before the node reports ready.
    pub start_warms: StartWarms,
    /// Whether the node reports ready.
    pub readiness: Readiness,
    /// Reads rows from tables.
    pub table_reader: TableReader,
    /// Each core's mailbox.
    pub mailboxes: Arc<[Mailbox]>,
    /// The drives.
    pub slabs: Vec<SlabFile>,
    /// The engine that executes reads and writes.
    engine: Engine,
    /// How memory is divided.
    pub memory: MemoryPlan,
    /// Returns the CPU time and memory of the process. For a simulated node, zeros: its process runs several nodes, and
    /// its runs must repeat exactly.
    pub usage: fn() -> process::Usage,
    /// Returns freed memory to the operating system. `None` for a simulated node, whose process runs others.
    pub give_back: Option<fn()>,
    /// Exports the spans of batches.
    pub tracer: Tracer,
    /// TLS for clients; without it they connect in plain text.
    pub tls: Option<Arc<ServerTls>>,
    /// Bounds the number of connections.
    pub connection_slots: Arc<ConnectionSlots>,
}

impl NodeState {
    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.mailboxes.len()
    }

    /// Collects a snapshot from each core.
    pub async fn snapshots(&self) -> Vec<CoreSnapshot> {
        let mut cores = Vec::with_capacity(self.cores());
        for mailbox in self.mailboxes.iter() {
            let (ask, snapshot) = oneshot::channel();
            let _ = mailbox.send(Message::Describe(ask));
            // A core that has stopped does not answer.
            cores.extend(snapshot.await.ok());
        }
        cores
    }

    /// Returns the configuration of each core's ring.
    pub fn ring_config(&self) -> RingConfig {
        RingConfig {
            slots: self.config.slots,
            slot_bytes: self.config.read_max.as_u64() as usize,
            engine: self.engine.clone(),
            rings: self.cores() as u32,
            ..RingConfig::default()
        }
    }
}

/// The parts of a node before any of them runs.
pub struct NodeParts {
    /// The state that the cores share.
    pub shared: Arc<NodeState>,
    /// The receiving end of each core's mailbox.
    pub mails: Vec<mpsc::UnboundedReceiver<Message>>,
    /// The filler.
    pub filler: Filler,
    /// The claim on each slab.
    pub claims: Vec<Claim>,
}

impl NodeParts {
    /// Builds the parts of a node with `cores` cores that serves the tables of `served`. Work off the read path runs on
    /// `threads`, and spans go to `tracer`; [`Filler::new`] explains `epoch_min`.
    ///
    /// # Errors
    /// [`NodeError::Config`] if `memory` is too small for its parts, or the shares exceed the drives;
    /// [`NodeError::Tls`] if the certificates are invalid.
    pub fn new(
        config: IoConfig,
        drives: Drives,
        (tables, served): (Arc<dyn Tables>, ServedTables),
        cores: usize,
        threads: Threads,
        tracer: Tracer,
        epoch_min: u64,
    ) -> Result<Self, NodeError> {
        let Drives { slabs, claims, engine } = drives;
        let superblocks: Vec<_> = claims.iter().map(|claim| claim.superblock).collect();
        let shares = shares(&config)?;
        let sectors: Vec<_> = superblocks.iter().map(|slab| slab.sectors).collect();
        check_promised(&shares, config.segment, &sectors)?;
        let capacity = slabs.iter().map(SlabFile::len).sum();
        let memory = MemoryPlan::new(&config, cores, capacity, process::memory_bytes())?;
        let (mailboxes, mails): (Vec<_>, _) = (0..cores).map(|_| mpsc::unbounded_channel()).unzip();
        let mailboxes: Arc<[Mailbox]> = mailboxes.into();
        let (filler, fills) = Filler::new(
            Arc::clone(&mailboxes),
            superblocks,
            FillLimits {
                fills_max: config.fills,
                queue_max: config.fill_queue_max,
                admission: config.admission,
                fill_rate: config.fill_rate.as_u64(),
                scrub_rate: config.scrub_rate.as_u64(),
                directory_bytes_max: memory.directory,
            },
            Shares::new(shares),
            threads.fills,
            epoch_min,
        );
        let tls = config.tls.as_ref().map(ServerTls::load).transpose()?;
        let connections = connections_by_memory(cores, memory.traffic / cores.max(1) as u64);
        let caps = Caps::new(connections, process::descriptors());
        let connection_slots = ConnectionSlots::new(caps, cores);
        let shared = Arc::new(NodeState {
            tls,
            connection_slots,
            tables: Registry::new(tables, served, config.tables_max),
            table_reader: TableReader::new(
                threads.background.clone(),
                config.table_reads,
                config.table_queue_max,
            ),
            background: threads.background,
            start_warms: StartWarms::new(&config.warm_at_start),
            readiness: Readiness::new(&config),
            fills,
            mailboxes,
            slabs,
            usage: match &engine {
                Engine::Simulated(_) => process::Usage::default,
                _ => process::Usage::now,
            },
            give_back: match &engine {
                Engine::Simulated(_) => None,
                _ => Some(process::give_back_memory),
            },
            engine,
            memory,
            tracer,
            config,
        });
        Ok(Self { shared, mails, filler, claims })
    }
}

/// A running node.
pub struct IoNode {
    local_addr: SocketAddr,
    engine: String,
    shared: Arc<NodeState>,
    cores: Vec<JoinHandle<()>>,
    acceptor: Option<Acceptor>,
    running: RunningTasks,
    recovery: Recovery,
    telemetry: Telemetry,
}

/// The running cores and background threads of a node. Dropping this ends them, also if the node fails to start.
struct RunningTasks {
    fills: Vec<FillLane>,
    /// `None` after it was shut down.
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
        // Work under way may wait for the background threads, which end now, so the cores must not drain.
        self.send_to_cores(|| Message::End);
        self.fills.clear();
        // The owner may drop the node within another runtime, where blocking on a runtime is not allowed.
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

/// What a node found on its drives when it started.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// The number of extents.
    pub extents: usize,
    /// The time to read and decode the journals.
    pub reading: Duration,
    /// The time to add the extents to the directory.
    pub placing: Duration,
}

impl IoNode {
    /// Opens the drives, starts one ring per core, recovers the extents on the drives, and listens. Returns once the
    /// node serves rows of `tables`.
    ///
    /// # Errors
    /// The configuration contradicts itself, a drive cannot be used, a ring cannot start, or the port is taken. Nothing
    /// is left running.
    pub fn start(config: IoConfig, tables: Arc<dyn Tables>) -> Result<Self, NodeError> {
        config.validate()?;
        let drives = Drives::open(&config)?;
        Self::start_on(config, drives, tables, Lifetimes::default())
    }

    /// Starts a node whose connections have the lifetimes that a test needs.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_with_lifetimes(
        config: IoConfig,
        tables: Arc<dyn Tables>,
        lifetimes: Lifetimes,
    ) -> Result<Self, NodeError> {
        config.validate()?;
        let drives = Drives::open(&config)?;
        Self::start_on(config, drives, tables, lifetimes)
    }

    /// Starts a node on simulated drives, which fail as a test needs.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
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
        // Half as many, because the kernel does not take the CPU from a thread within a long system call.
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
        // Derived from the clock, so that no epoch repeats.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_min = since.as_micros() as u64;
        let (config, served) = resolved(config, Arc::clone(&tables), &handle)?;
        let tables = (tables, served);
        let NodeParts { shared, mails, mut filler, claims } =
            NodeParts::new(config, drives, tables, cpus.len(), threads, tracer, epoch_min)?;
        running.mailboxes = Arc::clone(&shared.mailboxes);
        let (cores, engine) = start_cores(&shared, &cpus, mails)?;
        let began = Instant::now();
        let found = slab::take(&shared.slabs, &claims)?;
        let reading = began.elapsed();
        let extents = handle.block_on(filler.restore(found));
        let recovery = Recovery { extents, reading, placing: began.elapsed() - reading };
        tracing::info!(extents, took = ?started.elapsed(), "extents on the drives are found again");
        handle.spawn(filler.run());
        handle.spawn(run_at_start(Arc::clone(&shared)));
        handle.spawn(become_ready(Arc::clone(&shared)));
        let local_addr = listener.local_addr().map_err(os_error("listening"))?;
        let acceptor = accept(&shared, listener, lifetimes).map_err(os_error("listening"))?;
        tracing::info!(%local_addr, %engine, name = shared.config.name, "I/O node serves");
        let telemetry = Telemetry::start(
            &shared.config.telemetry,
            &identity,
            NodeMetrics(Arc::clone(&shared)),
            &handle,
        )?;
        let acceptor = Some(acceptor);
        Ok(Self { local_addr, engine, shared, cores, acceptor, running, recovery, telemetry })
    }

    /// Returns the address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Describes how its rings work.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Returns its configuration.
    pub fn config(&self) -> &IoConfig {
        &self.shared.config
    }

    /// Returns the path of each drive's slab, and its size in bytes.
    pub fn drives(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.shared.slabs.iter().map(|slab| (slab.path(), slab.len()))
    }

    /// Returns the address at which Prometheus can read its metrics, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.telemetry.metrics_addr()
    }

    /// Returns what was found on its drives at the start.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns whether its health reports serving: the start warm has ended or timed out, and the hit ratio is high
    /// enough or its wait timed out.
    pub fn is_ready(&self) -> bool {
        self.shared.readiness.is_ready()
    }

    /// Returns the number of extents on its drives.
    pub fn extents(&self) -> u64 {
        self.shared.fills.stats().extents.load(Ordering::Relaxed)
    }

    /// Fills its drives with extents that are encoded already, to measure writing alone. Returns how long that took.
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
        let filled = self.shared.fills.fill_ready(name, extents, sectors, at_once);
        self.shared.background.block_on(filled)
    }

    /// Stops the node: it accepts no more connections, records what is cached, ends the streams once their batches are
    /// answered, and drains the rings. Whatever is not done within `limit` is abandoned.
    pub fn stop(mut self, limit: Duration) {
        drop(self.acceptor.take());
        self.shared.readiness.end();
        let deadline = Instant::now() + limit;
        let mut stopped = self.shared.fills.stop();
        // The rings still run. Recording may use half of the time; the other half is for the streams.
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
        self.shared.tracer.flush(deadline.saturating_duration_since(Instant::now()));
    }
}

/// How often [`IoNode::stop`] checks whether something has stopped.
const POLL: Duration = Duration::from_millis(2);

/// Returns a function that wraps an I/O error of what was being done.
pub fn os_error(doing: &'static str) -> impl Fn(std::io::Error) -> NodeError {
    move |source| NodeError::Os { doing, source }
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, NodeError> {
    let refused = |source| NodeError::Listen { address: address.to_string(), source };
    let listener = std::net::TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
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

/// Returns the configuration with resolved table URIs, and the tables that are served. The work runs on `background`,
/// because callers may be within a runtime of their own, as tests are.
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
    shared: &Arc<NodeState>,
    listener: std::net::TcpListener,
    lifetimes: Lifetimes,
) -> std::io::Result<Acceptor> {
    let options = AcceptOptions {
        tls: shared.tls.clone(),
        slots: Arc::clone(&shared.connection_slots),
        lifetimes,
    };
    let cores = Arc::clone(&shared.mailboxes);
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
    shared: &Arc<NodeState>,
    cpus: &[Option<usize>],
    mails: Vec<mpsc::UnboundedReceiver<Message>>,
) -> Result<Started, NodeError> {
    let mut threads = Vec::new();
    let mut engine = String::new();
    for (number, (&cpu, mail)) in cpus.iter().zip(mails).enumerate() {
        let (started, outcome) = std::sync::mpsc::channel();
        let shared = Arc::clone(shared);
        let start = CoreStart { number, cpu, shared, mail, started };
        let thread = std::thread::Builder::new()
            .name(format!("bireme-io-{number}"))
            .spawn(move || run(start))
            .map_err(os_error("starting a core's thread"))?;
        threads.push(thread);
        // A thread that panics drops its sender.
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
