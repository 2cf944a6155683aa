//! The cache's books: which chunks are cached, which are being filled, and which space is free. They decide what is
//! scanned, written, kept and evicted, but do no I/O themselves.
//!
//! ```text
//!               ┌─ left ──┐
//!               ▼         │
//! request ─► waiting ─► Scan ─► awaiting space ─► Write ─► Publish ─► End
//!                                     │                       └─► Record
//!                         no space ─► AskHeat ─► Reread the hot ─► Write ─► … ─► Empty ─► space
//! ```
//!
//! An [`Event`] says what happened, and the [`Action`]s that [`CacheBooks::apply`] returns say what to do next. The
//! actions depend only on the arguments of all calls and on the order of the calls. The filler (`cache/io/filler.rs`)
//! carries out the actions of a node, `simulate.rs` those of `bireme bench eviction`.
//!
//! Invariants: every extent in `placed` is counted in its segment and its table; sectors of a segment are reused only
//! after its journal was ended; an extent's place is recorded only after its bytes were flushed. A count that would
//! fall below zero is a defect: the books panic (`checked.rs`), and the node ends. After a restart, the journals say
//! which extents there are.

mod allocate;
mod count;
mod faults;
mod fills;
mod reclaim;
mod record;
mod restore;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use address::{DriveNo, ExtentKey, SECTOR_BYTES, TableTag};
use ring::WriteError;
use tokio::time::Instant;

use self::reclaim::Reclaim;
use super::checked::less;
use super::events::{Action, Event, FillOutcome, Purpose, ScanError};
use super::eviction::{Eviction, SEGMENTS_SAVED};
use super::pace::Pace;
use super::placed::Placed;
use super::scrub::Scrub;
use super::segments::Segments;
use super::shares::{Holding, Shares};
use super::unrecorded::{Unrecorded, record_sectors};
use super::waiting::WaitingFills;
use crate::drive::{DriveState, Health, Superblock, is_drive_fault};
use crate::extent::{Extent, SegmentNo};

/// A scan of several chunks decodes at most a segment's length divided by this number. Chunks are read together if
/// their estimated bytes are at most that. Columns of variable width are estimated by the size of the table's files.
/// If they take more space in memory, the scan ends early and leaves the other chunks to later scans. The memory plan
/// (`node/memory.rs`) reserves two segments' lengths for the decoded columns and the extents of each fill.
pub const SCAN_PART: u64 = 2;

/// The error for a chunk of a pinned table that is at its quota. No extent of a pinned table is evicted to make room.
const FULL: &str =
    "its table is pinned and has its `maximum` of the drives: raise `maximum` in `shares`";

/// The error for a chunk when no drive takes writes any more.
const NO_DRIVE: &str = "no drive takes writes";

/// The limits of fills.
#[derive(Clone, Copy, Debug)]
pub struct FillLimits {
    /// No scan is started while the scans under way, the extents that await space and the extents that are being
    /// written are at least this many in total. One scan can yield several extents, so the total may exceed this
    /// number.
    pub fills_max: usize,
    /// The maximum number of fills that wait.
    pub queue_max: usize,
    /// The maximum number of bytes per second that fills write; 0 for no limit. Extents that are moved count too, but
    /// are not delayed.
    pub fill_rate: u64,
    /// The maximum number of bytes per second that the scrubber reads; 0 turns it off.
    pub scrub_rate: u64,
    /// Bytes of RAM that the directory may use.
    pub directory_bytes_max: u64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Scans of tables. Neighbouring chunks may share one.
    pub scans: u64,
    /// Fills done.
    pub done: u64,
    /// Fills failed.
    pub failed: u64,
    /// Bytes of extents filled.
    pub bytes_filled: u64,
    /// Bytes of extents rewritten to keep them.
    pub bytes_kept: u64,
    /// Extents evicted.
    pub evicted: u64,
    /// Extents read by the scrubber.
    pub scrubbed: u64,
    /// Extents dropped because their bytes could not be served.
    pub dropped: u64,
}

/// The books of a cache.
pub struct CacheBooks {
    limits: FillLimits,
    slabs: Vec<Superblock>,
    segments: Segments,
    segment_sectors: u64,
    counts: CacheCounts,
    /// The actions that the current event requires.
    actions: Vec<Action>,
    /// Fills that wait to be scanned.
    waiting: WaitingFills,
    /// Chunks whose fill was requested and has not ended.
    under_way: HashSet<ExtentKey>,
    /// The number of scans under way. Neighbouring chunks may share one.
    scanning: u64,
    /// Writes under way on each drive.
    writing: Vec<u64>,
    /// For each chunk that could not be filled, the time until which misses do not request it again, and the length of
    /// that delay.
    failed: HashMap<ExtentKey, (Instant, Duration)>,
    /// Chunks that are longer than a segment or than their table's quota, with their length in bytes, or the bytes that
    /// were read of them. They are not scanned again, because they can never fit.
    too_long: HashMap<ExtentKey, u64>,
    /// Encoded extents that await space on a drive.
    awaiting_space: VecDeque<(ExtentKey, pack::Extent)>,
    eviction: Eviction,
    shares: Shares,
    pace: Pace,
    /// The time until which `pace` delays the first of the extents that await space.
    paced_until: Option<Instant>,
    scrub: Scrub,
    reclaiming: Option<Reclaim>,
    /// The number of segments that were reclaimed for the first of the extents that await space.
    reclaimed_in_vain: u64,
    /// Extents that are in every core's directory, or are being published to it.
    placed: Placed,
    /// Extents placed in each segment. Some may have been placed elsewhere since.
    by_segment: HashMap<SegmentNo, Vec<Arc<Extent>>>,
    /// For each drive, the extents that are in no journal yet, and whether a block of a journal is being written.
    unrecorded: Vec<(Unrecorded, bool)>,
    health: Vec<Health>,
    is_stopped: bool,
}

impl CacheBooks {
    /// Creates the books of a node with `cores` cores and these slabs, which are all divided into segments of the same
    /// length. `epoch_min` must be higher than any epoch that this node has given out, because the epochs of journals
    /// that can't be read are unknown.
    pub fn new(
        cores: usize,
        slabs: Vec<Superblock>,
        limits: FillLimits,
        shares: Shares,
        epoch_min: u64,
        now: Instant,
    ) -> Self {
        let segment_sectors = slabs.first().map_or(1, |slab| slab.segment_sectors);
        let sectors: Vec<_> = slabs.iter().map(|slab| slab.sectors).collect();
        let placed = Placed::new(cores, !shares.is_empty());
        Self {
            limits,
            segments: Segments::new(segment_sectors, &sectors, epoch_min),
            segment_sectors,
            counts: CacheCounts::default(),
            actions: Vec::new(),
            waiting: WaitingFills::new(segment_sectors * SECTOR_BYTES as u64 / SCAN_PART),
            under_way: HashSet::new(),
            scanning: 0,
            writing: vec![0; slabs.len()],
            failed: HashMap::new(),
            too_long: HashMap::new(),
            awaiting_space: VecDeque::new(),
            eviction: Eviction::new(segment_sectors * SEGMENTS_SAVED),
            shares,
            pace: Pace::new(limits.fill_rate, now),
            paced_until: None,
            scrub: Scrub::new(limits.scrub_rate, now),
            reclaiming: None,
            reclaimed_in_vain: 0,
            placed,
            by_segment: HashMap::new(),
            unrecorded: slabs.iter().map(|_| Default::default()).collect(),
            health: slabs.iter().map(|_| Health::default()).collect(),
            slabs,
            is_stopped: false,
        }
    }

    /// Processes an event, and returns the actions to carry out now, in order.
    pub fn apply(&mut self, event: Event, now: Instant) -> Vec<Action> {
        self.enter(event, now);
        self.retry_out_of_space(now);
        if !self.is_stopped {
            // Allocate before starting scans: allocating may end fills, and so make room for scans that no later event
            // would start.
            self.allocate(now);
            self.start_scans(now);
            self.start_scrub(now);
        }
        self.record();
        std::mem::take(&mut self.actions)
    }

    fn enter(&mut self, event: Event, now: Instant) {
        match event {
            Event::Scanned { extents, left } => {
                self.scanning = less(self.scanning, 1, "scans");
                self.waiting.push_left(left, extents.len());
                for (key, extent) in extents {
                    match extent {
                        Ok(extent) => self.awaiting_space.push_back((key, extent)),
                        Err(ScanError::TooLong(bytes)) => self.end_too_long(key, bytes, now),
                        Err(ScanError::Failed(why)) => {
                            self.end(key, FillOutcome::Failed(why.into()), now);
                        }
                    }
                }
            }
            Event::Written { extent, purpose, outcome } => {
                self.written(extent, purpose, outcome, now);
            }
            Event::Published { extent, purpose } => self.published(&extent, purpose, now),
            Event::Recorded { of, outcome } => self.recorded(of, outcome),
            Event::Heated { segment, heats } => self.heated(segment, heats),
            Event::Reread { extent, copy } => self.reread(&extent, copy, now),
            Event::Emptied { segment, outcome } => self.emptied(segment, outcome),
            Event::Scrubbed { extent, outcome } => self.scrubbed(&extent, outcome, now),
            Event::BadExtent(extent, error) => self.drop_extent(&extent, error, now),
            Event::Late(drive) => self.late(drive, now),
            Event::Slow(drive) => self.slow(drive, now),
            Event::Stopped => self.is_stopped = true,
            Event::Woken => {}
        }
    }

    fn written(
        &mut self,
        extent: Arc<Extent>,
        purpose: Purpose,
        outcome: Result<(), WriteError>,
        now: Instant,
    ) {
        let drive = usize::from(extent.drive.0);
        let is_retired = self.health[drive].state() == DriveState::Retired;
        // Retiring a drive sets its count of writes to 0, so writes that end afterwards are not subtracted.
        if !is_retired {
            self.writing[drive] = less(self.writing[drive], 1, "writes of a drive");
        }
        match (outcome, purpose) {
            // The extent was evicted or dropped while it was being moved, so its copy is not placed. If the chunk has
            // been filled anew, the new extent stays.
            (Ok(()), Purpose::Keep { from, .. })
                if self.placed.get(extent.key).is_none_or(|old| old.segment != from) =>
            {
                self.segments.settle(extent.segment, 1, record_sectors(&extent.index));
                self.end_move(from);
            }
            (Ok(()), _) if !is_retired => {
                self.health[drive].written();
                self.publish(&extent);
                self.count_published(&extent, purpose);
                self.actions.push(Action::Publish { extent, purpose });
            }
            (outcome, _) => {
                self.segments.settle(extent.segment, 1, record_sectors(&extent.index));
                let failed = outcome.err();
                let why = match &failed {
                    Some(error) if !is_retired => error.to_string(),
                    _ => "its drive is retired".to_owned(),
                };
                if let Some(error) = &failed
                    && self.health[drive].write_failed(error)
                {
                    self.degrade(extent.drive, error);
                }
                match purpose {
                    Purpose::Fill => {
                        self.uncount(extent.key, extent.index.sectors().into());
                        self.end(extent.key, FillOutcome::Failed(why.into()), now);
                    }
                    Purpose::Keep { from, is_due } => {
                        if is_due && failed.as_ref().is_none_or(is_drive_fault) {
                            self.keep_once_more(from, extent.key);
                        }
                        self.end_move(from);
                    }
                }
            }
        }
    }

    /// Enters an extent as placed, in the same step that publishes it. From then on, reports about an earlier extent
    /// with the same name are recognised as outdated.
    fn publish(&mut self, extent: &Arc<Extent>) {
        let drive = usize::from(extent.drive.0);
        self.by_segment.entry(extent.segment).or_default().push(Arc::clone(extent));
        if self.health[drive].state() == DriveState::Serving {
            self.unrecorded[drive].0.push(Arc::clone(extent));
        }
        self.segments.live(extent.segment, extent.index.sectors().into());
        if let Some(replaced) = self.placed.insert(Arc::clone(extent)) {
            self.segments.gone(replaced.segment, replaced.index.sectors().into());
        }
    }

    fn published(&mut self, extent: &Extent, purpose: Purpose, now: Instant) {
        let bytes = bytes_of(extent);
        match purpose {
            Purpose::Fill => {
                self.eviction.filled(extent.key, extent.index.sectors().into());
                self.counts.bytes_filled += bytes;
                self.end(extent.key, FillOutcome::Filled(bytes), now);
            }
            Purpose::Keep { from, .. } => {
                self.counts.bytes_kept += bytes;
                self.end_move(from);
            }
        }
    }

    /// The time at which an [`Event::Woken`] is needed, if no other event comes first.
    pub fn wake(&self) -> Option<Instant> {
        match self.is_stopped {
            true => None,
            false => [self.paced_until, self.scrub.wait()].into_iter().flatten().min(),
        }
    }

    /// Whether an extent is being written or recorded, or waits to be recorded.
    pub fn is_busy(&self) -> bool {
        self.writing.iter().any(|&writes| writes > 0)
            || self.unrecorded.iter().any(|(waiting, busy)| *busy || waiting.len() > 0)
    }

    /// Whether the maximum number of fills waits to be scanned.
    pub fn is_queue_full(&self) -> bool {
        self.waiting.len() >= self.limits.queue_max
    }

    /// The number of fills that were requested and have not ended.
    pub fn running(&self) -> usize {
        self.under_way.len()
    }

    /// The number of fills that wait to be scanned; [`running`](Self::running) counts them too.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of extents on the drives.
    pub fn extents(&self) -> usize {
        self.placed.len()
    }

    /// The RAM that the extents take at most, in every core's directory and in the books, in bytes.
    pub fn directory_bytes(&self) -> u64 {
        self.placed.bytes()
    }

    /// Counts since the start.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// How many extents and sectors each table has on the drives.
    pub fn holdings(&self) -> impl Iterator<Item = (TableTag, Holding)> {
        self.shares.holdings()
    }

    /// Bytes of a drive that extents and journals use.
    pub fn used_bytes(&self, drive: DriveNo) -> u64 {
        self.segments.used_sectors(drive) * SECTOR_BYTES as u64
    }

    /// A drive's state.
    pub fn drive_state(&self, drive: DriveNo) -> DriveState {
        self.health[usize::from(drive.0)].state()
    }

    /// Sectors of a segment.
    pub fn segment_sectors(&self) -> u64 {
        self.segment_sectors
    }

    /// The maximum number of bytes that a scan of several chunks may decode.
    pub fn scan_bytes_max(&self) -> u64 {
        self.waiting.scan_bytes_max()
    }

    fn segment_bytes(&self) -> u64 {
        self.segment_sectors * SECTOR_BYTES as u64
    }

    /// Whether an extent with this name is placed.
    pub fn contains(&self, key: ExtentKey) -> bool {
        self.placed.contains(key)
    }
}

/// The length of an extent on its drive, in bytes.
fn bytes_of(extent: &Extent) -> u64 {
    u64::from(extent.index.sectors()) * SECTOR_BYTES as u64
}
