//! What other threads ask of a core.

use std::sync::Arc;

use address::{ByteOffset, DriveNo, ExtentKey};
use ring::{AlignedBuf, ReadError, Returned, WriteError};
use tokio::sync::{mpsc, oneshot};
use wire::Fault;

use super::{CoreSnapshot, HeldBytes, RequestNo, SessionNo};
use crate::directory::Extent;
use crate::serve::{Accepted, Opening};

/// A core's address for other threads. What arrives is bounded by its senders: connections by their
/// places, images by the table queue, writes by the fills.
pub type Mailbox = mpsc::UnboundedSender<Message>;

/// Something for a core to do.
pub enum Message {
    /// Serve this connection.
    Connection(Accepted),
    /// A projection is open, or can't be.
    Opened {
        /// The stream that asked.
        session: SessionNo,
        /// The client's name for it.
        handle: u32,
        /// Which opening it is.
        serial: u64,
        /// What came of it.
        opening: Opening,
    },
    /// Rows have come from the table.
    Image {
        /// The batch that asked.
        request: RequestNo,
        /// The part of its projection.
        part: usize,
        /// The rows, encoded like a chunk.
        image: Result<pack::Extent, Fault>,
        /// The memory that reading them took.
        held: HeldBytes,
    },
    /// Memory that work for a batch held beyond its answer, to be given back here.
    Held(HeldBytes),
    /// An extent is on a drive; find it from now on.
    Filled {
        /// The extent.
        extent: Arc<Extent>,
        /// Dropped once that is so.
        done: mpsc::Sender<()>,
    },
    /// These extents are going away; don't find them any more.
    Forget {
        /// Their names.
        keys: Arc<Vec<ExtentKey>>,
        /// Dropped once no request holds one of them.
        done: mpsc::Sender<()>,
    },
    /// These extents were on the drives when the node started; find them.
    Restored {
        /// The extents.
        extents: Arc<[Arc<Extent>]>,
        /// Gets how many are found then.
        done: oneshot::Sender<usize>,
    },
    /// Say how many batches have read each of these extents.
    Heat {
        /// Their names.
        keys: Arc<Vec<ExtentKey>>,
        /// Gets a number for each.
        heats: oneshot::Sender<Vec<u8>>,
    },
    /// Read a whole piece of a drive through the core's ring, beside the reads of requests.
    Read {
        /// The drive.
        drive: DriveNo,
        /// Where.
        offset: ByteOffset,
        /// Filled.
        buf: AlignedBuf,
        /// Gets the outcome, and the buffer back.
        done: oneshot::Sender<Result<AlignedBuf, Returned<ReadError>>>,
    },
    /// Have what was written to a drive stay there.
    Sync {
        /// The drive.
        drive: DriveNo,
        /// Gets the outcome.
        done: oneshot::Sender<Result<(), WriteError>>,
    },
    /// Write this through the core's ring.
    Write {
        /// The drive.
        drive: DriveNo,
        /// Where.
        offset: ByteOffset,
        /// What.
        buf: AlignedBuf,
        /// Gets the outcome, and the buffer back.
        done: oneshot::Sender<Result<AlignedBuf, Returned<WriteError>>>,
    },
    /// Say how it is.
    Describe(oneshot::Sender<CoreSnapshot>),
    /// Finish what is under way, take nothing new.
    Stop,
    /// Give up what is under way, and go: nobody is left who would finish it.
    End,
}
