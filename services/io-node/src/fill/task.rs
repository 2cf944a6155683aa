//! The steps of a fill that take time, each ending in a report to the filler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use address::{ByteOffset, ExtentKey, SECTOR_BYTES, SectorNo};
use futures::FutureExt;
use futures::future::join_all;
use ring::{AlignedBuf, WriteError};
use tokio::sync::{mpsc, oneshot};

use super::chunk::Chunk;
use super::health::{JournalError, Trouble};
use super::segments::SegmentNo;
use super::transfer_bufs::TRANSFER_BYTES;
use super::transfers::Transfers;
use crate::directory::Extent;
use crate::shard::mailbox::{Mailbox, Message};

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
        /// Whether its table may count on it.
        is_due: bool,
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
pub async fn reread(drive: Transfers, extent: Arc<Extent>) -> Step {
    let mut bytes = Vec::with_capacity(extent.index.sectors() as usize * SECTOR_BYTES);
    let read = read_checked(&drive, &extent, |piece| bytes.extend_from_slice(piece)).await;
    let copy = read.map(|()| pack::Extent { index: extent.index.clone(), bytes });
    Step::Reread { extent, copy }
}

/// Reads an extent to see whether it is still right.
pub async fn scrub(drive: Transfers, extent: Arc<Extent>) -> Step {
    let outcome = read_checked(&drive, &extent, |_| {}).await;
    Step::Scrubbed { extent, outcome }
}

/// Gives `piece` the extent's bytes in order, whole sectors that match their checksums.
async fn read_checked(
    drive: &Transfers,
    extent: &Extent,
    mut piece: impl FnMut(&[u8]),
) -> Result<(), Trouble> {
    let len = extent.index.sectors() as usize * SECTOR_BYTES;
    let mut sectors = 0..;
    for from in (0..len).step_by(TRANSFER_BYTES) {
        let offset = ByteOffset(extent.first.byte_offset().0 + from as u64);
        let look = |bytes: &[u8]| {
            for (sector, number) in bytes.chunks(SECTOR_BYTES).zip(&mut sectors) {
                extent.index.check(number, sector).map_err(|_| Trouble::Checksum)?;
            }
            piece(bytes);
            Ok::<_, Trouble>(())
        };
        drive.read(offset, TRANSFER_BYTES.min(len - from), look).await??;
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

/// Writes an extent.
pub async fn write(
    drive: Transfers,
    extent: Arc<Extent>,
    purpose: Purpose,
    bytes: Vec<u8>,
) -> Step {
    let outcome = drive.write(extent.first.byte_offset(), &bytes).await;
    Step::Written { bytes: bytes.len() as u64, extent, purpose, outcome }
}

/// Writes a block of a journal, once all that it speaks of is on the drive to stay.
pub async fn record(
    drive: &Transfers,
    first: SectorNo,
    block: AlignedBuf,
) -> Result<(), WriteError> {
    drive.sync().await?;
    drive.write_block(first, block).await
}

/// Writes the block that ends a segment's old journal, to stay before the segment is overwritten.
pub async fn empty(
    drive: &Transfers,
    first: SectorNo,
    block: AlignedBuf,
) -> Result<(), WriteError> {
    drive.write_block(first, block).await?;
    drive.sync().await
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
