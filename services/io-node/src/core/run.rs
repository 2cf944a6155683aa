//! The life of a core's thread: start, serve, obey the mailbox, drain.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use connections::idle;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use ring::Ring;
use tokio::sync::{mpsc, oneshot, watch};

use super::mailbox::Message;
use super::{
    Core, CoreHistograms, CoreSnapshot, CoreStats, ProjectionMemory, TrafficMemory, here, settle_in,
};
use crate::error::NodeError;
use crate::fetch;
use crate::node::Shared;
use crate::serve;
use crate::stages::ram_tier::RamTier;
use crate::stages::read::{self, Reader};

/// What a core's thread is started with.
pub struct CoreStart {
    /// Its place among the node's cores.
    pub number: usize,
    /// The CPU to stay on.
    pub cpu: Option<usize>,
    /// What all cores share.
    pub shared: Arc<Shared>,
    /// Its mail.
    pub mail: mpsc::UnboundedReceiver<Message>,
    /// Told once whether the core could start, and how its ring works.
    pub started: std::sync::mpsc::Sender<Result<String, NodeError>>,
}

/// Runs a core until it is told to stop and has drained.
pub fn run(start: CoreStart) {
    let CoreStart { number, cpu, shared, mail, started } = start;
    let runtime = match prepare(cpu) {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    runtime.block_on(async move {
        match begin(number, cpu, shared) {
            Ok(core) => {
                let _ = started.send(Ok(core.ring.describe().to_string()));
                settle_in(Some(core));
                live(mail).await;
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
    // What is left of its tasks still finds its core.
    drop(runtime);
    settle_in(None);
}

/// Starts a core's ring, within the runtime that is to be the core's.
///
/// # Errors
/// [`NodeError::Ring`].
pub fn begin(
    number: usize,
    cpu: Option<usize>,
    shared: Arc<Shared>,
) -> Result<Rc<Core>, NodeError> {
    let config = shared.ring_config();
    let ring = Ring::start(&config, &shared.slabs)
        .map_err(|source| NodeError::Ring { core: number, source })?;
    let slots = ring.describe().slots;
    let read_max = config.slot_bytes;
    let ram = RamTier::new(shared.config.ram_tier.as_u64() / shared.cores() as u64)
        .map_err(|source| NodeError::Os { doing: "reserving memory for `ram_tier`", source })?;
    let traffic_memory = TrafficMemory::new(shared.memory.traffic / shared.cores() as u64);
    Ok(Rc::new(Core {
        number,
        ring,
        directory: RefCell::default(),
        grace: RefCell::default(),
        ram,
        sessions: RefCell::default(),
        requests: RefCell::default(),
        projection_memory: ProjectionMemory::of(&traffic_memory),
        traffic_memory,
        buffers: Arc::default(),
        simulated: Cell::new(0),
        reader: Rc::new(Reader::new(slots, read_max, shared.slabs.len())),
        stats: CoreStats::default(),
        histograms: CoreHistograms::new(shared.slabs.len()),
        cpu,
        activity: Arc::default(),
        shared,
    }))
}

fn prepare(cpu: Option<usize>) -> Result<tokio::runtime::Runtime, NodeError> {
    if let Some(cpu) = cpu {
        let doing = "pinning a thread to its core";
        ring::affinity::pin_to(cpu).map_err(|source| NodeError::Os { doing, source })?;
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(ring::submit_all)
        .build()
        .map_err(|source| NodeError::Os { doing: "starting a core's runtime", source })
}

/// Serves connections and obeys the mailbox, as the core of this thread, until told to stop and drained, or told to end.
pub async fn live(mut mail: mpsc::UnboundedReceiver<Message>) {
    tokio::spawn(read::drive());
    tokio::spawn(read::watch(here().shared.config.read_timeout));
    tokio::spawn(read::judge());
    tokio::spawn(idle::poll(here().shared.config.idle_poll, Arc::clone(&here().activity)));
    let (adopted, incoming) = mpsc::unbounded_channel();
    let (stop, stopping) = watch::channel(false);
    let mut server = tokio::spawn(serve::serve(incoming, stopping));
    let mut is_stopping = false;
    let mut transfers = FuturesUnordered::new();
    loop {
        let message = tokio::select! {
            biased;
            Some(()) = transfers.next() => continue,
            message = mail.recv() => message,
            // What is under way may still need its mail.
            _ = &mut server, if is_stopping => break,
        };
        let core = here();
        match message {
            Some(Message::Connection(accepted)) => {
                accepted.adopt().into_iter().for_each(|it| drop(adopted.send(it)));
            }
            Some(Message::Write { drive, offset, buf, done }) => {
                let write = core.ring.write(drive, offset, buf);
                transfers.push(answer(write, done).boxed_local());
            }
            Some(Message::Read { drive, offset, buf, done }) => {
                let read = core.ring.read_owned(drive, offset, buf);
                transfers.push(answer(read, done).boxed_local());
            }
            Some(Message::Sync { drive, done }) => {
                transfers.push(answer(core.ring.fsync(drive), done).boxed_local());
            }
            Some(Message::Stop) | None => {
                is_stopping = true;
                let _ = stop.send(true);
            }
            // Callers who go on asking may keep a ring from ever being drained: with the thread's runtime their streams end.
            Some(Message::End) => return,
            Some(other) => obey(&core, other),
        }
    }
    while transfers.next().await.is_some() {}
    let ring = here().ring.clone();
    ring.drain().await;
}

/// Who asked may be gone.
async fn answer<T>(outcome: impl Future<Output = T>, done: oneshot::Sender<T>) {
    let _ = done.send(outcome.await);
}

fn obey(core: &Core, message: Message) {
    match message {
        Message::Opened { session, handle, serial, opening } => {
            serve::opened(core, session, handle, serial, opening);
        }
        Message::Image { request, part, image, held } => {
            fetch::image(core, request, part, image, held);
        }
        Message::Held(held) => drop(held),
        Message::Filled { extent, done } => {
            let replaced = core.directory.borrow_mut().insert(extent);
            hold(core, replaced.into_iter().collect(), None);
            drop(done);
        }
        Message::Forget { keys, done } => {
            let mut directory = core.directory.borrow_mut();
            let places = keys.iter().filter_map(|&key| directory.forget(key)).collect();
            drop(directory);
            hold(core, places, Some(done));
        }
        Message::Describe(to) => drop(to.send(snapshot(core))),
        Message::Restored { extents, done } => {
            let mut directory = core.directory.borrow_mut();
            directory.restore(&extents);
            let _ = done.send(directory.len());
        }
        Message::Heat { keys, heats } => {
            let directory = core.directory.borrow();
            let _ = heats.send(keys.iter().map(|&key| directory.heat(key)).collect());
        }
        Message::Connection(_)
        | Message::Write { .. }
        | Message::Read { .. }
        | Message::Sync { .. }
        | Message::Stop
        | Message::End => {}
    }
}

/// Frees places once no request holds them; at once if none is under way.
fn hold(core: &Core, places: Vec<crate::directory::ExtentNo>, done: Option<mpsc::Sender<()>>) {
    let requests = core.requests.borrow();
    let mut grace = core.grace.borrow_mut();
    grace.hold(requests.next_serial(), places, done);
    let over = grace.over(requests.oldest());
    core.directory.borrow_mut().vacate(&over);
}

/// What a core says of itself.
pub fn snapshot(core: &Core) -> CoreSnapshot {
    let directory = core.directory.borrow();
    let counted = core.stats.snapshot();
    CoreSnapshot {
        cpu: core.cpu,
        ring: core.ring.stats(),
        engine: core.ring.describe().engine.name(),
        queued: core.reader.waiting(),
        reply_bytes: core.traffic_memory.used(),
        replica_bytes: directory.replica_bytes(),
        directory_shared_bytes: directory.shared_bytes(),
        heats: directory.heats(),
        ram_sectors: core.ram.sectors(),
        streams: core.sessions.borrow().len(),
        batches_under_way: core.requests.borrow().len(),
        drives: core.reader.drives(),
        histograms: core.histograms.snapshot(),
        shed: counted.shed + core.traffic_memory.refused(),
        ..counted
    }
}
