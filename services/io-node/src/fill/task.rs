//! The steps of a fill that take time, each ending in a report to the filler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use address::{ByteOffset, DriveNo, ExtentKey, SECTOR_BYTES, SectorNo};
use futures::FutureExt;
use futures::future::join_all;
use ring::{AlignedBuf, Fault, ReadError, Returned, WriteError};
use tokio::sync::{mpsc, oneshot};

use super::chunk::Chunk;
use super::health::{JournalError, Trouble};
use super::segments::SegmentNo;
use super::transfer_bufs::{TRANSFER_BYTES, TransferBufs};
use crate::core::mailbox::{Mailbox, Message};
use crate::directory::Extent;

/// A step's report.
pub enum Step {
    /// The table's rows are read and encoded.
    Scanned {
        /// The extents' names, and what is to be written of each.
        extents: Vec<(ExtentKey, Result<pack::Extent, String>)>,
    },
    /// The batches that read the extents of a segment that is to be reclaimed.
    Heated {
        /// The segment.
        segment: SegmentNo,
        /// Its extents, and what all cores have counted of each.
        heats: Vec<(Arc<Extent>, u32)>,
    },
    /// An extent that is to be kept is read.
    Reread {
        /// As it is placed now.
        extent: Arc<Extent>,
        /// What is to be written elsewhere.
        copy: Result<pack::Extent, Trouble>,
    },
    /// An extent was read to see whether it is still right.
    Scrubbed {
        /// The extent.
        extent: Arc<Extent>,
        /// What came of it.
        outcome: Result<(), Trouble>,
    },
    /// The bytes are on the drive, or not.
    Written {
        /// The extent.
        extent: Arc<Extent>,
        /// What it is written for.
        purpose: Purpose,
        /// Its length.
        bytes: u64,
        /// What came of it.
        outcome: Result<(), WriteError>,
    },
    /// Every core finds the extent.
    Published {
        /// The extent.
        key: ExtentKey,
        /// What it was written for.
        purpose: Purpose,
        /// Its length.
        bytes: u64,
    },
    /// Extents are in their segment's journal, or not.
    Recorded {
        /// The segment.
        segment: SegmentNo,
        /// How many.
        extents: u32,
        /// What was kept in the segment for their records.
        record_sectors: u64,
        /// What came of it.
        outcome: Result<(), JournalError>,
    },
    /// No core holds an extent of the segment any more, and its journal is empty, to stay so.
    Emptied {
        /// The segment.
        segment: SegmentNo,
        /// What came of it.
        outcome: Result<(), JournalError>,
    },
}

/// What an extent is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It was missed, or warmed.
    Fill,
    /// Its segment is reclaimed, and it was read since it was placed.
    Keep {
        /// That segment.
        from: SegmentNo,
    },
}

/// Asks the cores how hot extents are.
pub async fn heat(cores: Arc<[Mailbox]>, segment: SegmentNo, extents: Vec<Arc<Extent>>) -> Step {
    let keys = Arc::new(extents.iter().map(|extent| extent.key).collect::<Vec<_>>());
    let mut heats: Vec<_> = extents.into_iter().map(|extent| (extent, 0)).collect();
    for core in cores.iter() {
        let (counted, answer) = oneshot::channel();
        let _ = core.send(Message::Heat { keys: Arc::clone(&keys), heats: counted });
        for (sum, heat) in heats.iter_mut().zip(answer.await.unwrap_or_default()) {
            sum.1 += u32::from(heat);
        }
    }
    Step::Heated { segment, heats }
}

/// Reads an extent that is to be written elsewhere, and checks its sectors.
pub async fn reread(core: Mailbox, bufs: Arc<TransferBufs>, extent: Arc<Extent>) -> Step {
    let mut bytes = Vec::with_capacity(extent.index.sectors() as usize * SECTOR_BYTES);
    let read = read_checked(&core, &bufs, &extent, |piece| bytes.extend_from_slice(piece)).await;
    let copy = read.map(|()| pack::Extent { index: extent.index.clone(), bytes });
    Step::Reread { extent, copy }
}

/// Reads an extent to see whether it is still right.
pub async fn scrub(core: Mailbox, bufs: Arc<TransferBufs>, extent: Arc<Extent>) -> Step {
    let outcome = read_checked(&core, &bufs, &extent, |_| {}).await;
    Step::Scrubbed { extent, outcome }
}

/// Gives `piece` the extent's bytes in order, whole sectors that match their checksums.
async fn read_checked(
    core: &Mailbox,
    bufs: &TransferBufs,
    extent: &Extent,
    mut piece: impl FnMut(&[u8]),
) -> Result<(), Trouble> {
    let len = extent.index.sectors() as usize * SECTOR_BYTES;
    let mut sectors = 0..;
    for from in (0..len).step_by(TRANSFER_BYTES) {
        let (loan, buf) = bufs.lend(TRANSFER_BYTES.min(len - from)).await;
        let offset = ByteOffset(extent.first.byte_offset().0 + from as u64);
        let (done, read) = oneshot::channel();
        let _ = core.send(Message::Read { drive: extent.drive, offset, buf, done });
        // Who doesn't answer is shutting down.
        let (buf, outcome) = match read.await.map_err(|_| ReadError::Closed)? {
            Ok(buf) => (buf, Ok(())),
            Err(Returned { buf, error }) => (buf, Err(error)),
        };
        let right = |(sector, number)| extent.index.check(number, sector).is_ok();
        let is_right = outcome.is_ok() && buf.chunks(SECTOR_BYTES).zip(&mut sectors).all(right);
        if is_right {
            piece(&buf);
        }
        loan.give_back(buf);
        outcome?;
        if !is_right {
            return Err(Trouble::Checksum);
        }
    }
    Ok(())
}

/// Reads neighbouring chunks in one scan and encodes them. If that fails each is read by itself, so that what is
/// wrong with one is not the others' fault.
pub async fn scan(run: Vec<(ExtentKey, Box<dyn Chunk>)>, bytes_max: u64) -> Step {
    if let [(_, first), _, ..] = run.as_slice() {
        let together = AssertUnwindSafe(first.encoded_together(run.len() as u32)).catch_unwind();
        match together.await {
            Ok(Ok(extents)) if extents.len() == run.len() => {
                let names = run.into_iter().map(|(name, _)| name);
                return Step::Scanned { extents: names.zip(extents.into_iter().map(Ok)).collect() };
            }
            Ok(Ok(_)) => tracing::error!("a scan brought other chunks than it was asked for"),
            Ok(Err(error)) => tracing::debug!(%error, "neighbours are scanned one by one"),
            Err(_) => tracing::error!("reading neighbours together panicked"),
        }
    }
    let mut extents = Vec::with_capacity(run.len());
    for (name, chunk) in run {
        // A panic in a library below ends this fill, not the filler's count of fills.
        let extent = match AssertUnwindSafe(chunk.encoded(bytes_max)).catch_unwind().await {
            Ok(extent) => extent.map_err(|error| error.to_string()),
            Err(_) => Err("reading the table panicked".into()),
        };
        extents.push((name, extent));
    }
    Step::Scanned { extents }
}

/// Writes an extent through a core's ring.
pub async fn write(
    core: Mailbox,
    bufs: Arc<TransferBufs>,
    extent: Arc<Extent>,
    purpose: Purpose,
    bytes: Vec<u8>,
) -> Step {
    let start = extent.first.byte_offset().0;
    let pieces = bytes.chunks(TRANSFER_BYTES).enumerate().map(|(at, piece)| {
        let offset = ByteOffset(start + (at * TRANSFER_BYTES) as u64);
        write_piece(&core, &bufs, extent.drive, offset, piece)
    });
    // All of them, also after one has failed: the room is not free before the last write has ended.
    let outcome = join_all(pieces).await.into_iter().collect();
    Step::Written { bytes: bytes.len() as u64, extent: Arc::clone(&extent), purpose, outcome }
}

/// Writes a block of a journal, once all that it speaks of is on the drive to stay.
pub async fn record(
    core: &Mailbox,
    drive: DriveNo,
    first: SectorNo,
    block: AlignedBuf,
) -> Result<(), WriteError> {
    synced(core, drive).await?;
    written(core, drive, first.byte_offset(), block).await.0
}

/// Writes the block that ends a segment's old journal, to stay before the segment is overwritten.
pub async fn empty(
    core: &Mailbox,
    drive: DriveNo,
    first: SectorNo,
    block: AlignedBuf,
) -> Result<(), WriteError> {
    written(core, drive, first.byte_offset(), block).await.0?;
    synced(core, drive).await
}

/// How long what a core's ring had no room for waits before it is asked for again.
const RETRY: Duration = Duration::from_millis(5);

/// Whether an error says but that the ring has no room, or the kernel: nothing was written, and later it may be.
fn is_of_the_moment(error: &WriteError) -> bool {
    matches!(error, WriteError::Full { .. } | WriteError::Io { fault: Fault::Busy, .. })
}

/// Writes a piece of an extent, once there is a buffer for it.
async fn write_piece(
    core: &Mailbox,
    bufs: &TransferBufs,
    drive: DriveNo,
    offset: ByteOffset,
    piece: &[u8],
) -> Result<(), WriteError> {
    let (loan, mut buf) = bufs.lend(piece.len()).await;
    buf.copy_from_slice(piece);
    let (outcome, buf) = written(core, drive, offset, buf).await;
    if let Some(buf) = buf {
        loan.give_back(buf);
    }
    outcome
}

/// Writes bytes in one go, until the ring takes them: a journal may have no hole. The buffer comes back from all but a
/// core that is shutting down.
async fn written(
    core: &Mailbox,
    drive: DriveNo,
    offset: ByteOffset,
    mut buf: AlignedBuf,
) -> (Result<(), WriteError>, Option<AlignedBuf>) {
    loop {
        let (done, outcome) = oneshot::channel();
        let _ = core.send(Message::Write { drive, offset, buf, done });
        match outcome.await {
            Ok(Ok(buf)) => return (Ok(()), Some(buf)),
            Ok(Err(Returned { error, buf: returned })) if is_of_the_moment(&error) => {
                buf = returned
            }
            Ok(Err(Returned { error, buf })) => return (Err(error), Some(buf)),
            Err(_) => return (Err(WriteError::Closed), None),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Has what was written stay on the drive, once the ring takes that.
async fn synced(core: &Mailbox, drive: DriveNo) -> Result<(), WriteError> {
    loop {
        let (done, outcome) = oneshot::channel();
        let _ = core.send(Message::Sync { drive, done });
        match outcome.await.unwrap_or(Err(WriteError::Closed)) {
            Err(error) if is_of_the_moment(&error) => tokio::time::sleep(RETRY).await,
            outcome => return outcome,
        }
    }
}

/// Makes every core find an extent.
pub fn publish(cores: &[Mailbox], extent: &Arc<Extent>) -> Told {
    tell(cores, |done| Message::Filled { extent: Arc::clone(extent), done })
}

/// Makes every core find what was on the drives before; how many extents each finds.
pub async fn restore(cores: &[Mailbox], extents: &Arc<[Arc<Extent>]>) -> usize {
    let tell = |core: &Mailbox| {
        let (done, found) = oneshot::channel();
        // A core that has stopped finds nothing.
        let _ = core.send(Message::Restored { extents: Arc::clone(extents), done });
        found
    };
    let told: Vec<_> = cores.iter().map(tell).collect();
    join_all(told).await.into_iter().flatten().max().unwrap_or(0)
}

/// Makes every core forget extents: told when this returns, done when what it returns says so. What
/// is told to a core later, such as the same extent filled again, comes after it.
pub fn forget(cores: &[Mailbox], keys: Vec<ExtentKey>) -> Told {
    let keys = Arc::new(keys);
    tell(cores, |done| Message::Forget { keys: Arc::clone(&keys), done })
}

/// All cores have been sent a message.
pub struct Told(mpsc::Receiver<()>);

impl Told {
    /// Until all cores have done what it says.
    pub async fn wait(mut self) {
        self.0.recv().await;
    }
}

/// Sends each core a message, which is done when its `done` is dropped.
fn tell(cores: &[Mailbox], message: impl Fn(mpsc::Sender<()>) -> Message) -> Told {
    let (done, all_done) = mpsc::channel(1);
    for core in cores {
        // A core that has stopped finds and holds nothing.
        let _ = core.send(message(done.clone()));
    }
    Told(all_done)
}

const _: () = assert!(TRANSFER_BYTES.is_multiple_of(SECTOR_BYTES));
