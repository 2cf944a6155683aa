//! Enters what a restarted node finds on its drives.

use std::collections::HashMap;
use std::sync::Arc;

use address::TableTag;
use tokio::time::Instant;

use super::CacheBooks;
use crate::cache::books::events::Action;
use crate::cache::books::segments::RestoredSegment;
use crate::extent::{ByKey, Extent, SegmentNo};

impl CacheBooks {
    /// Enters the segments that were filled before the restart. The `unreadable` ones stay unused until they are
    /// reclaimed. Call it once, before any method that changes the books.
    pub fn restore_segments(&mut self, segments: Vec<RestoredSegment>, unreadable: Vec<SegmentNo>) {
        self.segments.restore(segments);
        for segment in unreadable {
            self.segments.distrust(segment);
        }
    }

    /// Removes the extents for which the directory has no memory. It may have less than before the restart: the node may
    /// have a lower `memory`, more cores, or its first shares. The extents of the segments that were filled first are
    /// removed first, and those of the held log last. `extents` are in the order in which they were written. Call it
    /// after [`restore_segments`](Self::restore_segments). The segments are reclaimed like others, and little is left
    /// in them to keep.
    pub fn fit_directory(&self, extents: &mut Vec<Arc<Extent>>) {
        let bytes_max = self.limits.directory_bytes_max;
        let bytes_of = |extent: &Arc<Extent>| self.placed.bytes_of(extent);
        if extents.iter().map(bytes_of).sum::<u64>() <= bytes_max {
            return;
        }
        let is_held: Vec<_> = extents.iter().map(|it| self.held_in(it).is_some()).collect();
        let held = (0..extents.len()).rev().filter(|&at| is_held[at]);
        let others = (0..extents.len()).rev().filter(|&at| !is_held[at]);
        let (mut is_kept, mut names, mut bytes) =
            (vec![false; extents.len()], ByKey::<()>::default(), 0);
        let mut sectors_of: HashMap<TableTag, u64> = HashMap::new();
        let mut is_short = false;
        for at in held.chain(others) {
            let (key, extent) = (extents[at].key, &extents[at]);
            // A later extent takes the place of an earlier one with the same name.
            if names.insert(key, ()).is_none() {
                // Journals still have those that were evicted because their table was at its `maximum`.
                let sectors = sectors_of.entry(key.pack.table()).or_default();
                *sectors += u64::from(extent.index.sectors());
                if self.shares.quota(key).is_some_and(|quota| *sectors > quota) {
                    continue;
                }
                bytes += bytes_of(extent);
            }
            if bytes > bytes_max {
                is_short = true;
                break;
            }
            is_kept[at] = true;
        }
        let mut is_kept = is_kept.into_iter();
        let found = extents.len();
        extents.retain(|_| is_kept.next().unwrap_or(false));
        if !is_short {
            return;
        }
        tracing::warn!(
            found,
            kept = extents.len(),
            "the directory has no memory for all extents on the drives: the oldest are evicted; raise `memory`"
        );
    }

    /// Reserves memory for `extents` extents.
    pub fn reserve(&mut self, extents: usize) {
        self.placed.reserve(extents);
    }

    /// Enters extents that were found on the drives, in the order in which they were written. If two have the same
    /// name, the later one counts. Call it with all extents before [`restore_counts`](Self::restore_counts).
    pub fn restore_extents(&mut self, extents: &[Arc<Extent>]) {
        extents.iter().for_each(|extent| drop(self.placed.insert(Arc::clone(extent))));
    }

    /// Adds entered extents to the lists of their segments and the counts of their tables, except those that a later
    /// extent with the same name replaced.
    pub fn restore_counts(&mut self, extents: &[Arc<Extent>]) {
        for extent in extents {
            if self.placed.has(extent) {
                self.by_segment.entry(extent.segment).or_default().push(Arc::clone(extent));
                self.count_restored(extent);
            }
        }
    }

    /// Ends the restore: evicts extents of tables that exceed their quota, and starts the scrubber.
    pub fn restored(&mut self, now: Instant) -> Vec<Action> {
        self.keep_to_shares();
        let segments = self.by_segment.keys().copied().collect();
        self.scrub.begin_at(self.segments.next_epoch(), segments, now);
        std::mem::take(&mut self.actions)
    }
}

#[cfg(test)]
impl CacheBooks {
    /// Returns the books after a restart with other shares, as if all placed extents had been recorded.
    pub fn restarted(self, shares: super::Shares, now: Instant) -> Self {
        let mut extents: Vec<_> = self.by_segment.into_values().flatten().collect();
        extents.retain(|extent| self.placed.has(extent));
        extents.sort_by_key(|extent| (extent.drive, extent.first.0));
        let mut books = Self::new(1, self.slabs, self.limits, shares, 1, now);
        books.restore_segments(self.segments.in_use(), Vec::new());
        books.fit_directory(&mut extents);
        books.restore_extents(&extents);
        books.restore_counts(&extents);
        books.restored(now);
        books
    }

    /// Sets the maximum of the RAM that the directory may take.
    pub fn set_directory_bytes_max(&mut self, bytes_max: u64) {
        self.limits.directory_bytes_max = bytes_max;
    }
}
