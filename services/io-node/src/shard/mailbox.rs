//! Messages that other threads send to a core.

use std::sync::Arc;

use address::{ByteOffset, DriveNo, ExtentKey};
use ring::{AlignedBuf, ReadError, Returned, WriteError};
use tokio::sync::{mpsc, oneshot};
use wire::Fault;

use super::{Accepted, CoreSnapshot, HeldBytes, HeldProjection, RequestNo, SessionNo};
use crate::extent::Extent;
use crate::table::Projection;

/// The sending end of a core's mailbox. The channel is unbounded, but each kind of message is bounded by its sender:
/// connections by their maximum number, openings by the memory for projections, images and their memory by the queue of
/// table reads, and [`Describe`](Message::Describe) by the calls and scrapes that wait for it.
/// [`Restored`](Message::Restored) is sent once, at the start, and [`Stop`](Message::Stop) and [`End`](Message::End)
/// once each at the end. The filler sends all other messages, as many as its fills, the segment that it reclaims and
/// the scrubber need.
pub type Mailbox = mpsc::UnboundedSender<Message>;

/// A message to a core: a task, or a result that it waits for.
pub enum Message {
    /// Serve this connection.
    Connection(Accepted),
    /// A projection was opened, or failed to open.
    Opened {
        /// The stream that requested the projection.
        session: SessionNo,
        /// The client's handle.
        handle: u32,
        /// The serial number of the opening.
        serial: u64,
        /// The projection, or the fault.
        opening: Opening,
    },
    /// Rows arrived from the table.
    Image {
        /// The batch that requested the rows.
        request: RequestNo,
        /// The number of the part of the batch's projection that the rows belong to.
        part: usize,
        /// The rows, encoded like a chunk.
        image: Result<pack::Extent, Fault>,
        /// The memory reserved for reading the rows.
        held: HeldBytes,
    },
    /// The memory of a read of the table that went on after its batch was answered. It is sent when the read has ended,
    /// and the core that reserved the memory releases it.
    Held(HeldBytes),
    /// An extent was written to a drive, by a fill or a move: add it to the directory.
    Publish {
        extent: Arc<Extent>,
        /// Dropped once the extent is in the directory.
        done: mpsc::Sender<()>,
    },
    /// Extents were removed from the cache's books: delete them from the directory.
    Forget {
        /// The extents' names.
        keys: Arc<Vec<ExtentKey>>,
        /// Dropped once all requests that began earlier have ended, so that none holds any of the extents.
        done: mpsc::Sender<()>,
    },
    /// Extents were found on the drives at the start: add them to the directory.
    Restored {
        extents: Arc<[Arc<Extent>]>,
        /// Receives the number of extents in the directory afterwards.
        done: oneshot::Sender<usize>,
    },
    /// Report how many batches have read each of these extents, up to `HEAT_MAX`.
    Heat {
        /// The extents' names.
        keys: Arc<Vec<ExtentKey>>,
        /// Receives one number per extent.
        heats: oneshot::Sender<Vec<u8>>,
    },
    /// Read a range of a drive through the core's ring, in addition to the reads of requests.
    Read {
        drive: DriveNo,
        /// The offset on the drive.
        offset: ByteOffset,
        /// The buffer to fill; its length is the length of the read.
        buf: AlignedBuf,
        /// Receives the outcome and the buffer.
        done: oneshot::Sender<Result<AlignedBuf, Returned<ReadError>>>,
    },
    /// Flush a drive, so that everything written to it is durable.
    Fsync {
        drive: DriveNo,
        /// Receives the outcome.
        done: oneshot::Sender<Result<(), WriteError>>,
    },
    /// Write a buffer through the core's ring.
    Write {
        drive: DriveNo,
        /// The offset on the drive.
        offset: ByteOffset,
        /// The bytes to write.
        buf: AlignedBuf,
        /// Receives the outcome and the buffer.
        done: oneshot::Sender<Result<AlignedBuf, Returned<WriteError>>>,
    },
    /// Report the core's counters and gauges.
    Describe(oneshot::Sender<CoreSnapshot>),
    /// Finish the work under way, and accept no new work.
    Stop,
    /// Abandon the work under way and end: the background threads that the work may wait for are gone.
    End,
}

/// The outcome of opening a projection.
pub struct Opening {
    pub projection: Result<Arc<Projection>, Fault>,
    /// The memory that the handle holds while it is open.
    pub held: HeldProjection,
    /// The memory that the answer holds until its last byte has been sent.
    pub answer_held: HeldBytes,
}
