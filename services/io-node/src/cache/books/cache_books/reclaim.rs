//! Reclaims segments: rewrites hot extents elsewhere, evicts the others, and ends the journal.

use std::collections::HashSet;
use std::sync::Arc;

use address::ExtentKey;
use tokio::time::Instant;

use super::CacheBooks;
use crate::cache::books::checked::less;
use crate::cache::books::events::{Action, Purpose};
use crate::cache::books::eviction::{Candidate, Log};
use crate::cache::books::segments::{Allocation, Use};
use crate::cache::books::unrecorded::record_sectors;
use crate::drive::journal::{sum_of, to_block};
use crate::drive::{ExtentError, JournalError};
use crate::extent::{Extent, SegmentNo};

/// The maximum number of a segment's extents that are moved at the same time. Each is read one transfer after another,
/// so together they have as many reads in flight as a ring may have transfers on a drive. Extents of the usual 4 MiB
/// take 16 MiB of memory.
const MOVING_MAX: u64 = 4;

/// A segment that is being reclaimed.
pub struct Reclaim {
    pub segment: SegmentNo,
    /// Extents to be moved that have not been read yet. They are taken from the end: first those in `due`, then the
    /// hottest.
    waiting: Vec<Arc<Extent>>,
    /// The number of extents that are being read or written, or are in `out_of_space`.
    moving: u64,
    /// The due extents that have no new place yet. An extent is due if it must be kept for its table's guarantee. The
    /// other extents in `waiting` are moved only when no due extent is left, because they might take the space that the
    /// due ones need.
    due: HashSet<ExtentKey>,
    /// Due extents that were read, but for which there was no space. After every event, the books try again to allocate
    /// space for them.
    out_of_space: Vec<(ExtentKey, pack::Extent)>,
}

impl Reclaim {
    fn new(segment: SegmentNo) -> Self {
        let (due, out_of_space) = Default::default();
        Self { segment, waiting: Vec::new(), moving: 0, due, out_of_space }
    }
}

impl CacheBooks {
    /// Starts to reclaim a segment: asks the cores how hot its extents are.
    pub(super) fn reclaim(&mut self, segment: SegmentNo) {
        self.segments.seal(segment);
        self.reclaiming = Some(Reclaim::new(segment));
        let extents = self.by_segment.get(&segment).into_iter().flatten();
        let extents: Vec<_> = extents.filter(|extent| self.placed.has(extent)).cloned().collect();
        self.actions.push(Action::AskHeat { segment, extents });
    }

    /// Decides which extents of a segment to move, and starts to read them, or gives the segment to the held log.
    pub(super) fn heated(&mut self, segment: SegmentNo, mut heats: Vec<(Arc<Extent>, u32)>) {
        // The reclaim was given up meanwhile, because the drive takes no more writes.
        if self.reclaiming.as_ref().is_none_or(|it| it.segment != segment) {
            return;
        }
        let candidate = |(extent, heat): &(Arc<Extent>, u32)| Candidate {
            key: extent.key,
            sectors: extent.index.sectors().into(),
            heat: *heat,
            is_due: false,
        };
        // Some of the extents may have been evicted or dropped meanwhile.
        heats.retain(|(extent, _)| self.placed.has(extent));
        let mut candidates: Vec<_> = heats.iter().map(candidate).collect();
        let due_sectors = self.shares.mark_due(&mut candidates);
        if self.segments.is_to_be_held(segment, due_sectors) {
            // Giving the segment to the held log writes nothing; moving its due extents would write more than half a
            // segment.
            self.segments.make_held(segment);
            let held = candidates.iter().zip(&heats).filter(|(candidate, _)| candidate.is_due);
            held.for_each(|(_, (extent, _))| self.hold(extent, Some(segment)));
            self.reclaiming = None;
            return;
        }
        let log = self.segments.log_of(segment);
        let kept = self.eviction.keep(log, &candidates, self.placed.len());
        let due = kept.iter().filter(|&&at| candidates[at].is_due);
        let due = due.map(|&at| candidates[at].key).collect();
        let waiting = kept.iter().rev().map(|&at| Arc::clone(&heats[at].0)).collect();
        // This function counts as one move, which the call of `end_move` below ends.
        self.reclaiming = Some(Reclaim { waiting, moving: 1, due, ..Reclaim::new(segment) });
        self.end_move(segment);
    }

    /// Handles the outcome of reading an extent that is to be moved.
    pub(super) fn reread(
        &mut self,
        extent: &Arc<Extent>,
        copy: Result<pack::Extent, ExtentError>,
        now: Instant,
    ) {
        match copy {
            Ok(copy) => self.keep(extent.segment, extent.key, copy, now),
            Err(error) => {
                if error.means_bad_data() {
                    self.drop_extent(extent, error, now);
                }
                if !self.not_due(extent.segment, extent.key) {
                    self.eviction.refund(extent.index.sectors().into());
                }
                self.end_move(extent.segment);
            }
        }
    }

    /// Writes a kept extent into the main log, or into the held log if its table's guarantee covers it, or may come to
    /// cover it because it is new. If there is no space, a due extent waits while other work may still free some;
    /// otherwise the extent is evicted.
    fn keep(&mut self, from: SegmentNo, key: ExtentKey, copy: pack::Extent, now: Instant) {
        let (sectors, record) = (copy.index.sectors().into(), record_sectors(&copy.index));
        let will_settle = self.is_busy();
        let reclaim = self.reclaiming.as_mut().filter(|it| it.segment == from);
        let is_due = reclaim.as_ref().is_some_and(|it| it.due.contains(&key));
        // The held log has little more space than guarantees cover. If all kept extents of the table went there, it
        // would have less space than a table without a guarantee.
        let is_new = self.segments.log_of(from) == Log::Small;
        let log = match self.shares.holds(key) && (is_due || is_new) {
            true => Log::Held,
            false => Log::Main,
        };
        let for_use = if is_due { Use::Due } else { Use::Kept };
        let mut allocation = self.segments.allocate(log, sectors, record, for_use);
        if log == Log::Held && !is_due && !matches!(allocation, Allocation::Room(_)) {
            allocation = self.segments.allocate(Log::Main, sectors, record, for_use);
        }
        match (allocation, reclaim) {
            (Allocation::Room(room), _) => {
                self.not_due(from, key);
                return self.write(key, copy, room, Purpose::Keep { from, is_due }, now);
            }
            (_, Some(reclaim)) if is_due && will_settle => {
                return reclaim.out_of_space.push((key, copy));
            }
            _ if is_due => {
                tracing::warn!(extent = ?key, "an extent of a table's guaranteed share is evicted: there is no space to move it to");
                self.not_due(from, key);
            }
            _ => self.eviction.refund(sectors),
        }
        self.end_move(from);
    }

    /// Records that an extent has got a new place, or will get none, and so is not due any more. Returns whether it was
    /// due.
    fn not_due(&mut self, from: SegmentNo, key: ExtentKey) -> bool {
        let reclaim = self.reclaiming.as_mut().filter(|it| it.segment == from);
        reclaim.is_some_and(|reclaim| reclaim.due.remove(&key))
    }

    /// Queues a due extent to be moved again, because the drive that its copy was written to failed or was retired. It
    /// is read from its old place, which is still intact. The attempts end, because a drive takes no more writes after
    /// a few have failed in a row.
    pub(super) fn keep_once_more(&mut self, from: SegmentNo, key: ExtentKey) {
        let Some(old) = self.placed.get(key).filter(|old| old.segment == from).cloned() else {
            return;
        };
        if let Some(reclaim) = self.reclaiming.as_mut().filter(|it| it.segment == from) {
            reclaim.due.insert(key);
            reclaim.waiting.push(old);
        }
    }

    /// Tries again to allocate space for due extents that did not get any. A block that was recorded since may have
    /// freed some, because it took less space than was reserved for it. Once nothing is under way that may free space,
    /// these extents are evicted.
    pub(super) fn retry_out_of_space(&mut self, now: Instant) {
        let Some(reclaim) = &mut self.reclaiming else { return };
        let from = reclaim.segment;
        for (key, copy) in std::mem::take(&mut reclaim.out_of_space) {
            self.keep(from, key, copy, now);
        }
    }

    /// Ends one extent's move out of `from`, and starts the next. After the last one, the rest of the segment is
    /// evicted.
    pub(super) fn end_move(&mut self, from: SegmentNo) {
        // The reclaim was given up meanwhile.
        let Some(reclaim) = self.reclaiming.as_mut().filter(|it| it.segment == from) else {
            return;
        };
        reclaim.moving = less(reclaim.moving, 1, "moves of extents");
        while reclaim.moving < MOVING_MAX
            && let Some(extent) = reclaim
                .waiting
                .pop_if(|extent| reclaim.due.is_empty() || reclaim.due.contains(&extent.key))
        {
            // The extent may have been dropped or evicted while it waited.
            match self.placed.has(&extent) {
                true => {
                    reclaim.moving += 1;
                    self.actions.push(Action::Reread(extent));
                }
                false => drop(reclaim.due.remove(&extent.key)),
            }
        }
        if reclaim.moving == 0 {
            self.empty_segment(from);
        }
    }

    /// Evicts what is left in a segment, and ends its journal.
    fn empty_segment(&mut self, segment: SegmentNo) {
        let extents = self.by_segment.remove(&segment).unwrap_or_default();
        let left = extents.iter().filter(|extent| self.placed.has(extent)).map(|it| it.key);
        let forgotten = self.unplace_evicted(left.collect());
        let room = self.segments.empty(segment);
        let block = to_block(&self.block_id(segment, &room), &[]);
        self.segments.chain(segment, sum_of(&block));
        // The cores are asked even if there is nothing to forget: once they have answered, all requests that began
        // earlier have ended, including those that read a moved extent at its old place.
        self.actions.push(Action::Empty { segment, forgotten, first: room.first, block });
    }

    /// Handles the outcome of writing the block that ends a segment's journal. If it succeeded, the segment is free.
    pub(super) fn emptied(&mut self, segment: SegmentNo, outcome: Result<(), JournalError>) {
        // If this segment's drive was retired or became read-only meanwhile, the books may reclaim another segment
        // already.
        self.reclaiming.take_if(|reclaim| reclaim.segment == segment);
        if self.journal_written(segment.drive, outcome) {
            self.segments.release(segment);
        }
    }
}
