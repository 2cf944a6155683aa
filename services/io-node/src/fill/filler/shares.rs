//! What each table has, kept in step with what is placed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use address::ExtentKey;

use super::Filler;
use crate::directory::Extent;
use crate::fill::eviction::Log;
use crate::fill::segments::SegmentNo;
use crate::fill::shares::Unheld;
use crate::fill::task::{Purpose, forget};

impl Filler {
    /// A chunk is given room, `held_in` a segment of the held log or not.
    pub(super) fn count(&mut self, name: ExtentKey, sectors: u64, held_in: Option<SegmentNo>) {
        self.shares.add(name, sectors, held_in);
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
    }

    /// What was given room is not there, or is there no more.
    pub(super) fn uncount(&mut self, name: ExtentKey, sectors: u64) {
        let unheld = self.shares.remove(name, sectors);
        self.let_be(unheld);
    }

    /// An extent was found on a drive at the start.
    pub(super) fn count_restored(&mut self, extent: &Extent) {
        let (key, sectors) = (extent.key, extent.index.sectors().into());
        let held_in = self.held_in(extent);
        self.shares.restore(key, sectors, held_in);
        self.segments.live(extent.segment, sectors);
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
    }

    /// The shares may have been others before the start.
    pub(super) fn keep_to_shares(&mut self) {
        let tables: Vec<_> = self.shares.holdings().map(|(table, _)| table).collect();
        for table in tables {
            let unheld = self.shares.trim(table);
            self.let_be(unheld);
        }
        let over = self.shares.over();
        if !over.is_empty() {
            tracing::info!(
                extents = over.len(),
                "tables have more than their maximum: the extents that came first are let go"
            );
            self.let_go_of(over);
        }
    }

    /// Every core finds an extent.
    pub(super) fn count_published(&mut self, extent: &Arc<Extent>, purpose: Purpose) {
        match purpose {
            Purpose::Fill => self.shares.written(extent.key),
            Purpose::Keep { .. } => self.hold(extent, self.held_in(extent)),
        }
    }

    /// The segment that an extent is held in, if it is.
    fn held_in(&self, extent: &Extent) -> Option<SegmentNo> {
        let is_held = self.segments.log_of(extent.segment) == Log::Held;
        (is_held && self.shares.holds(extent.key)).then_some(extent.segment)
    }

    /// An extent is held here from now on, or nowhere.
    pub(super) fn hold(&mut self, extent: &Extent, held_in: Option<SegmentNo>) {
        let sectors = extent.index.sectors().into();
        held_in.into_iter().for_each(|segment| self.segments.hold(segment, sectors));
        let unheld = self.shares.moved(extent.key, held_in);
        self.let_be(unheld);
    }

    fn let_be(&mut self, unheld: impl IntoIterator<Item = Unheld>) {
        for (segment, sectors) in unheld {
            self.segments.let_be(segment, sectors);
        }
    }

    /// Forgets what was placed, in the filler's own books: whether it was there.
    pub(super) fn unplace(&mut self, key: ExtentKey) -> bool {
        match self.placed.remove(key) {
            Some(extent) => {
                self.segments.gone(extent.segment, extent.index.sectors().into());
                self.uncount(key, extent.index.sectors().into());
                true
            }
            None => false,
        }
    }

    /// Lets extents go; their room comes back with their segments.
    pub(super) fn let_go_of(&mut self, mut keys: Vec<ExtentKey>) {
        keys.retain(|&key| self.unplace(key));
        self.stats.evicted.fetch_add(keys.len() as u64, Ordering::Relaxed);
        drop(forget(&self.cores, keys));
    }
}
