//! Allocating space on a drive for encoded extents.

use std::sync::Arc;

use address::ExtentKey;
use ring::WriteError;
use tokio::time::Instant;

use super::{FULL, Filler, NO_DRIVE};
use crate::cache::books::{Allocation, Log, Room, SpaceDecision, Use, record_sectors};
use crate::cache::io::handle::FillOutcome;
use crate::cache::io::task::{Purpose, Step, write};
use crate::extent::Extent;

/// Why a chunk of a pinned table is not filled when the held log is full. Tables' guarantees sum to at most two thirds
/// of that log, so drives were lost since, or chunks are nearly as long as segments.
const ALL_HELD: &str = "the space for tables' guaranteed shares is full, and all of it is held: see `shares`, and the drives' state";

/// Why a chunk is not filled when the drives are full and no segment can be reclaimed.
const NO_ROOM: &str = "the drives that take writes are full, and no segment of theirs can be reclaimed: see the drives' state, and `shares`";

/// Why a chunk is not filled when the directory is full and no segment can be reclaimed.
const DIRECTORY_FULL: &str = "the directory has all the memory that `memory` leaves it, and no segment can be reclaimed to make room in it: raise `memory`, and see the drives' state";

impl Filler {
    /// Places the extents that await space, and reclaims a segment if there is none.
    pub(super) fn allocate(&mut self) {
        while let Some((name, extent)) = self.awaiting_space.front() {
            if self.pace.wait(Instant::now()).is_some() {
                return;
            }
            let record = record_sectors(&extent.index);
            let sectors = extent.index.sectors().into();
            let log = match self.shares.decide(*name, sectors) {
                SpaceDecision::Room { is_held: true } => Log::Held,
                SpaceDecision::Room { is_held: false } => self.eviction.log_for(*name),
                SpaceDecision::Evict(keys) => {
                    self.evict(keys);
                    continue;
                }
                // A drive that hangs never finishes its writes; other fills must not wait for it.
                SpaceDecision::Wait if self.is_idle() => {
                    self.end_first(
                        "its table's `maximum` is reserved for extents whose drive never finished writing them",
                    );
                    continue;
                }
                SpaceDecision::Wait => break,
                SpaceDecision::Full => {
                    self.end_first(FULL);
                    continue;
                }
            };
            let mut allocation = match self.placed.bytes() < self.limits.directory_bytes_max {
                true => self.segments.allocate(log, sectors, record, Use::Fill),
                false => self.segments.reclaim(),
            };
            if allocation == Allocation::AllHeld && !self.shares.is_pinned(*name) {
                allocation = self.segments.allocate(Log::Small, sectors, record, Use::Fill);
            }
            match allocation {
                Allocation::Room(room) => {
                    if let Some((name, extent)) = self.awaiting_space.pop_front() {
                        let is_held = self.segments.log_of(room.segment) == Log::Held;
                        self.count(name, sectors, is_held.then_some(room.segment));
                        self.place(name, extent, room, Purpose::Fill);
                    }
                }
                Allocation::AllHeld => self.end_first(ALL_HELD),
                Allocation::TooLong => {
                    if let Some((name, extent)) = self.awaiting_space.pop_front() {
                        self.end_too_long(name, extent.bytes.len() as u64);
                    }
                }
                Allocation::NoDrive => self.end_first(NO_DRIVE),
                Allocation::Reclaim(segment) => {
                    if self.reclaiming.is_none() {
                        self.reclaim(segment);
                    }
                    break;
                }
                // Segments of drives that take no writes are not reclaimed, so nothing would ever free space.
                Allocation::Busy if self.is_idle() => {
                    let has_memory = self.placed.bytes() < self.limits.directory_bytes_max;
                    self.end_first(if has_memory { NO_ROOM } else { DIRECTORY_FULL });
                }
                Allocation::Busy => break,
            }
        }
    }

    /// Ends the fill of the extent that has awaited space longest.
    fn end_first(&mut self, why: &str) {
        if let Some((name, _)) = self.awaiting_space.pop_front() {
            self.end(name, FillOutcome::Failed(why.into()));
        }
    }

    /// Writes an extent into the space it was allocated.
    pub(super) fn place(
        &mut self,
        name: ExtentKey,
        extent: pack::Extent,
        room: Room,
        purpose: Purpose,
    ) {
        self.pace.spend(extent.bytes.len() as u64, Instant::now());
        self.count_used(room.segment.drive);
        self.writing[usize::from(room.segment.drive.0)] += 1;
        let drive = self.transfers(room.segment.drive);
        let placed = Extent {
            key: name,
            index: extent.index,
            drive: room.segment.drive,
            first: room.first,
            segment: room.segment,
        };
        let (placed, bytes) = (Arc::new(placed), extent.bytes.len() as u64);
        let write = write(drive, Arc::clone(&placed), purpose, extent.bytes);
        let instead = move || {
            let outcome = Err(WriteError::Closed);
            Step::Written { extent: placed, purpose, bytes, outcome }
        };
        self.steps.spawn_on(self.threads.next(), "write", write, instead);
    }
}
