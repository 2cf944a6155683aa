//! A core's thread: it starts the core, serves, handles messages, and drains at the end.

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
    Core, CoreHistograms, CoreSnapshot, CoreStats, ProjectionMemory, TrafficMemory, here, set_here,
};
use crate::error::NodeError;
use crate::fetch;
use crate::node::NodeState;
use crate::serve;
use crate::stages::ram_tier::RamTier;
use crate::stages::read::{self, Reader};

/// The arguments of a core's thread.
pub struct CoreStart {
    /// The core's number in the node, from 0.
    pub number: usize,
    /// The CPU to pin the thread to.
    pub cpu: Option<usize>,
    /// The state that all cores share.
    pub shared: Arc<NodeState>,
    /// The receiving end of its mailbox.
    pub mail: mpsc::UnboundedReceiver<Message>,
    /// Receives, once, a description of the core's ring or the reason why the core failed to start.
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
        match build_core(number, cpu, shared) {
            Ok(core) => {
                let _ = started.send(Ok(core.ring.describe().to_string()));
                set_here(Some(core));
                event_loop(mail).await;
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
    // Dropping the remaining tasks may still call `here`.
    drop(runtime);
    set_here(None);
}

/// Creates a core and starts its ring. Must be called within the core's runtime.
///
/// # Errors
/// [`NodeError::Ring`].
pub fn build_core(
    number: usize,
    cpu: Option<usize>,
    shared: Arc<NodeState>,
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

/// Serves connections and handles messages for the core of this thread, until it has drained after [`Message::Stop`],
/// or receives [`Message::End`].
pub async fn event_loop(mut mail: mpsc::UnboundedReceiver<Message>) {
    tokio::spawn(read::submit_loop());
    tokio::spawn(read::watch_timeouts(here().shared.config.read_timeout));
    tokio::spawn(read::watch_slow_drives());
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
            // Keep receiving while streams end: batches under way may still wait for messages.
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
            // Return without draining: callers that keep sending could delay it for ever. Their streams end when the
            // thread's runtime is dropped.
            Some(Message::End) => return,
            Some(other) => handle_message(&core, other),
        }
    }
    while transfers.next().await.is_some() {}
    let ring = here().ring.clone();
    ring.drain().await;
}

/// Sends the outcome of a transfer. The receiver may be gone.
async fn answer<T>(outcome: impl Future<Output = T>, done: oneshot::Sender<T>) {
    let _ = done.send(outcome.await);
}

fn handle_message(core: &Core, message: Message) {
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
            hold_places(core, replaced.into_iter().collect(), None);
            drop(done);
        }
        Message::Forget { keys, done } => {
            let mut directory = core.directory.borrow_mut();
            let places = keys.iter().filter_map(|&key| directory.forget(key)).collect();
            drop(directory);
            hold_places(core, places, Some(done));
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

/// Frees places once no request can hold them, which is at once if no request is under way.
fn hold_places(
    core: &Core,
    places: Vec<crate::directory::ExtentNo>,
    done: Option<mpsc::Sender<()>>,
) {
    let requests = core.requests.borrow();
    let mut grace = core.grace.borrow_mut();
    grace.hold(requests.next_serial(), places, done);
    let over = grace.over(requests.oldest());
    core.directory.borrow_mut().vacate(&over);
}

/// Returns the core's counters and gauges.
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
