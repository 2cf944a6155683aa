//! A node without threads: its cores, and what isn't the read path, take turns on the thread of who has it.
//!
//! It is the node itself, for simulations: serving, reading, filling and recovering are the code of
//! [`IoNode`](crate::IoNode). What it lacks is threads, a listener, and a clock that goes by itself.
//!
//! ```text
//! step(0) ─► core 0: its runtime runs, as the core of this thread, until all waits and 1 ms has passed
//! step(1) ─► core 1 ...                       step(cores) ─► the background: tables, fills
//! ```
//!
//! Each has a runtime with a paused clock of its own. Deadlines go from cores to the background as instants, so their
//! clocks may differ by less than the millisecond that timers go by.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use address::{DriveNo, SECTOR_BYTES};
use connections::Carrier;
use ring::AlignedBuf;
use ring::sim::SimDisk;
use tables::Tables;
use telemetry::Tracer;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use crate::config::IoConfig;
use crate::directory::Extent;
use crate::error::NodeError;
use crate::fill::{DriveState, FillThreads};
use crate::node::{NodeParts, NodeState, Threads, os_error};
use crate::readiness::become_ready;
use crate::serve::Accepted;
use crate::shard::mailbox::Message;
use crate::shard::{Core, CoreSnapshot, build_core, event_loop, set_here, snapshot};
use crate::slab::{self, Drives};
use crate::table::ServedTables;
use crate::warm::run_at_start;

/// How long a step takes, by the node's own clocks.
const STEP: Duration = Duration::from_millis(1);

/// A node whose every step is somebody's wish. Dropping it is a crash: nothing more is recorded.
pub struct SteppedNode {
    shared: Arc<NodeState>,
    cores: Vec<SteppedRuntime>,
    background: SteppedRuntime,
    /// Brings how many extents were found.
    restored: oneshot::Receiver<usize>,
    extents_found: Option<usize>,
    stopped: Option<Stopping>,
}

/// How far a node is that was told to stop.
enum Stopping {
    /// Brings that what was written is recorded.
    Recording(oneshot::Receiver<()>),
    /// The cores end their streams.
    Draining,
}

/// One runtime, and whose it is.
struct SteppedRuntime {
    /// `None` for the background.
    core: Option<Rc<Core>>,
    local: Option<LocalSet>,
    /// The core's life.
    event_loop: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// Up to when it has run.
    now: Instant,
}

/// What a node says of itself: counters since its start, and gauges.
#[derive(Clone, Debug)]
pub struct SteppedState {
    /// Of each core.
    pub cores: Vec<CoreSnapshot>,
    /// Rows that the client of each open stream may still ask for, on each core, ascending.
    pub credit_rows: Vec<Vec<u32>>,
    /// Batches under way, on each core.
    pub requests: Vec<usize>,
    /// Places in the directory that wait for batches to end, on each core.
    pub graces: Vec<bool>,
    /// Extents on the drives, by the filler's books.
    pub extents: u64,
    /// Fills that wait or are under way.
    pub fills_running: u64,
    /// Fills done.
    pub fills_done: u64,
    /// Fills failed.
    pub fills_failed: u64,
    /// Bytes of extents written once more, to keep them.
    pub bytes_kept: u64,
    /// Extents looked at by the scrubber.
    pub extents_scrubbed: u64,
    /// Extents dropped because their bytes could not be served.
    pub extents_dropped: u64,
    /// Extents that each core finds.
    pub extents_found: Vec<usize>,
    /// How each drive is used.
    pub drives: Vec<DriveState>,
    /// Batches that wait for the table.
    pub table_waiting: usize,
}

impl SteppedNode {
    /// Puts a node on simulated drives together; it serves once enough steps have been made.
    ///
    /// `runtime` makes runtimes of the current thread, of paused time and without I/O. `epoch_min` is more than in
    /// any life of these drives before.
    ///
    /// # Errors
    /// A configuration that contradicts itself; a drive that is too small; a runtime that can't be had.
    pub fn start(
        mut config: IoConfig,
        disk: &SimDisk,
        tables: Arc<dyn Tables>,
        runtime: fn() -> io::Result<Runtime>,
        epoch_min: u64,
    ) -> Result<Self, NodeError> {
        let drives = Drives::simulated(&config, disk)?;
        config.drives = drives.configured();
        config.validate()?;
        let mut runtimes = runtimes_in_step(config.cores.max(1) + 1, runtime)?;
        let Some(mut background) = runtimes.pop() else { unreachable!("one more than cores") };
        let count = runtimes.len();
        let handle = background.runtime().handle().clone();
        let threads =
            Threads { background: handle.clone(), fills: FillThreads::shared(handle.clone()) };
        // What the parts have of a clock is to be this one.
        let entered = handle.enter();
        // Simulated tables have no symbolic links.
        let served = ServedTables::new(&config.serve);
        let parts = NodeParts::new(
            config,
            drives,
            (tables, served),
            count,
            threads,
            Tracer::default(),
            epoch_min,
        )?;
        drop(entered);
        let NodeParts { shared, mails, mut filler, claims } = parts;
        let mut cores = Vec::with_capacity(count);
        for ((number, mail), mut stepped) in mails.into_iter().enumerate().zip(runtimes) {
            let shared = Arc::clone(&shared);
            let core = stepped.run(async move { build_core(number, None, shared) })?;
            stepped.core = Some(core);
            stepped.event_loop = Some(stepped.local().spawn_local(event_loop(mail)));
            cores.push(stepped);
        }
        let found = slab::take(&shared.slabs, &claims)?;
        let (done, restored) = oneshot::channel();
        let starting = Arc::clone(&shared);
        background.run(async move {
            tokio::spawn(async move {
                let _ = done.send(filler.restore(found).await);
                tokio::spawn(run_at_start(Arc::clone(&starting)));
                tokio::spawn(become_ready(starting));
                filler.run().await;
            });
        });
        let (extents_found, stopped) = (None, None);
        Ok(Self { shared, cores, background, restored, extents_found, stopped })
    }

    /// How many things there are to step: cores, and the background.
    pub fn parts(&self) -> usize {
        self.cores.len() + 1
    }

    /// Runs one part for a millisecond of its clock.
    pub fn step(&mut self, part: usize) {
        match self.cores.get_mut(part) {
            Some(core) => core.step(),
            None => self.background.step(),
        }
        if self.extents_found.is_none() {
            self.extents_found = self.restored.try_recv().ok();
        }
    }

    /// Extents that were found on the drives; `None` as long as the node does not serve.
    pub fn found(&self) -> Option<usize> {
        self.extents_found
    }

    /// Deals a connection to a core.
    pub fn connect(&self, core: usize, carrier: Box<dyn Carrier>) {
        let _ = self.shared.mailboxes[core].send(Message::Connection(Accepted::Simulated(carrier)));
    }

    /// Has what is written recorded, and then the streams ended, over further steps.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(|| Stopping::Recording(self.shared.fills.stop()));
    }

    /// Whether it has recorded what was written and ended its streams, each once its batches were answered, after
    /// [`stop`](Self::stop). To be asked after each step.
    pub fn has_stopped(&mut self) -> bool {
        match &mut self.stopped {
            Some(Stopping::Recording(recorded)) => {
                if !matches!(recorded.try_recv(), Err(TryRecvError::Empty)) {
                    self.shared.mailboxes.iter().for_each(|core| drop(core.send(Message::Stop)));
                    self.stopped = Some(Stopping::Draining);
                }
                false
            }
            Some(Stopping::Draining) => {
                let mut loops = self.cores.iter().filter_map(|core| core.event_loop.as_ref());
                loops.all(JoinHandle::is_finished)
            }
            None => false,
        }
    }

    /// Whether it has recorded what was written; its streams may have to end still.
    pub fn has_recorded(&self) -> bool {
        matches!(self.stopped, Some(Stopping::Draining))
    }

    /// Whether its health says that it serves: what is filled at the start is there, or took too long.
    pub fn is_ready(&self) -> bool {
        self.shared.readiness.is_ready()
    }

    /// Extents that it would serve and that the drives do not hold whole, by name: all that can be read at all, past
    /// the rings.
    pub fn damaged(&self) -> Vec<String> {
        let directories = self.cores.iter().filter_map(|stepped| stepped.core.as_deref());
        let mut damaged: Vec<_> = directories
            .flat_map(|core| core.directory.borrow().extents().cloned().collect::<Vec<_>>())
            .filter(|extent| !self.is_whole(extent))
            .map(|extent| format!("{:?}", extent.key))
            .collect();
        damaged.sort_unstable();
        damaged.dedup();
        damaged
    }

    fn is_whole(&self, extent: &Extent) -> bool {
        let slab = &self.shared.slabs[usize::from(extent.drive.0)];
        let mut bytes = AlignedBuf::for_sectors(extent.index.sectors() as usize);
        let read = slab.read_at(extent.first.byte_offset(), &mut bytes);
        let mut sectors = (0..).zip(bytes.chunks(SECTOR_BYTES));
        read.is_err() || sectors.all(|(number, sector)| extent.index.check(number, sector).is_ok())
    }

    /// What it says of itself now.
    pub fn state(&self) -> SteppedState {
        let cores = || self.cores.iter().filter_map(|stepped| stepped.core.as_deref());
        let fills = self.shared.fills.stats();
        let drives = 0..self.shared.slabs.len() as u16;
        let drive = |number| self.shared.fills.drive_state(DriveNo(number));
        SteppedState {
            cores: cores().map(snapshot).collect(),
            credit_rows: cores().map(credit_rows).collect(),
            requests: cores().map(|core| core.requests.borrow().len()).collect(),
            graces: cores().map(|core| !core.grace.borrow().is_empty()).collect(),
            extents: fills.extents.load(Ordering::Relaxed),
            fills_running: fills.running.load(Ordering::Relaxed),
            fills_done: fills.done.load(Ordering::Relaxed),
            fills_failed: fills.failed.load(Ordering::Relaxed),
            bytes_kept: fills.bytes_kept.load(Ordering::Relaxed),
            extents_scrubbed: fills.scrubbed.load(Ordering::Relaxed),
            extents_dropped: fills.dropped.load(Ordering::Relaxed),
            extents_found: cores().map(|core| core.directory.borrow().len()).collect(),
            drives: drives.map(drive).collect(),
            table_waiting: self.shared.table_reader.waiting(),
        }
    }
}

fn credit_rows(core: &Core) -> Vec<u32> {
    let mut rows: Vec<_> =
        core.sessions.borrow().all().map(|session| session.credit_rows).collect();
    rows.sort_unstable();
    rows
}

/// Runtimes whose clocks differ by less than a step, the last one's being the earliest.
fn runtimes_in_step(
    count: usize,
    runtime: fn() -> io::Result<Runtime>,
) -> Result<Vec<SteppedRuntime>, NodeError> {
    loop {
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            let runtime = runtime().map_err(os_error("making a runtime"))?;
            let now = runtime.block_on(async { Instant::now() });
            let (local, runtime) = (Some(LocalSet::new()), Some(runtime));
            made.push(SteppedRuntime { core: None, local, event_loop: None, runtime, now });
        }
        made.reverse();
        if made[0].now - made[count - 1].now < STEP {
            return Ok(made);
        }
    }
}

impl SteppedRuntime {
    fn local(&self) -> &LocalSet {
        self.local.as_ref().expect("it is there until it is dropped")
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Runs until `until` is over.
    fn run<T>(&mut self, until: impl Future<Output = T>) -> T {
        set_here(self.core.clone());
        let done = self.local().block_on(self.runtime(), until);
        set_here(None);
        done
    }

    fn step(&mut self) {
        self.now += STEP;
        let until = self.now;
        self.run(async move { tokio::time::sleep_until(until).await });
    }
}

impl Drop for SteppedRuntime {
    /// As the core that it is: what its tasks hold is the core's.
    fn drop(&mut self) {
        set_here(self.core.clone());
        self.local = None;
        self.runtime = None;
        set_here(None);
    }
}
