//! Events for the cache's books, and the actions that the books return.

use std::sync::Arc;

use address::{DriveNo, ExtentKey, SectorNo};
use ring::{AlignedBuf, WriteError};

use crate::drive::{ExtentError, JournalError};
use crate::extent::{Extent, SegmentNo};

/// The length in bytes that no extent reaches.
pub const EXTENT_BYTES_END: u64 = 1 << 32;

/// The reason why a chunk could not be read from the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// The chunk does not fit a segment. Reading it stopped after this number of bytes; [`EXTENT_BYTES_END`] if it fits
    /// no extent.
    TooLong(u64),
    /// Reading or encoding the chunk failed.
    Failed(String),
}

/// An event for the books. Every action but [`Action::Forget`] and [`Action::End`] ends in one.
pub enum Event {
    /// Chunks of the table were read and encoded ([`Action::Scan`]).
    Scanned {
        /// For each chunk, the name of its extent, and the encoded extent or the reason why it can't be filled.
        extents: Vec<(ExtentKey, Result<pack::Extent, ScanError>)>,
        /// The chunks that the scan did not read, because they need more memory than was estimated, or because it
        /// failed. Each with the bytes of its scan, as in `CacheBooks::request`. If there are any, `extents` are those
        /// that it read.
        left: Vec<(ExtentKey, Option<u64>)>,
    },
    /// A write of an extent has ended ([`Action::Write`]).
    Written {
        extent: Arc<Extent>,
        /// Why it is written.
        purpose: Purpose,
        outcome: Result<(), WriteError>,
    },
    /// Every core's directory has the extent ([`Action::Publish`]).
    Published {
        extent: Arc<Extent>,
        /// Why it was written.
        purpose: Purpose,
    },
    /// A block of a segment's journal was written, or writing it failed ([`Action::Record`]).
    Recorded {
        /// The extents that the block describes.
        of: BlockOf,
        outcome: Result<(), JournalError>,
    },
    /// The heat of the extents of a segment that is to be reclaimed ([`Action::AskHeat`]).
    Heated {
        segment: SegmentNo,
        /// The segment's extents, each with the number of batches that have read it, summed up over all cores.
        heats: Vec<(Arc<Extent>, u32)>,
    },
    /// An extent that is to be kept was read, or reading it failed ([`Action::Reread`]).
    Reread {
        /// The extent as it is placed now.
        extent: Arc<Extent>,
        /// The bytes to write elsewhere.
        copy: Result<pack::Extent, ExtentError>,
    },
    /// No core's directory has an extent of the segment any more, and the block that ends the segment's journal was
    /// written and flushed, or writing or flushing it failed ([`Action::Empty`]).
    Emptied { segment: SegmentNo, outcome: Result<(), JournalError> },
    /// An extent was read to check it, or reading it failed ([`Action::Scrub`]).
    Scrubbed {
        extent: Arc<Extent>,
        /// An error if the extent is damaged or could not be read.
        outcome: Result<(), ExtentError>,
    },
    /// An extent can't be served.
    BadExtent(Arc<Extent>, ExtentError),
    /// A drive did not answer in time.
    Late(DriveNo),
    /// All of one core's reads of a drive in one second took many times longer than usual.
    Slow(DriveNo),
    /// The node stops: extents that are written are recorded, and nothing more is started.
    Stopped,
    /// Time has passed, or a fill was requested (`CacheBooks::request`).
    Woken,
}

/// An action that the books require. Actions are begun in the order in which the books return them, but none waits for
/// the one before it to end.
pub enum Action {
    /// Read these neighbouring chunks, or this single one, from the table and encode them.
    Scan(Vec<ExtentKey>),
    /// Write an extent to its place.
    Write {
        extent: Arc<Extent>,
        /// Why it is written.
        purpose: Purpose,
        bytes: Vec<u8>,
    },
    /// Add an extent, which is on its drive now, to every core's directory.
    Publish {
        extent: Arc<Extent>,
        /// Why it was written.
        purpose: Purpose,
    },
    /// Flush the extents that a block of a journal describes, and then write the block.
    Record {
        /// The extents that the block describes.
        of: BlockOf,
        /// The block's first sector on the drive.
        first: SectorNo,
        block: AlignedBuf,
    },
    /// Sum up, over all cores, how many batches have read each of a segment's extents.
    AskHeat { segment: SegmentNo, extents: Vec<Arc<Extent>> },
    /// Read an extent that is to be written elsewhere, and check its sectors.
    Reread(Arc<Extent>),
    /// Make every core forget extents; once no request uses them or their segment any more, write the block that ends
    /// the segment's journal, and flush it.
    Empty {
        segment: SegmentNo,
        /// The extents.
        forgotten: Vec<ExtentKey>,
        /// The block's first sector on the drive.
        first: SectorNo,
        block: AlignedBuf,
    },
    /// Read an extent and check its sectors.
    Scrub(Arc<Extent>),
    /// Make every core forget extents.
    Forget(Vec<ExtentKey>),
    /// Report a fill's outcome to the callers that wait for it.
    End(ExtentKey, FillOutcome),
}

/// The extents that a block of a segment's journal describes.
#[derive(Clone, Copy, Debug)]
pub struct BlockOf {
    pub segment: SegmentNo,
    /// The number of extents.
    pub extents: u32,
    /// Sectors that were reserved for their records.
    pub reserved_sectors: u64,
}

/// Why an extent is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The extent was filled for a miss or a warm.
    Fill,
    /// The extent is moved out of a segment that is reclaimed, to keep it.
    Keep {
        /// The segment that is reclaimed.
        from: SegmentNo,
        /// Whether it must be kept for its table's guarantee.
        is_due: bool,
    },
}

/// A fill's outcome.
#[derive(Clone, Debug)]
pub enum FillOutcome {
    /// The extent was on a drive already.
    Found,
    /// The extent was filled. Contains the number of bytes written.
    Filled(u64),
    /// The extent can't be filled. Contains the reason.
    Failed(Arc<str>),
}

/// The outcome of a request for a fill.
#[derive(Clone, Debug)]
pub enum RequestOutcome {
    /// The fill waits to be scanned.
    Queued,
    /// The chunk is being filled already.
    Joined,
    /// The chunk is on a drive already, or can't be filled.
    Ended(FillOutcome),
    /// The miss requests no fill, because a fill of the chunk failed shortly before, or because the queue has no room
    /// for another fill of its table.
    Ignored,
}
