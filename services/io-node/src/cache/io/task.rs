//! The work of the filler's steps. Each step ends in an event for the books.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use address::{ByteOffset, ExtentKey, SECTOR_BYTES, SectorNo};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use pack::PackError;
use ring::{AlignedBuf, WriteError};
use tokio::sync::{mpsc, oneshot};

use super::chunk::Chunk;
use super::transfer_bufs::TRANSFER_BYTES;
use super::transfers::Transfers;
use crate::cache::books::{EXTENT_BYTES_END, Event, Purpose, ScanError};
use crate::drive::ExtentError;
use crate::error::NodeError;
use crate::extent::{Extent, SegmentNo};
use crate::shard::mailbox::{Mailbox, Message};

/// Asks the cores for the heat of extents.
pub async fn heat(cores: Arc<[Mailbox]>, segment: SegmentNo, extents: Vec<Arc<Extent>>) -> Event {
    let keys = Arc::new(extents.iter().map(|extent| extent.key).collect::<Vec<_>>());
    let mut heats: Vec<_> = extents.into_iter().map(|extent| (extent, 0)).collect();
    for core in cores.iter() {
        let (counted, answer) = oneshot::channel();
        let _ = core.send(Message::Heat { keys: Arc::clone(&keys), heats: counted });
        for (sum, heat) in heats.iter_mut().zip(answer.await.unwrap_or_default()) {
            sum.1 += u32::from(heat);
        }
    }
    Event::Heated { segment, heats }
}

/// Reads an extent that is to be written elsewhere, and checks its sectors.
pub async fn reread(drive: Transfers, extent: Arc<Extent>) -> Event {
    let mut bytes = Vec::with_capacity(extent.index.sectors() as usize * SECTOR_BYTES);
    let read = read_checked(&drive, &extent, |piece| bytes.extend_from_slice(piece)).await;
    let copy = read.map(|()| pack::Extent { index: extent.index.clone(), bytes });
    Event::Reread { extent, copy }
}

/// Reads an extent and checks its sectors.
pub async fn scrub(drive: Transfers, extent: Arc<Extent>) -> Event {
    let outcome = read_checked(&drive, &extent, |_| {}).await;
    Event::Scrubbed { extent, outcome }
}

/// Reads an extent, checks its sectors, and passes its bytes to `piece` in order. A piece has whole sectors that match
/// their checksums.
async fn read_checked(
    drive: &Transfers,
    extent: &Extent,
    mut piece: impl FnMut(&[u8]),
) -> Result<(), ExtentError> {
    let len = extent.index.sectors() as usize * SECTOR_BYTES;
    let mut sectors = 0..;
    for from in (0..len).step_by(TRANSFER_BYTES) {
        let offset = ByteOffset(extent.first.byte_offset().0 + from as u64);
        let look = |bytes: &[u8]| {
            for (sector, number) in bytes.chunks(SECTOR_BYTES).zip(&mut sectors) {
                extent.index.check(number, sector).map_err(|_| ExtentError::Checksum)?;
            }
            piece(bytes);
            Ok::<_, ExtentError>(())
        };
        drive.read(offset, TRANSFER_BYTES.min(len - from), look).await??;
    }
    Ok(())
}

/// Waits for `extents`, those of the first chunks of `run`, which are read in one scan. The others are left to later
/// scans. If the scan fails, or not even the first chunk fits into its memory, all chunks are left, and the books scan
/// each alone, so that an error in one does not fail the others. `run` has each chunk's bytes of a scan
/// ([`Chunk::scan_bytes`]).
pub async fn scan_together(
    run: Vec<(ExtentKey, Option<u64>)>,
    extents: BoxFuture<'static, Result<Vec<pack::Extent>, NodeError>>,
) -> Event {
    let extents = match AssertUnwindSafe(extents).catch_unwind().await {
        Ok(Ok(extents)) => extents,
        Ok(Err(error)) => {
            tracing::debug!(%error, "neighbours are scanned one by one");
            Vec::new()
        }
        Err(_) => {
            tracing::error!("reading neighbours together panicked");
            Vec::new()
        }
    };
    let left = run.iter().skip(extents.len()).copied().collect();
    let extents = run.iter().map(|(name, _)| *name).zip(extents.into_iter().map(Ok)).collect();
    Event::Scanned { extents, left }
}

/// Reads a chunk and encodes it.
pub async fn scan(name: ExtentKey, chunk: Box<dyn Chunk>, bytes_max: u64) -> Event {
    // A panic in a library fails only this fill, and is still reported to the filler.
    let extent = match AssertUnwindSafe(chunk.encoded(bytes_max)).catch_unwind().await {
        Ok(extent) => extent.map_err(|error| match error {
            NodeError::ChunkTooLarge { bytes, .. }
            | NodeError::Pack(PackError::TooLong { bytes, .. }) => ScanError::TooLong(bytes),
            NodeError::Pack(PackError::TooLarge { .. }) => ScanError::TooLong(EXTENT_BYTES_END),
            error => ScanError::Failed(error.to_string()),
        }),
        Err(_) => Err(ScanError::Failed("reading the table panicked".into())),
    };
    Event::Scanned { extents: vec![(name, extent)], left: Vec::new() }
}

/// Writes an extent.
pub async fn write(
    drive: Transfers,
    extent: Arc<Extent>,
    purpose: Purpose,
    bytes: Vec<u8>,
) -> Event {
    let outcome = drive.write(extent.first.byte_offset(), &bytes).await;
    Event::Written { extent, purpose, outcome }
}

/// Flushes the extents that a block of a journal describes, and then writes the block.
pub async fn record(
    drive: &Transfers,
    first: SectorNo,
    block: AlignedBuf,
) -> Result<(), WriteError> {
    drive.sync().await?;
    drive.write_block(first, block).await
}

/// Writes the block that ends a segment's old journal, and flushes it, before the segment is overwritten.
pub async fn empty(
    drive: &Transfers,
    first: SectorNo,
    block: AlignedBuf,
) -> Result<(), WriteError> {
    drive.write_block(first, block).await?;
    drive.sync().await
}

/// Adds an extent to every core's directory.
pub fn publish(cores: &[Mailbox], extent: &Arc<Extent>) -> Broadcast {
    broadcast(cores, |done| Message::Publish { extent: Arc::clone(extent), done })
}

/// Adds the extents found on the drives at the start to every core's directory. Returns the number of extents in a
/// core's directory afterwards.
pub async fn restore(cores: &[Mailbox], extents: &Arc<[Arc<Extent>]>) -> usize {
    let send = |core: &Mailbox| {
        let (done, found) = oneshot::channel();
        // A core that has stopped has no directory.
        let _ = core.send(Message::Restored { extents: Arc::clone(extents), done });
        found
    };
    let answers: Vec<_> = cores.iter().map(send).collect();
    join_all(answers).await.into_iter().flatten().max().unwrap_or(0)
}

/// Makes every core forget extents. The messages are sent when this returns; [`Broadcast::wait`] waits until all cores
/// have handled them. Cores receive messages in the order in which they were sent, so an extent that is published later
/// under the same name is not forgotten.
pub fn forget(cores: &[Mailbox], keys: Vec<ExtentKey>) -> Broadcast {
    let keys = Arc::new(keys);
    broadcast(cores, |done| Message::Forget { keys: Arc::clone(&keys), done })
}

/// A message that was sent to all cores, which are handling it.
pub struct Broadcast(mpsc::Receiver<()>);

impl Broadcast {
    /// Waits until all cores have handled the message.
    pub async fn wait(mut self) {
        self.0.recv().await;
    }
}

/// Sends each core a message. A core has handled its message when it drops the message's `done`.
fn broadcast(cores: &[Mailbox], message: impl Fn(mpsc::Sender<()>) -> Message) -> Broadcast {
    let (done, all_done) = mpsc::channel(1);
    for core in cores {
        // A core that has stopped has no directory and no requests.
        let _ = core.send(message(done.clone()));
    }
    Broadcast(all_done)
}

const _: () = assert!(TRANSFER_BYTES.is_multiple_of(SECTOR_BYTES));
