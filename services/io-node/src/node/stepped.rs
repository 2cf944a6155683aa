//! A node without threads, for simulations: its cores and its background work run in turn on the caller's thread.
//!
//! It serves, reads, fills and recovers with the code of [`IoNode`](crate::IoNode). It has no listener, no running
//! clock and no threads, except those that read journals and make extents of them at the start.
//!
//! ```text
//! step(0) ─► core 0: its runtime runs, as the core of this thread, until 1 ms has passed and all its tasks wait
//! step(1) ─► core 1 ...                       step(cores) ─► the background: tables, fills
//! ```
//!
//! Each core and the background have a runtime with a paused clock of its own. Cores send deadlines to the background
//! as instants, so the clocks must differ by less than the resolution of timers, a millisecond.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use address::{DriveNo, SECTOR_BYTES};
use connections::Carrier;
use futures::FutureExt;
use ring::AlignedBuf;
use ring::sim::SimDisk;
use tables::Tables;
use telemetry::Tracer;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::core_thread::event_loop;
use super::parts::{NodeParts, Threads};
use super::readiness::become_ready;
use super::start_warm::run_at_start;
use crate::cache::FillThreads;
use crate::config::IoConfig;
use crate::drive::{self, DriveState, Drives};
use crate::error::{NodeError, os_error};
use crate::extent::Extent;
use crate::fetch::{Core, set_here};
use crate::serve::ServiceState;
use crate::shard::mailbox::Message;
use crate::shard::{Accepted, CoreSnapshot};
use crate::table::ServedTables;

/// The duration of a step on the node's own clocks.
const STEP: Duration = Duration::from_millis(1);

/// A node that only runs when it is stepped. Dropping it simulates a crash: nothing more is written to the journals.
pub struct SteppedNode {
    shared: Arc<ServiceState>,
    cores: Vec<SteppedRuntime>,
    background: SteppedRuntime,
    /// The filler's task, until it has ended.
    filler: Option<JoinHandle<()>>,
    /// Receives the number of extents that were found on the drives.
    restored: oneshot::Receiver<usize>,
    /// The number that `restored` received.
    extents_found: Option<usize>,
    stopped: Option<Stopping>,
}

/// The progress of a node that is stopping.
enum Stopping {
    /// The filler records the written extents in the journals. The receiver completes when it has.
    Recording(oneshot::Receiver<()>),
    /// The cores end their streams.
    Draining,
}

/// A runtime of a core or of the background.
struct SteppedRuntime {
    /// The core that the runtime runs; `None` for the background.
    core: Option<Rc<Core>>,
    local: Option<LocalSet>,
    /// The core's event loop.
    event_loop: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// The time up to which the runtime has run.
    now: Instant,
}

/// The state of a node: counters since its start, and gauges.
#[derive(Clone, Debug)]
pub struct SteppedState {
    /// The counters and gauges of each core.
    pub cores: Vec<CoreSnapshot>,
    /// Remaining credits of each open stream, by core, ascending.
    pub credit_rows: Vec<Vec<u32>>,
    /// Batches under way, by core.
    pub requests: Vec<usize>,
    /// Whether entries of the directory wait for batches to end before they are reused, by core.
    pub graces: Vec<bool>,
    /// Extents on the drives, as the filler counts them.
    pub extents: u64,
    /// Fills that wait or are under way.
    pub fills_running: u64,
    /// Fills that succeeded.
    pub fills_done: u64,
    /// Fills that failed.
    pub fills_failed: u64,
    /// Bytes of extents that were rewritten to keep them when their segment was reclaimed.
    pub bytes_kept: u64,
    /// Extents that the scrubber has read.
    pub extents_scrubbed: u64,
    /// Extents dropped because their bytes could not be served.
    pub extents_dropped: u64,
    /// Extents in each core's directory.
    pub extents_found: Vec<usize>,
    /// The state of each drive.
    pub drives: Vec<DriveState>,
    /// Reads of rows from tables that wait for a permit.
    pub table_waiting: usize,
}

impl SteppedNode {
    /// Creates a node on simulated drives. It serves after enough steps.
    ///
    /// `runtime` creates current-thread runtimes with paused time and without I/O. `epoch_min` must exceed all epochs
    /// that these drives have used before.
    ///
    /// # Errors
    /// The configuration contradicts itself, a drive is too small, or a runtime cannot be created.
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
        let Some(background) = runtimes.pop() else {
            unreachable!("there is one runtime more than cores")
        };
        let count = runtimes.len();
        let handle = background.runtime().handle().clone();
        let threads =
            Threads { background: handle.clone(), fills: FillThreads::shared(handle.clone()) };
        // The parts read the clock of the current runtime, which must be the background's.
        let entered = handle.enter();
        // Simulated tables have no symbolic links, so their URIs need not be resolved.
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
        let NodeParts { shared, core: plan, mails, mut filler, claims, .. } = parts;
        let mut cores = Vec::with_capacity(count);
        for ((number, mail), mut stepped) in mails.into_iter().enumerate().zip(runtimes) {
            let (node, plan) = (Arc::clone(&shared.node), &plan);
            let core = stepped.run(async move { plan.build(number, None, node) })?;
            stepped.core = Some(core);
            let event_loop = event_loop(Arc::clone(&shared), mail);
            stepped.event_loop = Some(stepped.local().spawn_local(event_loop));
            cores.push(stepped);
        }
        let found = drive::claim_and_recover(&shared.node.slabs, &claims)?;
        let (done, restored) = oneshot::channel();
        let starting = Arc::clone(&shared);
        let filler = handle.spawn(async move {
            let _ = done.send(filler.restore(found).await);
            tokio::spawn(run_at_start(Arc::clone(&starting)));
            tokio::spawn(become_ready(starting));
            filler.run().await;
        });
        let (filler, extents_found, stopped) = (Some(filler), None, None);
        Ok(Self { shared, cores, background, filler, restored, extents_found, stopped })
    }

    /// Returns the number of parts to step: the cores and the background.
    pub fn parts(&self) -> usize {
        self.cores.len() + 1
    }

    /// Runs one part for a millisecond on its clock.
    pub fn step(&mut self, part: usize) {
        match self.cores.get_mut(part) {
            Some(core) => core.step(),
            None => self.background.step(),
        }
        if self.extents_found.is_none() {
            self.extents_found = self.restored.try_recv().ok();
        }
        // The simulation fails where a node would end its process.
        if let Some(ended) = self.filler.take_if(|filler| filler.is_finished())
            && let Some(Err(error)) = ended.now_or_never()
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// Returns the number of extents that were found on the drives, or `None` until they are in the directory.
    pub fn found(&self) -> Option<usize> {
        self.extents_found
    }

    /// Hands a connection to a core.
    pub fn connect(&self, core: usize, carrier: Box<dyn Carrier>) {
        let _ = self.shared.node.mailboxes[core]
            .send(Message::Connection(Accepted::Simulated(carrier)));
    }

    /// Begins to stop: in later steps the node records the written extents and then ends its streams.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(|| Stopping::Recording(self.shared.node.fills.stop()));
    }

    /// Returns whether the node has stopped: after [`stop`](Self::stop) it has recorded the written extents, and ended
    /// each stream once its batches were answered. Must be called after each step.
    pub fn has_stopped(&mut self) -> bool {
        match &mut self.stopped {
            Some(Stopping::Recording(recorded)) => {
                if !matches!(recorded.try_recv(), Err(TryRecvError::Empty)) {
                    self.shared
                        .node
                        .mailboxes
                        .iter()
                        .for_each(|core| drop(core.send(Message::Stop)));
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

    /// Returns whether the stopping node has recorded the written extents. Its streams may still be open.
    pub fn has_recorded(&self) -> bool {
        matches!(self.stopped, Some(Stopping::Draining))
    }

    /// Returns whether the node's health reports serving.
    pub fn is_ready(&self) -> bool {
        self.shared.readiness.is_ready()
    }

    /// Returns the names of extents in the directory whose bytes on the drives are damaged. Reads the drives directly,
    /// not through the rings. An extent that cannot be read does not count as damaged.
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
        let slab = &self.shared.node.slabs[usize::from(extent.drive.0)];
        let mut bytes = AlignedBuf::for_sectors(extent.index.sectors() as usize);
        let read = slab.read_at(extent.first.byte_offset(), &mut bytes);
        let mut sectors = (0..).zip(bytes.chunks(SECTOR_BYTES));
        read.is_err() || sectors.all(|(number, sector)| extent.index.check(number, sector).is_ok())
    }

    /// Returns the node's counters and gauges.
    pub fn state(&self) -> SteppedState {
        let cores = || self.cores.iter().filter_map(|stepped| stepped.core.as_deref());
        let fills = self.shared.node.fills.stats();
        let drives = 0..self.shared.node.slabs.len() as u16;
        let drive = |number| self.shared.node.fills.drive_state(DriveNo(number));
        SteppedState {
            cores: self.cores.iter().filter_map(SteppedRuntime::snapshot).collect(),
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
            table_waiting: self.shared.node.table_reader.waiting(),
        }
    }
}

fn credit_rows(core: &Core) -> Vec<u32> {
    let mut rows: Vec<_> =
        core.sessions.borrow().all().map(|session| session.credit_rows).collect();
    rows.sort_unstable();
    rows
}

/// Creates runtimes whose clocks differ by less than a step. The last one has the earliest clock.
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
        self.local.as_ref().expect("the local set exists until the drop")
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime exists until the drop")
    }

    /// Runs the runtime until `until` completes.
    fn run<T>(&mut self, until: impl Future<Output = T>) -> T {
        set_here(self.core.clone());
        let done = self.local().block_on(self.runtime(), until);
        set_here(None);
        done
    }

    /// Returns the core's counters and gauges. Some of them depend on the time, so the core's runtime is entered for
    /// its clock.
    fn snapshot(&self) -> Option<CoreSnapshot> {
        let _entered = self.runtime().enter();
        self.core.as_deref().map(Core::snapshot)
    }

    fn step(&mut self) {
        self.now += STEP;
        let until = self.now;
        self.run(async move { tokio::time::sleep_until(until).await });
    }
}

impl Drop for SteppedRuntime {
    /// Drops the tasks while the core is set, because dropping them may call `here`.
    fn drop(&mut self) {
        set_here(self.core.clone());
        self.local = None;
        self.runtime = None;
        set_here(None);
    }
}
