//! Background writes to a drive and reads from it, through a core's ring and with the drive's own buffers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use address::{ByteOffset, DriveNo, SectorNo};
use futures::future::join_all;
use ring::{AlignedBuf, DriveFault, ReadError, Returned, WriteError};
use tokio::sync::{mpsc, oneshot};

use super::handle::{DriveGauges, FillerMessage};
use super::transfer_bufs::{TRANSFER_BYTES, TransferBufs};
use crate::cache::books::Event;
use crate::drive::DriveState;
use crate::shard::mailbox::{Mailbox, Message};

/// The delay before a transfer is tried again because the core's ring or the kernel had no space for it.
const RETRY: Duration = Duration::from_millis(5);

/// A transfer that takes longer than this, including its wait behind others, counts as late. Within this time, even a
/// very slow drive writes the contents of all its [`TransferBufs`].
const LATE_AFTER: Duration = Duration::from_secs(5);

/// A transfer that is still not done counts as late once more after each interval of this length. `drive/health.rs`
/// counts seconds with late transfers, so counting the same transfer more often would change nothing.
const LATE_AGAIN: Duration = Duration::from_secs(1);

/// Transfers to and from a drive, through the ring of one core.
pub struct Transfers {
    pub core: Mailbox,
    pub drive: DriveNo,
    pub bufs: Arc<TransferBufs>,
    pub gauges: Arc<[DriveGauges]>,
    /// Reports late transfers to the filler. It is weak, so that the filler ends when all handles are dropped.
    pub filler: mpsc::WeakSender<FillerMessage>,
}

impl Transfers {
    /// Writes an extent's bytes at `start`, in pieces.
    ///
    /// # Errors
    /// The error of one piece. It is returned only once all pieces have ended, because until then they may still write
    /// to the space. If the drive is retired, pieces that do not end are given up.
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

    /// Writes a block of a journal in one operation, so that it can have no hole.
    ///
    /// # Errors
    /// The ring's error.
    pub async fn write_block(&self, first: SectorNo, block: AlignedBuf) -> Result<(), WriteError> {
        self.write_buf(first.byte_offset(), block).await.0
    }

    /// Flushes what was written to the drive.
    ///
    /// # Errors
    /// The ring's error.
    pub async fn sync(&self) -> Result<(), WriteError> {
        loop {
            let (done, outcome) = oneshot::channel();
            let _ = self.core.send(Message::Fsync { drive: self.drive, done });
            match self.answer(outcome).await.unwrap_or(Err(WriteError::Closed)) {
                Err(error) if error.is_transient() && self.tries_again().await => {}
                outcome => return outcome,
            }
        }
    }

    /// Reads `len` bytes at `offset`, at most [`TRANSFER_BYTES`], and passes them to `look`.
    ///
    /// # Errors
    /// The ring's error.
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

    /// Sends the core a message, which `ask` creates from the buffer, and sends it again as long as the ring has no
    /// space. Returns the outcome and the buffer. After a success there is always a buffer. After a failure the buffer
    /// is lost if the core is shutting down or the drive hangs.
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
                    if !error.is_transient() || !self.tries_again().await {
                        return (Err(error), Some(returned));
                    }
                    buf = returned;
                }
                None => return (Err(E::CLOSED), None),
            }
        }
    }

    /// Waits for a core's answer; `None` if the core has ended, or if the drive is retired before the answer arrives.
    async fn answer<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        // On a retired drive, the operation may be queued behind others that never end.
        let mut patience = if self.is_retired() { Duration::ZERO } else { LATE_AFTER };
        loop {
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(answer) => return answer.ok(),
                Err(_) if self.is_retired() => return None,
                Err(_) => {
                    if let Some(filler) = self.filler.upgrade() {
                        // If too many messages wait, this one is dropped, and a later one reports the drive.
                        let _ = filler.try_send(FillerMessage::Event(Event::Late(self.drive)));
                    }
                    patience = LATE_AGAIN;
                }
            }
        }
    }

    /// Waits for [`RETRY`], and returns whether to try again.
    async fn tries_again(&self) -> bool {
        tokio::time::sleep(RETRY).await;
        !self.is_retired()
    }

    fn is_retired(&self) -> bool {
        let state = self.gauges[usize::from(self.drive.0)].state.load(Ordering::Relaxed);
        state == DriveState::Retired as u8
    }
}

/// An error of a read or write.
trait TransferError {
    /// The error if there was no answer.
    const CLOSED: Self;

    /// Returns whether nothing was done because the ring or the kernel was short of space, so that a later try may
    /// succeed.
    fn is_transient(&self) -> bool;
}

impl TransferError for WriteError {
    const CLOSED: Self = Self::Closed;

    fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Io { fault: DriveFault::Busy, .. })
    }
}

impl TransferError for ReadError {
    const CLOSED: Self = Self::Closed;

    fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Io { fault: DriveFault::Busy, .. })
    }
}
