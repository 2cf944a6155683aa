//! The steps of a fill that take time, each ending in a report to the filler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use address::{ByteOffset, ExtentKey, SECTOR_BYTES};
use futures::FutureExt;
use futures::future::join_all;
use ring::AlignedBuf;
use tokio::sync::{mpsc, oneshot};

use super::filler::FillKey;
use super::segments::SegmentNo;
use crate::core::mailbox::{Mailbox, Message};
use crate::directory::Extent;
use crate::error::NodeError;
use crate::table::{BoundedRows, OpenTable};

/// One write, in bytes: long enough for the drive's full bandwidth, short enough that reads never
/// wait long behind it.
const WRITE_BYTES: usize = 1 << 20;

/// A step's report.
pub enum Step {
    /// The table's rows are read and encoded.
    Scanned {
        /// The extent's name.
        name: ExtentKey,
        /// What is to be written.
        extent: Result<pack::Extent, String>,
    },
    /// The bytes are on the drive, or not.
    Written {
        /// The extent.
        extent: Arc<Extent>,
        /// Its length.
        bytes: u64,
        /// What came of it.
        outcome: Result<(), String>,
    },
    /// Every core finds the extent.
    Published {
        /// The extent.
        extent: Arc<Extent>,
        /// Its length.
        bytes: u64,
    },
    /// No core holds an extent of the segment any more.
    Forgotten {
        /// The segment.
        segment: SegmentNo,
    },
}

/// Reads a chunk's rows from the table and encodes them.
///
/// Those of a blob column only as far as they fit `bytes_max`, a segment.
pub async fn scan(name: ExtentKey, table: Arc<OpenTable>, key: FillKey, bytes_max: u64) -> Step {
    // A panic in a library below ends this fill, not the filler's count of fills.
    let extent = match AssertUnwindSafe(encoded(&table, key, bytes_max)).catch_unwind().await {
        Ok(extent) => extent.map_err(|error| error.to_string()),
        Err(_) => Err("reading the table panicked".into()),
    };
    Step::Scanned { name, extent }
}

async fn encoded(
    table: &Arc<OpenTable>,
    key: FillKey,
    bytes_max: u64,
) -> Result<pack::Extent, NodeError> {
    let FillKey { pack, chunk } = key;
    let rows = table.fragment(chunk.fragment).map_or(0..0, |f| f.rows_of(chunk.index));
    let columns = &table.packs()[pack].columns;
    let batch = if table.packs()[pack].is_blob {
        let mut read = BoundedRows::new(rows.len(), bytes_max);
        for piece in read.pieces() {
            let piece = rows.start + piece.start as u32..rows.start + piece.end as u32;
            read.push(table.table().read_chunk(chunk.fragment, piece, columns).await?)?;
        }
        read.joined()?
    } else {
        table.table().read_chunk(chunk.fragment, rows, columns).await?
    };
    let table = Arc::clone(table);
    // Encoding a chunk is milliseconds of pure CPU.
    let encode = move || table.packs()[pack].layout.encode(batch.columns());
    match tokio::task::spawn_blocking(encode).await {
        Ok(extent) => Ok(extent?),
        Err(error) => Err(NodeError::Os { doing: "encoding a chunk", source: error.into() }),
    }
}

/// Writes an extent through a core's ring.
pub async fn write(core: Mailbox, extent: Arc<Extent>, bytes: Vec<u8>) -> Step {
    let start = extent.first.byte_offset().0;
    let pieces = bytes.chunks(WRITE_BYTES).enumerate().map(|(at, piece)| {
        let mut buf = AlignedBuf::zeroed(piece.len());
        buf.as_mut_slice().copy_from_slice(piece);
        let offset = ByteOffset(start + (at * WRITE_BYTES) as u64);
        let (done, written) = oneshot::channel();
        let sent = core.send(Message::Write { drive: extent.drive, offset, buf, done });
        async move {
            match (sent, written.await) {
                (Ok(()), Ok(outcome)) => outcome.map_err(|error| error.to_string()),
                _ => Err("the node is shutting down".to_owned()),
            }
        }
    });
    // All of them, also after one has failed: the room is not free before the last write has ended.
    let outcome = join_all(pieces).await.into_iter().collect();
    Step::Written { extent, bytes: bytes.len() as u64, outcome }
}

/// Makes every core find an extent.
pub fn publish(cores: &[Mailbox], extent: &Arc<Extent>) -> Told {
    tell(cores, |done| Message::Filled { extent: Arc::clone(extent), done })
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

const _: () = assert!(WRITE_BYTES.is_multiple_of(SECTOR_BYTES));
