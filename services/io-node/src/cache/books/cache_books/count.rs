//! Keeps the counts of segments and tables in step with the extents that are placed.

use std::sync::Arc;

use address::ExtentKey;

use super::CacheBooks;
use crate::cache::books::events::{Action, Purpose};
use crate::cache::books::eviction::Log;
use crate::cache::books::shares::Unheld;
use crate::extent::{Extent, SegmentNo};

impl CacheBooks {
    /// Counts a chunk for which space was allocated. `held_in` is the segment of that space if it is in the held log.
    pub(super) fn count(&mut self, key: ExtentKey, sectors: u64, held_in: Option<SegmentNo>) {
        self.shares.add(key, sectors, held_in);
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
    }

    /// Stops counting an extent that could not be written, or was removed.
    pub(super) fn uncount(&mut self, key: ExtentKey, sectors: u64) {
        let unheld = self.shares.remove(key, sectors);
        self.release_held(unheld);
    }

    /// Counts an extent that was found on a drive at the start.
    pub(super) fn count_restored(&mut self, extent: &Extent) {
        let (key, sectors) = (extent.key, extent.index.sectors().into());
        let held_in = self.held_in(extent);
        self.shares.restore(key, sectors, held_in);
        self.segments.live(extent.segment, sectors);
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
    }

    /// Applies the shares to the restored extents, because the shares may have changed since the extents were placed.
    pub(super) fn keep_to_shares(&mut self) {
        let unheld = self.shares.trim_all();
        self.release_held(unheld);
        let over = self.shares.over();
        if !over.is_empty() {
            tracing::info!(
                extents = over.len(),
                "tables exceed their `maximum`: their oldest extents are evicted"
            );
            self.evict(over);
        }
    }

    /// Counts an extent as written or moved, once it is published.
    pub(super) fn count_published(&mut self, extent: &Extent, purpose: Purpose) {
        match purpose {
            Purpose::Fill => self.shares.written(extent.key),
            Purpose::Keep { .. } => self.hold(extent, self.held_in(extent)),
        }
    }

    /// The segment in which an extent is held; `None` if it is not held.
    pub(super) fn held_in(&self, extent: &Extent) -> Option<SegmentNo> {
        let is_held = self.segments.log_of(extent.segment) == Log::Held;
        (is_held && self.shares.holds(extent.key)).then_some(extent.segment)
    }

    /// Records that an extent is held in `held_in`, or is not held any more.
    pub(super) fn hold(&mut self, extent: &Extent, held_in: Option<SegmentNo>) {
        let sectors = extent.index.sectors().into();
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
        let unheld = self.shares.moved(extent.key, held_in);
        self.release_held(unheld);
    }

    fn release_held(&mut self, unheld: impl IntoIterator<Item = Unheld>) {
        for (segment, sectors) in unheld {
            self.segments.release_held(segment, sectors);
        }
    }

    /// Removes an extent from the books. Returns whether the books had it.
    pub(super) fn unplace(&mut self, key: ExtentKey) -> bool {
        let Some(extent) = self.placed.remove(key) else { return false };
        // `placed` no longer counts the extent's memory, and its segment may not be reclaimed for a long time.
        if let Some(extents) = self.by_segment.get_mut(&extent.segment)
            && let Some(at) = extents.iter().position(|it| Arc::ptr_eq(it, &extent))
        {
            extents.remove(at);
            self.scrub.removed(extent.segment, at);
        }
        self.segments.gone(extent.segment, extent.index.sectors().into());
        self.uncount(key, extent.index.sectors().into());
        true
    }

    /// Evicts extents. Their space becomes free when their segments are reclaimed.
    pub(super) fn evict(&mut self, keys: Vec<ExtentKey>) {
        let evicted = self.unplace_evicted(keys);
        self.forget(evicted);
    }

    /// Evicts extents that are not used any more, except those of pinned tables. Returns how many were evicted. The
    /// next [`apply`](Self::apply) returns the action that makes the cores forget them.
    pub fn evict_unused(&mut self, mut keys: Vec<ExtentKey>) -> u64 {
        let before = self.counts.evicted;
        keys.retain(|&key| !self.shares.is_pinned(key));
        self.evict(keys);
        self.counts.evicted - before
    }

    /// Removes evicted extents from the books and counts them. Returns those that the books had.
    pub(super) fn unplace_evicted(&mut self, mut keys: Vec<ExtentKey>) -> Vec<ExtentKey> {
        keys.retain(|&key| self.unplace(key));
        self.counts.evicted += keys.len() as u64;
        keys
    }

    /// Makes every core forget extents that were removed from the books.
    pub(super) fn forget(&mut self, keys: Vec<ExtentKey>) {
        if !keys.is_empty() {
            self.actions.push(Action::Forget(keys));
        }
    }
}
