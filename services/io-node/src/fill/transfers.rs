//! What is written to a drive, and read from it, in the background: through a core's ring, out of the drive's buffers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use address::{ByteOffset, DriveNo, SectorNo};
use futures::future::join_all;
use ring::{AlignedBuf, DriveFault, ReadError, Returned, WriteError};
use tokio::sync::{mpsc, oneshot};

use super::handle::{DriveGauges, Word};
use super::health::DriveState;
use super::transfer_bufs::{TRANSFER_BYTES, TransferBufs};
use crate::shard::mailbox::{Mailbox, Message};

/// How long what a core's ring had no room for waits before it is asked for again.
const RETRY: Duration = Duration::from_millis(5);

/// How long a drive may take for one transfer, with all that waits before it, until that is held against it; a drive
/// that hardly moves has written its buffers by then.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// How often it is held against it from then on.
const LATE_AGAIN: Duration = Duration::from_secs(1);

/// A core's ring and one of the drives.
pub struct Transfers {
    pub core: Mailbox,
    pub drive: DriveNo,
    pub bufs: Arc<TransferBufs>,
    pub gauges: Arc<[DriveGauges]>,
    /// To the filler, which ends when nobody else can ask it any more.
    pub filler: mpsc::WeakSender<Word>,
}

impl Transfers {
    /// Writes an extent's bytes from `start` on, in pieces.
    ///
    /// # Errors
    /// One piece's, once all of them have ended: the room is not free before.
    pub async fn write(&self, start: ByteOffset, bytes: &[u8]) -> Result<(), WriteError> {
        let pieces = bytes.chunks(TRANSFER_BYTES).enumerate().map(async |(at, piece)| {
            let (loan, mut buf) = self.bufs.lend(piece.len()).await;
            buf.copy_from_slice(piece);
            let offset = ByteOffset(start.0 + (at * TRANSFER_BYTES) as u64);
            let (outcome, buf) = self.write_buf(offset, buf).await;
            loan.give_back(buf);
            outcome
        });
        join_all(pieces).await.into_iter().collect()
    }

    /// Writes a block of a journal in one go: it may have no hole.
    ///
    /// # Errors
    /// The ring's.
    pub async fn write_block(&self, first: SectorNo, block: AlignedBuf) -> Result<(), WriteError> {
        self.write_buf(first.byte_offset(), block).await.0
    }

    /// Has what was written stay on the drive.
    ///
    /// # Errors
    /// The ring's.
    pub async fn sync(&self) -> Result<(), WriteError> {
        loop {
            let (done, outcome) = oneshot::channel();
            let _ = self.core.send(Message::Sync { drive: self.drive, done });
            match self.answer(outcome).await.unwrap_or(Err(WriteError::Closed)) {
                Err(error) if error.is_of_the_moment() && self.tries_again().await => {}
                outcome => return outcome,
            }
        }
    }

    /// Reads `len` bytes at `offset`, at most [`TRANSFER_BYTES`], for `look` to look at.
    ///
    /// # Errors
    /// The ring's.
    pub async fn read<T>(
        &self,
        offset: ByteOffset,
        len: usize,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, ReadError> {
        let (loan, buf) = self.bufs.lend(len).await;
        let drive = self.drive;
        let read = |buf, done| Message::Read { drive, offset, buf, done };
        let (outcome, buf) = self.transfer(buf, read).await;
        let seen = outcome.map(|()| look(buf.as_deref().unwrap_or_default()));
        loan.give_back(buf);
        seen
    }

    async fn write_buf(
        &self,
        offset: ByteOffset,
        buf: AlignedBuf,
    ) -> (Result<(), WriteError>, Option<AlignedBuf>) {
        let drive = self.drive;
        self.transfer(buf, |buf, done| Message::Write { drive, offset, buf, done }).await
    }

    /// Has a core do what `ask` makes of a buffer, once its ring takes it. The buffer comes back from all but a core that is
    /// shutting down, and a drive that hangs: always, where the outcome is good.
    async fn transfer<E: TransferError>(
        &self,
        mut buf: AlignedBuf,
        ask: impl Fn(AlignedBuf, oneshot::Sender<Result<AlignedBuf, Returned<E>>>) -> Message,
    ) -> (Result<(), E>, Option<AlignedBuf>) {
        loop {
            let (done, outcome) = oneshot::channel();
            let _ = self.core.send(ask(buf, done));
            match self.answer(outcome).await {
                Some(Ok(buf)) => return (Ok(()), Some(buf)),
                Some(Err(Returned { error, buf: returned })) => {
                    if !error.is_of_the_moment() || !self.tries_again().await {
                        return (Err(error), Some(returned));
                    }
                    buf = returned;
                }
                None => return (Err(E::CLOSED), None),
            }
        }
    }

    /// What a core answers; nothing from one that has ended, or of a drive that was retired before it answered.
    async fn answer<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        // Behind others that a retired drive never answered it would but wait its turn to.
        let mut patience = if self.is_retired() { Duration::ZERO } else { LATE_AFTER };
        loop {
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(answer) => return answer.ok(),
                Err(_) if self.is_retired() => return None,
                Err(_) => {
                    if let Some(filler) = self.filler.upgrade() {
                        // With so many words waiting another says it.
                        let _ = filler.try_send(Word::Late(self.drive));
                    }
                    patience = LATE_AGAIN;
                }
            }
        }
    }

    /// Whether what a ring had no room for is to be asked for again, after a while.
    async fn tries_again(&self) -> bool {
        tokio::time::sleep(RETRY).await;
        !self.is_retired()
    }

    fn is_retired(&self) -> bool {
        let state = self.gauges[usize::from(self.drive.0)].state.load(Ordering::Relaxed);
        state == DriveState::Retired as u8
    }
}

/// What reads and writes end badly with.
trait TransferError {
    /// There was no answer.
    const CLOSED: Self;

    /// Whether it says but that the ring has no room, or the kernel: nothing was done, and later it may be.
    fn is_of_the_moment(&self) -> bool;
}

impl TransferError for WriteError {
    const CLOSED: Self = Self::Closed;

    fn is_of_the_moment(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Io { fault: DriveFault::Busy, .. })
    }
}

impl TransferError for ReadError {
    const CLOSED: Self = Self::Closed;

    fn is_of_the_moment(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Io { fault: DriveFault::Busy, .. })
    }
}
