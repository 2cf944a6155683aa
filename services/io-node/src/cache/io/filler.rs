//! The filler: one task that owns the cache's books ([`CacheBooks`]), and carries out what they decide.
//!
//! A miss requests a fill. A request for a chunk that is already being filled joins that fill, so each chunk is scanned
//! once however many requests there are. Work that takes time runs in steps (`task.rs`), a bounded number at once. Each
//! step ends in an event for the books. So all bookkeeping happens on this task, without a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use address::{DriveNo, ExtentKey, SECTOR_BYTES};
use futures::FutureExt;
use ring::{ReadError, WriteError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::chunk::Chunk;
use super::handle::{DriveGauges, FillHandle, FillRequest, FillStats, FillerMessage, Waiter};
use super::restore;
use super::steps::Steps;
use super::task::{self, forget, publish};
use super::threads::FillThreads;
use super::transfer_bufs::TransferBufs;
use super::transfers::Transfers;
use crate::cache::books::{
    Action, CacheBooks, Event, FillLimits, RequestOutcome, ScanError, Shares,
};
use crate::drive::{FoundJournal, JournalError, Superblock};
use crate::extent::{ByKey, Extent};
use crate::shard::mailbox::Mailbox;

/// The number of restored extents that the filler enters into the books before it yields to other tasks. The filler's
/// thread may be the only one that runs these tasks, and they must not wait for a million extents.
const TAKEN_OVER_AT_ONCE: usize = 16 << 10;

/// The filler; [`Filler::run`] is its task.
pub struct Filler {
    books: CacheBooks,
    /// Fills that were requested and have not ended.
    fills: ByKey<Fill>,
    requests: mpsc::Receiver<FillRequest>,
    messages: mpsc::Receiver<FillerMessage>,
    /// A sender for the filler's own steps.
    own_messages: mpsc::WeakSender<FillerMessage>,
    cores: Arc<[Mailbox]>,
    stats: Arc<FillStats>,
    gauges: Arc<[DriveGauges]>,
    steps: Steps,
    /// Threads for long steps.
    threads: FillThreads,
    /// Each drive's transfer buffers.
    bufs: Vec<Arc<TransferBufs>>,
    /// Extents found on the drives at the start, until they are in the books.
    restored: Arc<[Arc<Extent>]>,
    stopping: Option<oneshot::Sender<()>>,
    next_core: usize,
}

/// A fill that was requested and has not ended.
struct Fill {
    /// The chunk's data, until it is scanned by itself, or the fill ends.
    chunk: Option<Box<dyn Chunk>>,
    waiters: Vec<Waiter>,
}

impl Filler {
    /// Creates a filler over these slabs, which are all divided into segments of the same length. It learns their
    /// contents in [`Filler::restore`].
    ///
    /// Long steps run on `threads`, short ones on the runtime of [`Filler::run`]. [`CacheBooks::new`] explains
    /// `epoch_min`.
    pub fn new(
        cores: Arc<[Mailbox]>,
        slabs: Vec<Superblock>,
        limits: FillLimits,
        shares: Shares,
        threads: FillThreads,
        epoch_min: u64,
    ) -> (Self, FillHandle) {
        let stats = Arc::new(FillStats::default());
        let gauges: Arc<[DriveGauges]> = slabs.iter().map(|_| DriveGauges::default()).collect();
        let (handle, requests, messages) =
            FillHandle::new(limits.queue_max, Arc::clone(&stats), Arc::clone(&gauges));
        let drives = slabs.len();
        let books = CacheBooks::new(cores.len(), slabs, limits, shares, epoch_min, Instant::now());
        let bytes_under_way =
            limits.fills_max as u64 * books.segment_sectors() * SECTOR_BYTES as u64;
        let filler = Self {
            books,
            fills: ByKey::default(),
            requests,
            messages,
            own_messages: handle.own_messages(),
            cores,
            stats,
            gauges,
            steps: Steps::default(),
            threads,
            bufs: (0..drives).map(|_| Arc::new(TransferBufs::new(bytes_under_way))).collect(),
            restored: Arc::default(),
            stopping: None,
            next_core: 0,
        };
        (filler, handle)
    }

    /// Enters the extents on the slabs into every core's directory, as many as it has memory for, and returns how many
    /// there are. Call it first.
    ///
    /// The extents are entered into the books only in [`run`](Self::run), because rows can be served without the books.
    pub async fn restore(&mut self, found: Vec<Vec<FoundJournal>>) -> usize {
        let mut restored = restore::combine(found, self.books.segment_sectors());
        self.books.restore_segments(restored.segments, restored.unreadable);
        self.books.fit_directory(&mut restored.extents);
        self.restored = restored.extents.into();
        let extents = task::restore(&self.cores, &self.restored).await;
        self.report();
        self.stats.extents.store(extents as u64, Ordering::Relaxed);
        extents
    }

    /// Enters the restored extents into the books.
    async fn take_over(&mut self) {
        let restored = std::mem::take(&mut self.restored);
        self.books.reserve(restored.len());
        for extents in restored.chunks(TAKEN_OVER_AT_ONCE) {
            self.books.restore_extents(extents);
            // Other tasks of this runtime wait meanwhile, such as openings of tables.
            tokio::task::yield_now().await;
        }
        for extents in restored.chunks(TAKEN_OVER_AT_ONCE) {
            self.books.restore_counts(extents);
            tokio::task::yield_now().await;
        }
        // Makes the cores forget the extents that were evicted from tables that exceed their quota.
        let actions = self.books.restored(Instant::now());
        self.carry_out(actions);
    }

    /// Runs until all handles are dropped, or until it has received a stop message and recorded the written extents.
    pub async fn run(mut self) {
        self.take_over().await;
        while self.stopping.is_none() || self.books.is_busy() {
            let takes = self.stopping.is_none() && !self.books.is_queue_full();
            let wake = self.books.wake();
            // Polled in this order so that a simulated run repeats. Steps are few, so requests do not wait long.
            let event = tokio::select! {
                biased;
                Some(event) = self.steps.next() => event,
                // Messages are taken even when the queue of fills is full.
                Some(message) = self.messages.recv() => match message {
                    FillerMessage::Event(event) => event,
                    FillerMessage::Tables(to) => {
                        // The receiver may be gone.
                        let _ = to.send(self.books.holdings().collect());
                        continue;
                    }
                    FillerMessage::Evict(extents, to) => {
                        // The caller may be gone.
                        let _ = to.send(self.books.evict_unused(extents));
                        Event::Woken
                    }
                    FillerMessage::Stop(stopped) => {
                        self.stopping = Some(stopped);
                        Event::Stopped
                    }
                },
                request = self.requests.recv(), if takes => match request {
                    Some(request) => {
                        self.requested(request);
                        Event::Woken
                    }
                    None => break,
                },
                // The branch is enabled only if `wake` is a time.
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)),
                    if wake.is_some() => Event::Woken,
                else => break,
            };
            let actions = self.books.apply(event, Instant::now());
            self.carry_out(actions);
        }
    }

    fn requested(&mut self, request: FillRequest) {
        let FillRequest { name, chunk, waiter } = request;
        let scan_bytes = chunk.scan_bytes();
        match self.books.request(name, scan_bytes, waiter.is_some(), Instant::now()) {
            RequestOutcome::Queued => {
                let fill = Fill { chunk: Some(chunk), waiters: waiter.into_iter().collect() };
                self.fills.insert(name, fill);
            }
            RequestOutcome::Joined => {
                let fill = self.fills.get_mut(&name);
                fill.expect("the books know only of fills that are here").waiters.extend(waiter);
            }
            RequestOutcome::Ended(outcome) => {
                waiter.into_iter().for_each(|waiter| drop(waiter.send(outcome.clone())));
            }
            RequestOutcome::Ignored => {}
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        // Steps read the drives' states, so these are made current first.
        self.report();
        for action in actions {
            match action {
                Action::Scan(keys) => self.scan(keys),
                Action::Write { extent, purpose, bytes } => {
                    let drive = self.transfers(extent.drive);
                    let write = task::write(drive, Arc::clone(&extent), purpose, bytes);
                    let outcome = Err(WriteError::Closed);
                    let instead = move || Event::Written { extent, purpose, outcome };
                    self.steps.spawn_on(self.threads.next(), "write", write, instead);
                }
                Action::Publish { extent, purpose } => {
                    let broadcast = publish(&self.cores, &extent);
                    let published = move || Event::Published { extent, purpose };
                    // Even if the wait panics, the cores have received the message, so the step counts as done.
                    let instead = published.clone();
                    let work = async move {
                        broadcast.wait().await;
                        published()
                    };
                    self.steps.spawn("publish", work, instead);
                }
                Action::Record { of, first, block } => {
                    let drive = self.transfers(of.segment.drive);
                    let record = async move {
                        let outcome = task::record(&drive, first, block).await;
                        Event::Recorded { of, outcome: outcome.map_err(JournalError::from) }
                    };
                    let outcome = Err(JournalError::Panicked);
                    self.steps.spawn("record", record, move || Event::Recorded { of, outcome });
                }
                Action::AskHeat { segment, extents } => {
                    let heat = task::heat(Arc::clone(&self.cores), segment, extents.clone());
                    // If the step panics, all extents count as unread. Those that count towards a guarantee are kept
                    // nevertheless.
                    let cold = |extent| (extent, 0);
                    let instead = move || Event::Heated {
                        segment,
                        heats: extents.into_iter().map(cold).collect(),
                    };
                    self.steps.spawn("heat", heat, instead);
                }
                Action::Reread(extent) => {
                    let reread = task::reread(self.transfers(extent.drive), Arc::clone(&extent));
                    let copy = Err(ReadError::Closed.into());
                    let instead = move || Event::Reread { extent, copy };
                    self.steps.spawn_on(self.threads.next(), "reread", reread, instead);
                }
                Action::Empty { segment, forgotten, first, block } => {
                    let forgotten = forget(&self.cores, forgotten);
                    let drive = self.transfers(segment.drive);
                    let empty = async move {
                        forgotten.wait().await;
                        let outcome = task::empty(&drive, first, block).await;
                        Event::Emptied { segment, outcome: outcome.map_err(JournalError::from) }
                    };
                    let outcome = Err(JournalError::Panicked);
                    self.steps.spawn("empty", empty, move || Event::Emptied { segment, outcome });
                }
                Action::Scrub(extent) => {
                    let scrub = task::scrub(self.transfers(extent.drive), Arc::clone(&extent));
                    let outcome = Err(ReadError::Closed.into());
                    let instead = move || Event::Scrubbed { extent, outcome };
                    self.steps.spawn_on(self.threads.next(), "scrub", scrub, instead);
                }
                // The extents' space becomes free when their segments are reclaimed, so nothing has to wait for the
                // cores to forget them.
                Action::Forget(keys) => drop(forget(&self.cores, keys)),
                Action::End(key, outcome) => {
                    let fill = self.fills.remove(&key).expect("a fill ends once");
                    for waiter in fill.waiters {
                        let _ = waiter.send(outcome.clone());
                    }
                }
            }
        }
    }

    fn scan(&mut self, keys: Vec<ExtentKey>) {
        const MISSING: &str = "a fill that is to be scanned has its chunk";
        let scan = match *keys {
            [key] => {
                let chunk = self.fills.get_mut(&key).and_then(|fill| fill.chunk.take());
                let bytes_max = self.books.segment_sectors() * SECTOR_BYTES as u64;
                task::scan(key, chunk.expect(MISSING), bytes_max).boxed()
            }
            _ => {
                // The chunks stay here, because a scan may leave some of them to a later one.
                let chunk = |key: &ExtentKey| {
                    let fill = self.fills.get(key);
                    fill.and_then(|fill| fill.chunk.as_deref()).expect(MISSING)
                };
                let run: Vec<_> = keys.iter().map(|key| (*key, chunk(key).scan_bytes())).collect();
                let bytes_max = self.books.scan_bytes_max();
                let together = chunk(&keys[0]).encoded_together(run.len() as u32, bytes_max);
                task::scan_together(run, together).boxed()
            }
        };
        let failed = |key| (key, Err(ScanError::Failed("reading the table panicked".to_owned())));
        let instead = move || Event::Scanned {
            extents: keys.into_iter().map(failed).collect(),
            left: Vec::new(),
        };
        self.steps.spawn_on(self.threads.next(), "scan", scan, instead);
    }

    /// Makes the books' figures visible to other threads.
    fn report(&self) {
        self.stats.report(&self.books);
        for (drive, gauges) in (0..).map(DriveNo).zip(self.gauges.iter()) {
            gauges.used_bytes.store(self.books.used_bytes(drive), Ordering::Relaxed);
            gauges.state.store(self.books.drive_state(drive) as u8, Ordering::Relaxed);
        }
    }

    /// Returns the [`Transfers`] for a drive. They go through the ring of the next core in turn.
    fn transfers(&mut self, drive: DriveNo) -> Transfers {
        self.next_core = (self.next_core + 1) % self.cores.len();
        Transfers {
            core: self.cores[self.next_core].clone(),
            drive,
            bufs: Arc::clone(&self.bufs[usize::from(drive.0)]),
            gauges: Arc::clone(&self.gauges),
            filler: self.own_messages.clone(),
        }
    }
}
