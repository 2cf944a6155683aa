//! Allocating space on a drive for encoded extents.

use std::sync::Arc;

use address::{ExtentKey, SECTOR_BYTES};
use tokio::time::Instant;

use super::{CacheBooks, FULL, NO_DRIVE, bytes_of};
use crate::cache::books::events::{Action, FillOutcome, Purpose};
use crate::cache::books::eviction::Log;
use crate::cache::books::segments::{Allocation, Room, Use};
use crate::cache::books::shares::SpaceDecision;
use crate::cache::books::unrecorded::record_sectors;
use crate::extent::Extent;

/// The error for a chunk of a pinned table when the held log is full. When the node starts, the guarantees of all
/// tables sum to at most two thirds of that log. So this happens only if drives failed afterwards, or if chunks are
/// nearly as long as segments.
const ALL_HELD: &str = "the space for tables' guaranteed shares is full, and all of it is held: see `shares`, and the drives' state";

/// The error for a chunk when the drives are full and no segment can be reclaimed.
const NO_ROOM: &str = "the drives that take writes are full, and no segment of theirs can be reclaimed: see the drives' state, and `shares`";

/// The error for a chunk for which no space became free although every segment was reclaimed, because the space went to
/// extents that are kept.
const ALL_KEPT: &str = "the drives are full, and all that reclaiming frees is taken by extents that are kept: see `shares`, and give the node larger drives or a smaller `segment`";

/// The error for a chunk when the directory is full, and no segment can be reclaimed, or every segment was reclaimed
/// and the directory still has no room.
const DIRECTORY_FULL: &str = "the directory has all the memory that `memory` leaves it, and no segment can be reclaimed to make room in it: raise `memory`, and see the drives' state";

impl CacheBooks {
    /// Allocates space for the extents that await it, and starts to reclaim a segment if there is no space.
    pub(super) fn allocate(&mut self, now: Instant) {
        self.paced_until = None;
        while let Some((key, extent)) = self.awaiting_space.front() {
            self.paced_until = self.pace.wait(now);
            if self.paced_until.is_some() {
                return;
            }
            let record = record_sectors(&extent.index);
            let sectors = extent.index.sectors().into();
            let log = match self.shares.decide(*key, sectors) {
                SpaceDecision::Room { is_held: true } => Log::Held,
                SpaceDecision::Room { is_held: false } => self.eviction.log_for(*key),
                SpaceDecision::Evict(keys) => {
                    self.evict(keys);
                    continue;
                }
                // A drive that hangs never finishes its writes; other fills must not wait for it.
                SpaceDecision::Wait if self.is_idle() => {
                    self.end_first(
                        "its table's `maximum` is reserved for extents whose drive never finished writing them",
                        now,
                    );
                    continue;
                }
                SpaceDecision::Wait => break,
                SpaceDecision::Full => {
                    self.end_first(FULL, now);
                    continue;
                }
                SpaceDecision::TooLong => {
                    self.end_first_too_long(now);
                    continue;
                }
            };
            let has_memory = self.placed.bytes() < self.limits.directory_bytes_max;
            let mut allocation = match has_memory {
                true => self.segments.allocate(log, sectors, record, Use::Fill),
                false => self.segments.reclaim(),
            };
            if allocation == Allocation::AllHeld && !self.shares.is_pinned(*key) {
                allocation = self.segments.allocate(Log::Small, sectors, record, Use::Fill);
            }
            let is_vain =
                self.reclaiming.is_none() && self.reclaimed_in_vain >= self.reclaims_max();
            if is_vain && has_memory && matches!(allocation, Allocation::Reclaim(_)) {
                // Extents that are kept take what reclaiming frees, so the fill takes the space that is left for them.
                allocation = self.segments.allocate(log, sectors, record, Use::Kept);
            }
            match allocation {
                Allocation::Room(room) => {
                    if let Some((key, extent)) = self.take_first() {
                        let is_held = self.segments.log_of(room.segment) == Log::Held;
                        self.count(key, sectors, is_held.then_some(room.segment));
                        self.write(key, extent, room, Purpose::Fill, now);
                    }
                }
                Allocation::AllHeld => self.end_first(ALL_HELD, now),
                Allocation::TooLong => self.end_first_too_long(now),
                Allocation::NoDrive => self.end_first(NO_DRIVE, now),
                Allocation::Reclaim(_) if is_vain => {
                    self.end_first(if has_memory { ALL_KEPT } else { DIRECTORY_FULL }, now);
                }
                Allocation::Reclaim(segment) => {
                    if self.reclaiming.is_none() {
                        self.reclaimed_in_vain += 1;
                        self.reclaim(segment);
                    }
                    break;
                }
                // Segments of drives that take no writes are not reclaimed, so nothing would ever free space.
                Allocation::Busy if self.is_idle() => {
                    self.end_first(if has_memory { NO_ROOM } else { DIRECTORY_FULL }, now);
                }
                Allocation::Busy => break,
            }
        }
    }

    /// Whether nothing is under way that could free space: no segment is being reclaimed, and no extent is being
    /// written or has yet to be recorded.
    fn is_idle(&self) -> bool {
        self.reclaiming.is_none() && !self.is_busy()
    }

    /// Returns how many segments are reclaimed for an extent before it may take the space that is left for kept ones:
    /// twice as many as the drives have, so that each was reclaimed at least once. On a small drive, moved extents may
    /// take all space that reclaiming frees, for ever.
    fn reclaims_max(&self) -> u64 {
        let sectors: u64 = self.slabs.iter().map(|slab| slab.sectors).sum();
        2 * sectors / self.segment_sectors.max(1)
    }

    /// Takes the extent that has awaited space longest, and resets the count of segments that were reclaimed for it.
    fn take_first(&mut self) -> Option<(ExtentKey, pack::Extent)> {
        self.reclaimed_in_vain = 0;
        self.awaiting_space.pop_front()
    }

    /// Fails the fill of the extent that has awaited space longest, with the reason `why`.
    fn end_first(&mut self, why: &str, now: Instant) {
        if let Some((key, _)) = self.take_first() {
            self.end(key, FillOutcome::Failed(why.into()), now);
        }
    }

    /// Fails the fill of the extent that has awaited space longest, because the extent is too long.
    fn end_first_too_long(&mut self, now: Instant) {
        if let Some((key, extent)) = self.take_first() {
            let sectors = u64::from(extent.index.sectors());
            self.end_too_long(key, sectors * SECTOR_BYTES as u64, now);
        }
    }

    /// Starts to write an extent to the space that was allocated for it.
    pub(super) fn write(
        &mut self,
        key: ExtentKey,
        extent: pack::Extent,
        room: Room,
        purpose: Purpose,
        now: Instant,
    ) {
        let Room { segment, first } = room;
        let pack::Extent { index, bytes } = extent;
        let extent = Arc::new(Extent { key, index, drive: segment.drive, first, segment });
        self.pace.spend(bytes_of(&extent), now);
        self.writing[usize::from(segment.drive.0)] += 1;
        self.actions.push(Action::Write { extent, purpose, bytes });
    }
}
