//! Builds the parts of a node, without running any of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use address::SECTOR_BYTES;
use audit::Audit;
use bytesize::ByteSize;
use connections::tls::{ClientCertificates, ServerTls};
use connections::{Caps, ConnectionSlots, connections_by_memory};
use peers::{Checker, SecretFile};
use ring::{Engine, RingConfig, SlabFile};
use tables::Tables;
use telemetry::Tracer;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::memory::MemoryPlan;
use crate::cache::{FillLimits, FillThreads, Filler, Shares, check_promised, files_share};
use crate::config::{IoConfig, shares};
use crate::drive::{Claim, Drives, Superblock};
use crate::error::NodeError;
use crate::fetch::{CorePlan, NodeState, TableReader};
use crate::serve::{PeerGate, Readiness, ServiceState, StartWarms};
use crate::shard::mailbox::{Mailbox, Message};
use crate::table::{Registry, ServedTables};

/// Threads for work that does not run on the cores.
pub struct Threads {
    /// Short work that callers may wait for: opening tables, reading rows from them, and the filler's bookkeeping.
    pub background: Handle,
    /// Long work that no fetch waits for: scans, encoding, writes of extents, and reads for reclaiming and scrubbing.
    pub fills: FillThreads,
}

/// The parts of a node before any of them runs.
pub struct NodeParts {
    /// The state that the services of all cores share.
    pub shared: Arc<ServiceState>,
    /// The parameters with which each core is built.
    pub core: CorePlan,
    /// The sizes of the parts of the node's memory.
    pub memory: MemoryPlan,
    /// TLS for clients; without it they connect in plain text.
    pub tls: Option<Arc<ServerTls>>,
    /// Bounds the number of connections.
    pub connection_slots: Arc<ConnectionSlots>,
    /// The receiving end of each core's mailbox.
    pub mails: Vec<mpsc::UnboundedReceiver<Message>>,
    /// Fills chunks, and owns the cache's books.
    pub filler: Filler,
    /// Each slab's claim, which is not written to the slab yet.
    pub claims: Vec<Claim>,
}

impl NodeParts {
    /// Builds the parts of a node with `cores` cores that serves the tables of `served`. Work that does not run on the
    /// cores runs on `threads`. Spans go to `tracer`. `CacheBooks::new` explains `epoch_min`.
    ///
    /// # Errors
    /// [`NodeError::Config`] if `memory` is too small for its parts, or the shares exceed the drives;
    /// [`NodeError::Tls`] if the certificates are invalid; [`NodeError::Secret`] if the secret can't be used;
    /// [`NodeError::Audit`] if the audit log can't be opened.
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
        let shares = checked_shares(&config, &superblocks)?;
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
                fill_rate: config.fill_rate.as_u64(),
                scrub_rate: config.scrub_rate.as_u64(),
                directory_bytes_max: memory.directory,
            },
            shares,
            threads.fills,
            epoch_min,
        );
        let tls = config.tls.as_ref().map(|tls| ServerTls::load(tls, ClientCertificates::Required));
        let tls = tls.transpose()?;
        let per_core = |bytes: u64| bytes / cores.max(1) as u64;
        let connections = connections_by_memory(cores, per_core(memory.traffic));
        let caps = Caps::new(connections, process::descriptors());
        let connection_slots = ConnectionSlots::new(caps, cores);
        let ring = RingConfig {
            slots: config.slots,
            slot_bytes: config.read_max.as_u64() as usize,
            engine: engine.clone(),
            rings: cores as u32,
            ..RingConfig::default()
        };
        let core = CorePlan {
            ring,
            ram_tier_bytes: per_core(config.ram_tier.as_u64()),
            traffic_bytes: per_core(memory.traffic),
            epoch: Instant::now(),
        };
        let start_warms = StartWarms::new(&config.warm_at_start);
        let readiness = Readiness::new(&config);
        let peers = peer_gate(&config, &engine)?;
        let open_log = |path: &PathBuf| {
            Audit::open(path).map_err(|source| NodeError::Audit { path: path.clone(), source })
        };
        let audit = config.audit.as_ref().map(open_log).transpose()?;
        let node = Arc::new(NodeState {
            audit,
            tables: Registry::new(tables, served, config.tables_max),
            table_reader: TableReader::new(
                threads.background.clone(),
                config.table_reads,
                config.table_queue_max,
            ),
            background: threads.background,
            fills,
            release_permit: Arc::new(Semaphore::new(1)),
            mailboxes,
            slabs,
            tracer,
            config,
        });
        let shared = Arc::new(ServiceState {
            node,
            peers,
            readiness,
            start_warms,
            usage: match &engine {
                Engine::Simulated(_) => process::Usage::default,
                _ => process::Usage::now,
            },
            give_back: match &engine {
                Engine::Simulated(_) => None,
                _ => Some(process::give_back_memory),
            },
        });
        Ok(Self { shared, core, memory, tls, connection_slots, mails, filler, claims })
    }
}

/// Returns the shares of tables and of files.
///
/// # Errors
/// [`NodeError::Config`] if a share is invalid, or the guarantees exceed the drives.
fn checked_shares(config: &IoConfig, superblocks: &[Superblock]) -> Result<Shares, NodeError> {
    let shares = shares(config)?;
    let sectors: Vec<_> = superblocks.iter().map(|slab| slab.sectors).collect();
    check_promised(&shares, config.segment, &sectors)?;
    let files = files_share(&shares, config.segment, &sectors);
    let guarantee = files.map_or(0, |files| files.guarantee * SECTOR_BYTES as u64);
    tracing::info!(
        guarantee = %ByteSize::b(guarantee),
        "fills of rows leave this much of the drives to index and deletion files"
    );
    Ok(Shares::new(shares).with_files(files))
}

/// Returns the gate that checks callers. In a simulation, proofs of the secret are checked without the real clock.
///
/// # Errors
/// [`NodeError::Secret`] if the secret can't be used.
fn peer_gate(config: &IoConfig, engine: &Engine) -> Result<PeerGate, NodeError> {
    let secret = config.peer_secret.as_deref().map(SecretFile::load).transpose()?;
    let checker = |file| match engine {
        Engine::Simulated(_) => Checker::with_clock(file, || Duration::ZERO),
        _ => Checker::new(file),
    };
    PeerGate::new(config, secret.map(checker))
}
