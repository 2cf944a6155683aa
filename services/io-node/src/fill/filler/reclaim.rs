//! Reclaiming a segment: what is hot is written once more, the rest forgotten, the journal ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use address::ExtentKey;

use super::Filler;
use crate::directory::Extent;
use crate::fill::eviction::{Candidate, Log};
use crate::fill::segments::{Allocation, SegmentNo};
use crate::fill::task::{self, Purpose, Step, forget};
use crate::fill::unrecorded::record_sectors;
use crate::slab::journal::{sum_of, to_block};

/// Extents of a segment that are on their way elsewhere at the same time.
const MOVING_MAX: usize = 4;

/// A segment that is being reclaimed.
pub struct Reclaim {
    /// Which.
    pub segment: SegmentNo,
    /// Extents to be kept that are still to be read, the hottest last.
    waiting: Vec<Arc<Extent>>,
    /// Those that are being read or written.
    moving: usize,
}

impl Filler {
    /// Begins to reclaim a segment: asks which of its extents are worth keeping.
    pub(super) fn reclaim(&mut self, segment: SegmentNo) {
        self.segments.seal(segment);
        self.reclaiming = Some(Reclaim { segment, waiting: Vec::new(), moving: 0 });
        let extents = self.by_segment.get(&segment).into_iter().flatten();
        let extents = extents.filter(|extent| self.placed.has(extent)).cloned().collect();
        self.steps.spawn(task::heat(Arc::clone(&self.cores), segment, extents));
    }

    /// Goes on to read what is worth keeping.
    pub(super) fn heated(&mut self, segment: SegmentNo, heats: Vec<(Arc<Extent>, u32)>) {
        let candidate = |(extent, heat): &(Arc<Extent>, u32)| Candidate {
            key: extent.key,
            sectors: extent.index.sectors().into(),
            heat: *heat,
        };
        let candidates: Vec<_> = heats.iter().map(candidate).collect();
        let log = self.segments.log_of(segment);
        let kept = self.eviction.keep(log, &candidates, self.placed.len());
        let waiting = kept.into_iter().rev().map(|at| Arc::clone(&heats[at].0)).collect();
        // One is this step itself.
        self.reclaiming = Some(Reclaim { segment, waiting, moving: 1 });
        self.moved(segment);
    }

    /// Writes what is kept into the main log, if that has room.
    pub(super) fn keep(&mut self, from: SegmentNo, name: ExtentKey, copy: pack::Extent) {
        let (sectors, record) = (copy.index.sectors().into(), record_sectors(&copy.index));
        match self.segments.allocate(Log::Main, sectors, record, true) {
            Allocation::Room(room) => self.place(name, copy, room, Purpose::Keep { from }),
            _ => {
                self.eviction.refund(sectors);
                self.moved(from);
            }
        }
    }

    /// One less of the extents of `from` is on its way elsewhere. After the last of them the rest is
    /// forgotten.
    pub(super) fn moved(&mut self, from: SegmentNo) {
        // Given up meanwhile, because its drive is retired.
        let Some(reclaim) = self.reclaiming.as_mut().filter(|it| it.segment == from) else {
            return;
        };
        reclaim.moving -= 1;
        let starting = reclaim.waiting.len().min(MOVING_MAX.saturating_sub(reclaim.moving));
        let next = reclaim.waiting.split_off(reclaim.waiting.len() - starting);
        reclaim.moving += starting;
        let is_over = reclaim.moving == 0;
        for extent in next.into_iter().rev() {
            let core = self.any_core();
            self.steps.spawn(task::reread(core, extent));
        }
        if is_over {
            self.let_go(from);
        }
    }

    /// Forgets what is left in a segment, and ends its journal.
    fn let_go(&mut self, segment: SegmentNo) {
        let extents = self.by_segment.remove(&segment).unwrap_or_default();
        let keys: Vec<_> =
            extents.iter().filter(|extent| self.placed.has(extent)).map(|it| it.key).collect();
        keys.iter().for_each(|&key| self.placed.remove(key));
        self.stats.evicted.fetch_add(keys.len() as u64, Ordering::Relaxed);
        // Also for the kept ones' old places: who holds one of those began before.
        let told = forget(&self.cores, keys);
        let room = self.segments.empty(segment);
        let block = to_block(&self.block_id(segment, &room), &[]);
        self.segments.chain(segment, sum_of(&block));
        let core = self.any_core();
        self.steps.spawn(async move {
            told.wait().await;
            let outcome = task::empty(&core, segment.drive, room.first, block).await;
            Step::Emptied { segment, outcome }
        });
    }
}
