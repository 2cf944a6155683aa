//! Reclaiming a segment: what is hot is written once more, the rest forgotten, the journal ended.

use std::sync::Arc;

use address::ExtentKey;

use super::Filler;
use crate::directory::Extent;
use crate::fill::eviction::{Candidate, Log};
use crate::fill::segments::{Allocation, SegmentNo};
use crate::fill::task::{self, Purpose, Step, forget};
use crate::fill::unrecorded::record_sectors;
use crate::slab::journal::to_block;

impl Filler {
    /// Begins to reclaim a segment: asks which of its extents are worth keeping.
    pub(super) fn reclaim(&mut self, segment: SegmentNo) {
        self.reclaiming = Some((segment, 0));
        let extents = self.by_segment.get(&segment).into_iter().flatten();
        let extents = extents.filter(|extent| self.is_placed(extent)).cloned().collect();
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
        for &at in &kept {
            let core = self.any_core();
            self.steps.spawn(task::reread(core, Arc::clone(&heats[at].0)));
        }
        // One more for this step itself.
        self.reclaiming = Some((segment, kept.len() + 1));
        self.moved();
    }

    /// Writes what is kept into the main log, if that has room.
    pub(super) fn keep(&mut self, name: ExtentKey, copy: pack::Extent) {
        let (sectors, record) = (copy.index.sectors().into(), record_sectors(&copy.index));
        match self.segments.allocate(Log::Main, sectors, record) {
            Allocation::Room(room) => self.place(name, copy, room, Purpose::Keep),
            _ => self.moved(),
        }
    }

    /// One less of the reclaimed segment's extents is on its way elsewhere. After the last of them the rest
    /// is forgotten.
    pub(super) fn moved(&mut self) {
        let Some((segment, moving)) = &mut self.reclaiming else { return };
        *moving -= 1;
        if *moving > 0 {
            return;
        }
        let segment = *segment;
        let extents = self.by_segment.remove(&segment).unwrap_or_default();
        let keys: Vec<_> =
            extents.iter().filter(|extent| self.is_placed(extent)).map(|it| it.key).collect();
        for key in &keys {
            self.placed.remove(key);
        }
        // Also for the kept ones' old places: who holds one of those began before.
        let told = forget(&self.cores, keys);
        let room = self.segments.empty(segment);
        let block = to_block(&self.block_id(segment, &room), &[]);
        let core = self.any_core();
        self.steps.spawn(async move {
            told.wait().await;
            let outcome = task::empty(&core, segment.drive, room.first, block).await;
            Step::Emptied { segment, outcome }
        });
    }
}
