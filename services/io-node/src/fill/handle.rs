//! What other threads have of the filler: asks, counters, and how the drives are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use address::{DriveNo, ExtentKey, TableTag};
use tokio::sync::{mpsc, oneshot};

use super::chunk::{Chunk, FillKey, TableChunk};
use super::health::{DriveState, Trouble};
use super::shares::Holding;
use crate::directory::Extent;
use crate::table::OpenTable;

/// What came of an ask.
#[derive(Clone, Debug)]
pub enum FillOutcome {
    /// The extent was on a drive already.
    Found,
    /// It is now; bytes written.
    Filled(u64),
    /// It can't be filled; why.
    Failed(Arc<str>),
}

/// What the filler counts, for other threads to read.
#[derive(Debug, Default)]
pub struct FillStats {
    /// Extents on the drives.
    pub extents: AtomicU64,
    /// Fills waiting or under way.
    pub running: AtomicU64,
    /// Those of them that wait for their turn.
    pub waiting: AtomicU64,
    /// Scans of tables since the start; neighbours share one.
    pub scans: AtomicU64,
    /// Fills done since the start.
    pub done: AtomicU64,
    /// Fills failed since the start.
    pub failed: AtomicU64,
    /// Bytes of extents filled since the start.
    pub bytes_filled: AtomicU64,
    /// Bytes of extents written once more since the start, to keep them.
    pub bytes_kept: AtomicU64,
    /// Extents evicted since the start, for room.
    pub evicted: AtomicU64,
    /// Extents looked at by the scrubber since the start.
    pub scrubbed: AtomicU64,
    /// Extents dropped since the start because their bytes could not be served.
    pub dropped: AtomicU64,
}

/// One drive, for other threads to read.
#[derive(Debug, Default)]
pub struct DriveGauges {
    /// Bytes that hold extents and journals.
    pub used_bytes: AtomicU64,
    /// A [`DriveState`].
    pub state: AtomicU8,
}

/// Asks of the filler, from any thread.
#[derive(Clone)]
pub struct FillHandle {
    asks: mpsc::Sender<Ask>,
    words: mpsc::Sender<Word>,
    stats: Arc<FillStats>,
    drives: Arc<[DriveGauges]>,
}

/// Who wants to know what came of a fill.
pub type Waiter = oneshot::Sender<FillOutcome>;

/// A chunk to be filled.
pub struct Ask {
    /// Its extent.
    pub name: ExtentKey,
    /// Where it comes from.
    pub chunk: Box<dyn Chunk>,
    /// Nobody for a miss.
    pub waiter: Option<Waiter>,
}

/// What else the filler is told.
pub enum Word {
    /// An extent can't be served.
    Bad(Arc<Extent>, Trouble),
    /// A drive did not answer in time.
    Late(DriveNo),
    /// All reads of a drive took many times what they did.
    Slow(DriveNo),
    /// Say what each table has of the drives.
    Tables(oneshot::Sender<Vec<(TableTag, Holding)>>),
    /// Record what is written, begin nothing more; dropped once that is done.
    Stop(oneshot::Sender<()>),
}

/// Words that wait at most; who has one too many says it again.
const WORDS_MAX: usize = 1024;

impl FillHandle {
    /// A handle, and where its asks arrive, `queue_max` at a time.
    pub fn new(
        queue_max: usize,
        stats: Arc<FillStats>,
        drives: Arc<[DriveGauges]>,
    ) -> (Self, mpsc::Receiver<Ask>, mpsc::Receiver<Word>) {
        let (asks, asked) = mpsc::channel(queue_max);
        let (words, told) = mpsc::channel(WORDS_MAX);
        (Self { asks, words, stats, drives }, asked, told)
    }

    /// Has a chunk filled some time. Does not wait; when too many wait already the next miss asks
    /// again.
    pub fn ask(&self, table: &Arc<OpenTable>, key: FillKey) {
        if let Some((name, chunk)) = TableChunk::new(table, key) {
            let _ = self.asks.try_send(Ask { name, chunk: Box::new(chunk), waiter: None });
        }
    }

    /// Has a chunk filled and says when that is done. Waits for a place in the queue.
    pub async fn fill(&self, table: &Arc<OpenTable>, key: FillKey) -> FillOutcome {
        match TableChunk::new(table, key) {
            Some((name, chunk)) => self.fill_with(name, Box::new(chunk)).await,
            None => FillOutcome::Failed("the table has no such fragment".into()),
        }
    }

    /// Has an extent filled with a chunk.
    pub(super) async fn fill_with(&self, name: ExtentKey, chunk: Box<dyn Chunk>) -> FillOutcome {
        let (waiter, outcome) = oneshot::channel();
        let ask = Ask { name, chunk, waiter: Some(waiter) };
        let stopped = || FillOutcome::Failed("the node is shutting down".into());
        if self.asks.send(ask).await.is_err() {
            return stopped();
        }
        outcome.await.unwrap_or_else(|_| stopped())
    }

    /// Drops an extent whose bytes can't be served; the next miss fills it again, elsewhere. When too many
    /// wait already the next read of it says so again.
    pub fn bad_extent(&self, extent: &Arc<Extent>, trouble: Trouble) {
        let _ = self.words.try_send(Word::Bad(Arc::clone(extent), trouble));
    }

    /// For the filler's own steps: it ends when nobody else can ask any more.
    pub(super) fn own_words(&self) -> mpsc::WeakSender<Word> {
        self.words.downgrade()
    }

    /// Says that all of a drive's reads of a second took many times what they did before.
    pub fn slow(&self, drive: DriveNo) {
        let _ = self.words.try_send(Word::Slow(drive));
    }

    /// Says that a drive did not answer reads in time.
    pub fn late(&self, drive: DriveNo) {
        let _ = self.words.try_send(Word::Late(drive));
    }

    /// Has what is written already recorded in the drives' journals, and nothing begun any more. Done when
    /// what it returns says so.
    pub fn stop(&self) -> oneshot::Receiver<()> {
        let (stopped, done) = oneshot::channel();
        // With so many words waiting it is not said, and nothing is recorded: there is no time to.
        let _ = self.words.try_send(Word::Stop(stopped));
        done
    }

    /// What each table has of the drives, in no order; none while the filler is too busy to say.
    pub async fn tables(&self) -> Vec<(TableTag, Holding)> {
        let (to, tables) = oneshot::channel();
        let _ = self.words.try_send(Word::Tables(to));
        tables.await.unwrap_or_default()
    }

    /// What the filler counts.
    pub fn stats(&self) -> &FillStats {
        &self.stats
    }

    /// Bytes of a drive that hold extents and journals.
    pub fn used_bytes(&self, drive: DriveNo) -> u64 {
        self.drives[usize::from(drive.0)].used_bytes.load(Ordering::Relaxed)
    }

    /// How a drive is used.
    pub fn drive_state(&self, drive: DriveNo) -> DriveState {
        match self.drives[usize::from(drive.0)].state.load(Ordering::Relaxed) {
            0 => DriveState::Serving,
            1 => DriveState::ReadOnly,
            _ => DriveState::Retired,
        }
    }
}
