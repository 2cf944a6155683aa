//! The filler's interface for other threads: requests, counters, and the drives' states.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use address::{DriveNo, ExtentKey, TableTag};
use tokio::sync::{mpsc, oneshot};

use super::chunk::{Chunk, FillKey, TableChunk};
use crate::cache::books::{CacheBooks, Event, FillOutcome, Holding};
use crate::drive::{DriveState, ExtentError};
use crate::extent::Extent;
use crate::table::OpenTable;

/// The filler's counters, for other threads to read.
#[derive(Debug, Default)]
pub struct FillStats {
    /// Extents on the drives.
    pub extents: AtomicU64,
    /// The RAM that these extents take at most, which `directory_bytes_max` limits.
    pub directory_bytes: AtomicU64,
    /// Fills waiting or under way.
    pub running: AtomicU64,
    /// The fills among `running` that wait to be scanned.
    pub waiting: AtomicU64,
    /// Scans of tables since the start. Neighbouring chunks may share one.
    pub scans: AtomicU64,
    /// Fills done since the start.
    pub done: AtomicU64,
    /// Fills failed since the start.
    pub failed: AtomicU64,
    /// Bytes of extents filled since the start.
    pub bytes_filled: AtomicU64,
    /// Bytes of extents rewritten since the start to keep them.
    pub bytes_kept: AtomicU64,
    /// Extents evicted since the start.
    pub evicted: AtomicU64,
    /// Extents read by the scrubber since the start.
    pub scrubbed: AtomicU64,
    /// Extents dropped since the start because their bytes could not be served.
    pub dropped: AtomicU64,
}

impl FillStats {
    /// Sets the counters to the books' current figures.
    pub(super) fn report(&self, books: &CacheBooks) {
        let counts = books.counts();
        for (figure, value) in [
            (&self.extents, books.extents() as u64),
            (&self.directory_bytes, books.directory_bytes()),
            (&self.running, books.running() as u64),
            (&self.waiting, books.waiting() as u64),
            (&self.scans, counts.scans),
            (&self.done, counts.done),
            (&self.failed, counts.failed),
            (&self.bytes_filled, counts.bytes_filled),
            (&self.bytes_kept, counts.bytes_kept),
            (&self.evicted, counts.evicted),
            (&self.scrubbed, counts.scrubbed),
            (&self.dropped, counts.dropped),
        ] {
            figure.store(value, Ordering::Relaxed);
        }
    }
}

/// One drive's figures, for other threads to read.
#[derive(Debug, Default)]
pub struct DriveGauges {
    /// Bytes of extents and journals.
    pub used_bytes: AtomicU64,
    /// The drive's [`DriveState`], as its number.
    pub state: AtomicU8,
}

/// The sectors and extents that each table has on the drives.
type TableHoldings = Vec<(TableTag, Holding)>;

/// Sends requests to the filler, from any thread.
#[derive(Clone)]
pub struct FillHandle {
    requests: mpsc::Sender<FillRequest>,
    messages: mpsc::Sender<FillerMessage>,
    stats: Arc<FillStats>,
    drives: Arc<[DriveGauges]>,
    /// The filler's latest answer to [`tables`](Self::tables).
    last_tables: Arc<Mutex<Option<TableHoldings>>>,
}

/// The sender of a fill's outcome to a caller that waits for it.
pub type Waiter = oneshot::Sender<FillOutcome>;

/// A request to fill a chunk.
pub struct FillRequest {
    /// The extent's name.
    pub name: ExtentKey,
    /// The chunk's data.
    pub chunk: Box<dyn Chunk>,
    /// The sender for the outcome; `None` for a miss, for which no caller waits.
    pub waiter: Option<Waiter>,
}

/// A message to the filler other than a request for a fill.
pub enum FillerMessage {
    /// An event for the books.
    Event(Event),
    /// Asks for each table's extents on the drives.
    Tables(oneshot::Sender<Vec<(TableTag, Holding)>>),
    /// Asks to evict extents. The answer is the number of those that were on the drives.
    Evict(Vec<ExtentKey>, oneshot::Sender<u64>),
    /// Asks to record the extents that are written, and to start nothing more. The sender is dropped when they are
    /// recorded.
    Stop(oneshot::Sender<()>),
}

/// The maximum number of waiting messages. A further message is dropped. An event is sent again when its cause recurs;
/// for the other messages, see the methods that send them.
const MESSAGES_MAX: usize = 1024;

/// The maximum time to wait for the filler's answer to [`FillHandle::tables`]. A query node waits 2 s for an I/O node's
/// whole status report, which includes this answer.
const TABLES_PATIENCE: Duration = Duration::from_secs(1);

impl FillHandle {
    /// Creates a handle, the receiver of its requests and the receiver of its messages. At most `queue_max` requests
    /// wait to be received.
    pub fn new(
        queue_max: usize,
        stats: Arc<FillStats>,
        drives: Arc<[DriveGauges]>,
    ) -> (Self, mpsc::Receiver<FillRequest>, mpsc::Receiver<FillerMessage>) {
        let (requests, requested) = mpsc::channel(queue_max);
        let (messages, received) = mpsc::channel(MESSAGES_MAX);
        let last_tables = Arc::default();
        (Self { requests, messages, stats, drives, last_tables }, requested, received)
    }

    /// Requests a fill without waiting. If too many requests wait, this one is dropped, and the next miss of the chunk
    /// requests the fill again.
    pub fn request(&self, table: &Arc<OpenTable>, key: FillKey) {
        if let Some((name, chunk)) = TableChunk::new(table, key) {
            let _ =
                self.requests.try_send(FillRequest { name, chunk: Box::new(chunk), waiter: None });
        }
    }

    /// Fills a chunk and returns the outcome. Waits for space in the queue.
    pub async fn fill(&self, table: &Arc<OpenTable>, key: FillKey) -> FillOutcome {
        match TableChunk::new(table, key) {
            Some((name, chunk)) => self.fill_with(name, Box::new(chunk)).await,
            None => FillOutcome::Failed("the table has no such fragment".into()),
        }
    }

    /// Fills an extent with a chunk's data, and returns the outcome. Waits for space in the queue.
    pub(super) async fn fill_with(&self, name: ExtentKey, chunk: Box<dyn Chunk>) -> FillOutcome {
        let (waiter, outcome) = oneshot::channel();
        let request = FillRequest { name, chunk, waiter: Some(waiter) };
        let stopped = || FillOutcome::Failed("the node is shutting down".into());
        if self.requests.send(request).await.is_err() {
            return stopped();
        }
        outcome.await.unwrap_or_else(|_| stopped())
    }

    /// Reports an extent whose bytes can't be served. The filler drops the extent, and the next miss fills it again,
    /// elsewhere. If too many messages wait, the next read of the extent reports it again.
    pub fn bad_extent(&self, extent: &Arc<Extent>, error: ExtentError) {
        let _ = self
            .messages
            .try_send(FillerMessage::Event(Event::BadExtent(Arc::clone(extent), error)));
    }

    /// Returns a sender for the filler's own steps. It is weak, so that the filler ends when all handles are dropped.
    pub(super) fn own_messages(&self) -> mpsc::WeakSender<FillerMessage> {
        self.messages.downgrade()
    }

    /// Reports that all of one core's reads of a drive in one second took many times longer than usual.
    pub fn slow(&self, drive: DriveNo) {
        let _ = self.messages.try_send(FillerMessage::Event(Event::Slow(drive)));
    }

    /// Reports that a drive did not answer reads in time.
    pub fn late(&self, drive: DriveNo) {
        let _ = self.messages.try_send(FillerMessage::Event(Event::Late(drive)));
    }

    /// Evicts extents that are not used any more, and returns how many were on the drives; `None` if the node stops.
    /// Waits for the filler.
    pub async fn evict(&self, extents: Vec<ExtentKey>) -> Option<u64> {
        let (to, evicted) = oneshot::channel();
        self.messages.send(FillerMessage::Evict(extents, to)).await.ok()?;
        evicted.await.ok()
    }

    /// Asks the filler to record the extents that are written already, and to start nothing more. The receiver
    /// completes when they are recorded.
    pub fn stop(&self) -> oneshot::Receiver<()> {
        let (stopped, done) = oneshot::channel();
        // If the queue of messages is full, this message is lost, and extents that are in no journal yet are not
        // recorded. A filler that is so far behind could not record them before the node stops anyway.
        let _ = self.messages.try_send(FillerMessage::Stop(stopped));
        done
    }

    /// Returns each table's extents on the drives. If the filler does not answer within a second, returns its latest
    /// answer; `None` if it has never answered.
    pub async fn tables(&self) -> Option<Vec<(TableTag, Holding)>> {
        let answer = async {
            let (to, tables) = oneshot::channel();
            self.messages.try_send(FillerMessage::Tables(to)).ok()?;
            tokio::time::timeout(TABLES_PATIENCE, tables).await.ok()?.ok()
        };
        let answer = answer.await;
        let mut last = self.last_tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = answer {
            *last = Some(tables);
        }
        last.clone()
    }

    /// The filler's counters.
    pub fn stats(&self) -> &FillStats {
        &self.stats
    }

    /// Bytes of a drive that extents and journals use.
    pub fn used_bytes(&self, drive: DriveNo) -> u64 {
        self.drives[usize::from(drive.0)].used_bytes.load(Ordering::Relaxed)
    }

    /// A drive's state.
    pub fn drive_state(&self, drive: DriveNo) -> DriveState {
        match self.drives[usize::from(drive.0)].state.load(Ordering::Relaxed) {
            0 => DriveState::Serving,
            1 => DriveState::ReadOnly,
            _ => DriveState::Retired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_busy_filler_has_its_last_answer_repeated() {
        let (fills, _requests, mut messages) =
            FillHandle::new(1, Arc::default(), Arc::new([DriveGauges::default()]));
        assert_eq!(fills.tables().await, None, "it has not answered yet");
        let holding = Holding { sectors: 7, held_sectors: 3, extents: 2 };
        let answer = vec![(TableTag(5), holding)];
        while let Ok(message) = messages.try_recv() {
            assert!(matches!(message, FillerMessage::Tables(_)));
        }
        let answering = async {
            let Some(FillerMessage::Tables(to)) = messages.recv().await else { panic!() };
            to.send(answer.clone()).unwrap();
        };
        let (answered, ()) = tokio::join!(fills.tables(), answering);
        assert_eq!(answered.as_ref(), Some(&answer));
        // First the filler does not read the message. Then its mailbox is full.
        assert_eq!(fills.tables().await.as_ref(), Some(&answer));
        (0..MESSAGES_MAX).for_each(|_| fills.slow(DriveNo(0)));
        assert_eq!(fills.tables().await.as_ref(), Some(&answer));
    }
}
