//! An I/O node: its cores, what they share, and the listener that deals connections to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use connections::tls::ServerTls;
use connections::{AcceptOptions, Acceptor, Caps, ConnectionSlots, Lifetimes, connections_by_memory};
use ring::sim::SimDisk;
use ring::{Engine, RingConfig, SlabFile};
use tables::Tables;
use telemetry::{Identity, Telemetry, Tracer};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use crate::config::{self, IoConfig, check_promised, shares};
use crate::core::mailbox::{Mailbox, Message};
use crate::core::{CoreSnapshot, CoreStart, run};
use crate::error::NodeError;
use crate::fill::{FillHandle, FillLane, FillLimits, FillThreads, Filler, Shares};
use crate::memory::MemoryPlan;
use crate::metrics::NodeMetrics;
use crate::readiness::{Readiness, become_ready};
use crate::serve::Accepted;
use crate::slab::{self, Claim, Drives};
use crate::table::{Registry, Served};
use crate::table_rows::TableReader;
use crate::warm::{StartWarms, run_at_start};

/// Where what isn't the read path is done.
pub struct Threads {
    /// What somebody may wait for: tables are opened, rows come from them, the books of what is cached are kept.
    pub background: Handle,
    /// What nobody waits for, and takes long: scans, encoding, writes, the scrubber.
    pub fills: FillThreads,
}

/// What all cores of a node share. Nothing of it is locked on the way of a fetch.
pub struct Shared {
    /// The configuration, validated.
    pub config: IoConfig,
    /// Threads for what isn't the read path, and somebody may wait for.
    pub background: Handle,
    /// Open versions of tables.
    pub tables: Registry,
    /// The filler.
    pub fills: FillHandle,
    /// What is filled before the node says that it serves.
    pub start_warms: StartWarms,
    /// Whether it says so.
    pub readiness: Readiness,
    /// Rows from tables.
    pub table_reader: TableReader,
    /// Each core's mailbox.
    pub mailboxes: Arc<[Mailbox]>,
    /// The drives.
    pub slabs: Vec<SlabFile>,
    /// What carries their reads and writes out.
    engine: Engine,
    /// What may take how much of memory.
    pub memory: MemoryPlan,
    /// What the process has used. Of a simulated node nothing: it is one of several, and its runs are to repeat.
    pub usage: fn() -> process::Usage,
    /// Gives freed memory back to the system. A simulated node leaves that be: its process has others.
    pub give_back: Option<fn()>,
    /// Where batches' spans go.
    pub tracer: Tracer,
    /// How clients connect, if not in the clear.
    pub tls: Option<Arc<ServerTls>>,
    /// Slots for their connections.
    pub connection_slots: Arc<ConnectionSlots>,
}

impl Shared {
    /// How many cores serve.
    pub fn cores(&self) -> usize {
        self.mailboxes.len()
    }

    /// The cores' counters, as each of them says.
    pub async fn snapshots(&self) -> Vec<CoreSnapshot> {
        let mut cores = Vec::with_capacity(self.cores());
        for mailbox in self.mailboxes.iter() {
            let (ask, snapshot) = oneshot::channel();
            let _ = mailbox.send(Message::Describe(ask));
            // One that has stopped says nothing.
            cores.extend(snapshot.await.ok());
        }
        cores
    }

    /// What each core's ring is to be.
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

/// A node that is put together, of which nothing runs yet.
pub struct Parts {
    /// What its cores share.
    pub shared: Arc<Shared>,
    /// Of each core.
    pub mails: Vec<mpsc::UnboundedReceiver<Message>>,
    /// Its filler.
    pub filler: Filler,
    /// Of each slab.
    pub claims: Vec<Claim>,
}

impl Parts {
    /// Of `cores` cores, that serve the tables of `served`, with what isn't the read path on `threads`; spans go to `tracer`; `epoch_min` as
    /// [`Filler::new`] has it.
    ///
    /// # Errors
    /// [`NodeError::Config`] for a bound of memory that is less than what it is to hold, and for shares that are
    /// more than the drives have; [`NodeError::Tls`] for certificates that are no good.
    pub fn new(
        config: IoConfig,
        drives: Drives,
        (tables, served): (Arc<dyn Tables>, Served),
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
        let shared = Arc::new(Shared {
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

/// A node that is serving.
pub struct IoNode {
    local_addr: SocketAddr,
    engine: String,
    shared: Arc<Shared>,
    cores: Vec<JoinHandle<()>>,
    acceptor: Option<Acceptor>,
    running: Running,
    recovery: Recovery,
    telemetry: Telemetry,
}

/// What of a node runs: its cores and its background. Dropped, nothing of it goes on, also where the node could not
/// be started.
struct Running {
    fills: Vec<FillLane>,
    /// Until it is shut down.
    background: Option<Runtime>,
    /// Of the cores that were started.
    mailboxes: Arc<[Mailbox]>,
}

impl Running {
    fn tell_cores(&self, message: fn() -> Message) {
        self.mailboxes.iter().for_each(|mailbox| drop(mailbox.send(message())));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What they have under way may wait for the background, so nobody could finish it.
        self.tell_cores(|| Message::End);
        self.fills.clear();
        // Whoever has a node may be within another runtime, where none may be waited for.
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

/// What was found on a node's drives when it started.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// How many extents.
    pub extents: usize,
    /// How long it took to read and decode the journals.
    pub reading: Duration,
    /// How long it took to put them into the directory.
    pub placing: Duration,
}

impl IoNode {
    /// Opens the drives, starts a ring a core, finds what the drives hold, and listens. Returns once the
    /// node serves, rows of `tables`.
    ///
    /// # Errors
    /// A configuration that contradicts itself; a drive that can't be used; a ring that can't be
    /// had; a port that is taken. Nothing is left running.
    pub fn start(config: IoConfig, tables: Arc<dyn Tables>) -> Result<Self, NodeError> {
        config.validate()?;
        let drives = Drives::open(&config)?;
        Self::start_on(config, drives, tables, Lifetimes::default())
    }

    /// The same with connections that last as a test wants.
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

    /// The same on simulated drives, which go wrong as a test wants.
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
        // Fewer: the kernel doesn't take a CPU away from a thread that is within a long call.
        let fills: std::io::Result<Vec<_>> =
            (0..count.div_ceil(2)).map(|_| FillLane::start()).collect();
        let fills = fills.map_err(os("starting the threads of fills"))?;
        let identity = Identity {
            service: "bireme-io",
            node: config.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let handle = background.handle().clone();
        let threads = Threads { background: handle.clone(), fills: FillThreads::of(&fills) };
        let background = Some(background);
        let mut running = Running { fills, background, mailboxes: Arc::new([]) };
        let tracer = Tracer::start(&config.telemetry, &identity, &handle)?;
        // By the clock no epoch comes twice.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_min = since.as_micros() as u64;
        let (config, served) = resolved(config, Arc::clone(&tables), &handle)?;
        let tables = (tables, served);
        let Parts { shared, mails, mut filler, claims } =
            Parts::new(config, drives, tables, cpus.len(), threads, tracer, epoch_min)?;
        running.mailboxes = Arc::clone(&shared.mailboxes);
        let (cores, engine) = start_cores(&shared, &cpus, mails)?;
        let began = Instant::now();
        let found = slab::take(&shared.slabs, &claims)?;
        let reading = began.elapsed();
        let extents = handle.block_on(filler.restore(found));
        let recovery = Recovery { extents, reading, placing: began.elapsed() - reading };
        tracing::info!(extents, took = ?started.elapsed(), "what the drives hold is found again");
        handle.spawn(filler.run());
        handle.spawn(run_at_start(Arc::clone(&shared)));
        handle.spawn(become_ready(Arc::clone(&shared)));
        let local_addr = listener.local_addr().map_err(os("listening"))?;
        let acceptor = accept(&shared, listener, lifetimes).map_err(os("listening"))?;
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

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// How its rings work, in words.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Its configuration.
    pub fn config(&self) -> &IoConfig {
        &self.shared.config
    }

    /// Its drives: where each slab is, and its size in bytes.
    pub fn drives(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.shared.slabs.iter().map(|slab| (slab.path(), slab.len()))
    }

    /// Where its metrics are for Prometheus, if they are anywhere.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.telemetry.metrics_addr()
    }

    /// What was found on its drives at the start.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Whether its health says that it serves: what is filled at the start is there, or took too long, and as many of
    /// its rows as are asked for come from its drives.
    pub fn is_ready(&self) -> bool {
        self.shared.readiness.is_ready()
    }

    /// Extents on its drives.
    pub fn extents(&self) -> u64 {
        self.shared.fills.stats().extents.load(Ordering::Relaxed)
    }

    /// Fills its drives with extents that are ready, to measure writing alone: how long that took.
    ///
    /// # Errors
    /// Why one could not be filled.
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

    /// Takes no more connections, records what is cached, ends the streams once their batches are answered,
    /// and drains the rings; what isn't done within `limit` is given up.
    pub fn stop(mut self, limit: Duration) {
        drop(self.acceptor.take());
        self.shared.readiness.end();
        let deadline = Instant::now() + limit;
        let mut stopped = self.shared.fills.stop();
        // The rings still run; half of the time is the streams'.
        let until = Instant::now() + limit / 2;
        while stopped.try_recv() == Err(TryRecvError::Empty) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        self.running.tell_cores(|| Message::Stop);
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

/// Between two looks whether something has stopped.
const POLL: Duration = Duration::from_millis(2);

/// What the system refused.
pub fn os(doing: &'static str) -> impl Fn(std::io::Error) -> NodeError {
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
        .map_err(os("starting the background's threads"))
}

/// The configuration with its tables' URIs resolved, and what is served. May be called within a runtime, as tests do,
/// which therefore is not the one that resolves them.
fn resolved(
    mut config: IoConfig,
    tables: Arc<dyn Tables>,
    background: &Handle,
) -> Result<(IoConfig, Served), NodeError> {
    let (done, resolved) = std::sync::mpsc::channel();
    background.spawn(async move {
        let served = config::resolve(&mut config, tables.as_ref()).await;
        let _ = done.send((config, served));
    });
    let ended = |_| os("resolving the URIs of tables")(std::io::Error::other("its task ended"));
    resolved.recv().map_err(ended)
}

fn accept(
    shared: &Arc<Shared>,
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

/// A CPU for each core's thread; none where they aren't to be pinned.
fn cpus(config: &IoConfig) -> Result<Vec<Option<usize>>, NodeError> {
    let allowed = ring::affinity::allowed_cores().map_err(os("asking for the affinity mask"))?;
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
    shared: &Arc<Shared>,
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
            .map_err(os("starting a core's thread"))?;
        threads.push(thread);
        // A thread that panics drops its end.
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
