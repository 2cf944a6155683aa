//! An I/O node: its cores, what they share, and the listener that deals connections to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use address::SECTOR_BYTES;
use lake::{Lake, LakeOptions};
use ring::{Direct, Engine, OpenOptions, RingConfig, SlabFile};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::JoinHandle as TaskHandle;

use crate::config::{EngineChoice, IoConfig};
use crate::core::mailbox::{Mailbox, Message};
use crate::core::{CoreStart, run};
use crate::error::NodeError;
use crate::fill::{FillHandle, Filler};
use crate::slab::{Found, HEAD_SECTORS, Superblock, claim, owner, recover};
use crate::table::Registry;
use crate::table_rows::TableReader;

/// Bytes of a slab file that is neither there nor given a size.
const SLAB_BYTES_DEFAULT: u64 = 4 << 30;

/// What all cores of a node share. Nothing of it is locked on the way of a fetch.
pub struct Shared {
    /// The configuration, validated.
    pub config: IoConfig,
    /// Threads for what isn't the read path.
    pub background: Handle,
    /// Open versions of tables.
    pub tables: Registry,
    /// The filler.
    pub fills: FillHandle,
    /// Rows from tables.
    pub table_reader: TableReader,
    /// Each core's mailbox.
    pub mailboxes: Arc<[Mailbox]>,
    /// The drives.
    pub slabs: Vec<SlabFile>,
    /// How each drive's queue depth was found.
    pub queue_depths: Vec<u32>,
}

impl Shared {
    /// How many cores serve.
    pub fn cores(&self) -> usize {
        self.mailboxes.len()
    }

    /// What each core's ring is to be.
    pub fn ring_config(&self) -> RingConfig {
        let engine = match self.config.engine {
            EngineChoice::Auto => Engine::Auto,
            EngineChoice::IoUring => Engine::IoUring,
            EngineChoice::Pread => Engine::Pread,
        };
        RingConfig {
            slots: self.config.slots,
            slot_bytes: self.config.read_max.as_u64() as usize,
            engine,
            ..RingConfig::default()
        }
    }
}

/// A node that is serving.
pub struct IoNode {
    local_addr: SocketAddr,
    engine: String,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    acceptor: TaskHandle<()>,
    background: Option<Runtime>,
}

impl IoNode {
    /// Opens the drives, starts a ring a core, and listens. Returns once the node serves.
    ///
    /// # Errors
    /// A configuration that contradicts itself; a drive that can't be used; a ring that can't be
    /// had; a port that is taken. Nothing is left running.
    pub fn start(config: IoConfig) -> Result<Self, NodeError> {
        config.validate()?;
        let started = Instant::now();
        let owners = config.drives.iter().map(|drive| owner(&drive.path, config.overwrite));
        let owners = owners.collect::<Result<Vec<_>, _>>()?;
        let slabs = open_slabs(&config)?;
        let least = HEAD_SECTORS * SECTOR_BYTES as u64 + config.segment.as_u64();
        if let Some(slab) = slabs.iter().find(|slab| slab.len() < least) {
            let (path, len, segment) = (slab.path().display(), slab.len(), config.segment);
            let problem = format!(
                "{path} has {len} bytes, less than {least}: a segment of {segment}, and a MiB before it"
            );
            return Err(NodeError::Config { field: "drives", problem });
        }
        let segment = config.segment.as_u64() / SECTOR_BYTES as u64;
        let claimed = slabs.iter().zip(owners).map(|(slab, found)| {
            let superblock = claim(slab, found, segment)?;
            let (path, uuid) = (slab.path().display(), superblock.uuid);
            tracing::info!(%path, %uuid, "the slab is this node's");
            Ok(superblock)
        });
        let superblocks = claimed.collect::<Result<Vec<_>, NodeError>>()?;
        let listener = bind(config.listen)?;
        let cpus = cpus(&config)?;
        let background = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.background_threads)
            .thread_name("bireme-io-background")
            .enable_all()
            .build()
            .map_err(os("starting the background runtime"))?;
        let (mailboxes, mails): (Vec<_>, Vec<_>) =
            cpus.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let mailboxes: Arc<[Mailbox]> = mailboxes.into();
        let (mut filler, fills) = Filler::new(
            Arc::clone(&mailboxes),
            superblocks.clone(),
            config.fills,
            config.fill_queue_max,
        );
        let shared = Arc::new(Shared {
            tables: Registry::new(Lake::new(lake_options(&config)), config.tables_max),
            table_reader: TableReader::new(
                background.handle().clone(),
                config.table_reads,
                config.table_queue_max,
            ),
            background: background.handle().clone(),
            fills,
            mailboxes,
            queue_depths: slabs.iter().map(queue_depth).collect(),
            slabs,
            config,
        });
        let (threads, engine) = start_cores(&shared, &cpus, mails).inspect_err(|_| {
            shared.mailboxes.iter().for_each(|mailbox| drop(mailbox.send(Message::Stop)));
        })?;
        let found = recover_all(&shared.slabs, &superblocks);
        let restored = background.block_on(filler.restore(found));
        tracing::info!(extents = restored, took = ?started.elapsed(), "what the drives hold is found again");
        background.spawn(filler.run());
        let (local_addr, acceptor) = {
            let _guard = background.enter();
            let listener = TcpListener::from_std(listener).map_err(os("listening"))?;
            let local_addr = listener.local_addr().map_err(os("listening"))?;
            let cores = Arc::clone(&shared.mailboxes);
            let give =
                move |core: usize, stream| drop(cores[core].send(Message::Connection(stream)));
            let dealing = connections::deal(listener, shared.cores(), give);
            (local_addr, background.spawn(dealing))
        };
        tracing::info!(%local_addr, %engine, name = shared.config.name, "I/O node serves");
        Ok(Self { local_addr, engine, shared, threads, acceptor, background: Some(background) })
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

    /// Extents on its drives.
    pub fn extents(&self) -> u64 {
        self.shared.fills.stats().extents.load(Ordering::Relaxed)
    }

    /// Takes no more connections, records what is cached, ends the streams once their batches are answered,
    /// and drains the rings; what isn't done within `limit` is given up.
    pub fn stop(mut self, limit: Duration) {
        self.acceptor.abort();
        let deadline = Instant::now() + limit;
        if let Some(background) = &self.background {
            let _guard = background.enter();
            let mut stopped = self.shared.fills.stop();
            // The rings still run; half of the time is the streams'.
            let until = Instant::now() + limit / 2;
            while stopped.try_recv() == Err(TryRecvError::Empty) && Instant::now() < until {
                std::thread::sleep(POLL);
            }
        }
        for mailbox in self.shared.mailboxes.iter() {
            let _ = mailbox.send(Message::Stop);
        }
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

impl Drop for IoNode {
    fn drop(&mut self) {
        self.acceptor.abort();
        for mailbox in self.shared.mailboxes.iter() {
            let _ = mailbox.send(Message::Stop);
        }
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

/// Between two looks whether something has stopped.
const POLL: Duration = Duration::from_millis(2);

/// Reads the drives' journals, all drives at the same time.
fn recover_all(slabs: &[SlabFile], superblocks: &[Superblock]) -> Vec<Vec<Found>> {
    std::thread::scope(|scope| {
        let drives = slabs.iter().zip(superblocks);
        let readers: Vec<_> =
            drives.map(|(slab, superblock)| scope.spawn(|| recover(slab, superblock))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or_default()).collect()
    })
}

fn os(doing: &'static str) -> impl Fn(std::io::Error) -> NodeError {
    move |source| NodeError::Os { doing, source }
}

fn lake_options(config: &IoConfig) -> LakeOptions {
    let cache = config.lake_cache.as_u64() as usize;
    LakeOptions {
        storage: config.storage.clone(),
        // An I/O node searches no index.
        index_cache_bytes: cache / 8,
        metadata_cache_bytes: cache - cache / 8,
        ..LakeOptions::default()
    }
}

fn open_slabs(config: &IoConfig) -> Result<Vec<SlabFile>, NodeError> {
    let direct = if config.allow_buffered { Direct::Prefer } else { Direct::Require };
    let open = |drive: &crate::config::DriveConfig| {
        let size = match drive.size {
            Some(size) => Some(size.as_u64() / SECTOR_BYTES as u64 * SECTOR_BYTES as u64),
            None if drive.path.exists() => None,
            None => Some(SLAB_BYTES_DEFAULT),
        };
        let options = OpenOptions { size, direct, ..OpenOptions::default() };
        Ok(SlabFile::open(&drive.path, options)?)
    };
    config.drives.iter().map(open).collect()
}

/// 0 where the system doesn't tell.
fn queue_depth(slab: &SlabFile) -> u32 {
    ring::device::queue_depth(slab.path()).map_or(0, |found| found.depth)
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, NodeError> {
    let refused = |source| NodeError::Listen { address: address.to_string(), source };
    let listener = std::net::TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
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
        let slabs = shared.slabs.clone();
        let start = CoreStart { number, cpu, shared, slabs, mail, started };
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
