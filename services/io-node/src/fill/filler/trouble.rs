//! Extents that drives have lost, and drives that fail.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use address::{DriveNo, SECTOR_BYTES};
use ring::ReadError;
use tokio::time::Instant;

use super::Filler;
use crate::directory::Extent;
use crate::fill::health::{DriveState, Health, Trouble};
use crate::fill::task::{self, Step, forget};
use crate::fill::unrecorded::Unrecorded;

impl Filler {
    /// Has the next extent looked at.
    pub(super) fn scrub(&mut self) {
        let now = Instant::now();
        if self.scrub.is_due(now) {
            self.scrub.begin(self.by_segment.keys().copied().collect(), now);
        }
        let len = |segment| self.by_segment.get(&segment).map_or(0, Vec::len);
        while let Some((segment, at)) = self.scrub.next(now, len) {
            let extent = Arc::clone(&self.by_segment[&segment][at]);
            // Dropped, or placed elsewhere since.
            if self.placed.has(&extent) {
                self.scrub.reading(u64::from(extent.index.sectors()) * SECTOR_BYTES as u64, now);
                let scrub = task::scrub(self.transfers(extent.drive), Arc::clone(&extent));
                let outcome = Err(ReadError::Closed.into());
                let instead = move || Step::Scrubbed { extent, outcome };
                self.steps.spawn_on(self.threads.next(), "scrub", scrub, instead);
                return;
            }
        }
    }

    /// Drops an extent that can't be served, and judges its drive by it.
    pub(super) fn drop_extent(&mut self, extent: &Arc<Extent>, trouble: Trouble) {
        let drive = extent.drive;
        // A late report may be of bytes that were replaced since.
        if self.placed.has(extent) {
            tracing::warn!(drive = drive.0, sector = extent.first.0, key = ?extent.key, %trouble, "an extent is dropped; its rows come from the table until it is filled again");
            self.unplace(extent.key);
            self.stats.dropped.fetch_add(1, Ordering::Relaxed);
            // Its room comes back with its segment, so nobody waits for this. The journal still has it: found
            // again after a restart, it is found wrong again.
            drop(forget(&self.cores, vec![extent.key]));
            if self.health[usize::from(drive.0)].read_failed(trouble, Instant::now()) {
                self.degrade(drive, &trouble);
            }
        }
    }

    /// A drive did not answer in time.
    pub(super) fn late(&mut self, drive: DriveNo) {
        if self.health[usize::from(drive.0)].was_late(Instant::now()) {
            self.degrade(drive, &"it does not answer in time");
        }
    }

    /// Reads of a drive take many times what they did.
    pub(super) fn slow(&mut self, drive: DriveNo) {
        if !self.health[usize::from(drive.0)].was_slow(Instant::now()) {
            return;
        }
        let serves =
            |(at, health): (u16, &Health)| at != drive.0 && health.state() == DriveState::Serving;
        if (0..).zip(&self.health).any(serves) {
            self.health[usize::from(drive.0)].retire();
            self.degrade(drive, &"its reads take many times what they did");
        } else {
            // What it has comes sooner than from the table, and there is nowhere else to fill it.
            tracing::error!(
                drive = drive.0,
                "the drive's reads take many times what they did, and no other one serves: it is used on"
            );
        }
    }

    /// A drive is used less from now on, or not at all.
    pub(super) fn degrade(&mut self, drive: DriveNo, why: &dyn Display) {
        let state = self.health[usize::from(drive.0)].state();
        self.gauges[usize::from(drive.0)].state.store(state as u8, Ordering::Relaxed);
        self.segments.close(drive);
        // What isn't in its journal yet will not be.
        self.unrecorded[usize::from(drive.0)].0 = Unrecorded::default();
        // The room would be of no use any more, and what is in it is.
        self.reclaiming.take_if(|reclaim| reclaim.segment.drive == drive);
        if state != DriveState::Retired {
            tracing::error!(drive = drive.0, %why, "the drive takes no more writes; what it has is served");
            return;
        }
        // A drive that hangs ends nothing that it was asked for: others are not to wait for it.
        self.writing[usize::from(drive.0)] = 0;
        self.unrecorded[usize::from(drive.0)].1 = false;
        self.scrub.read();
        let keys = self.placed.on_drive(drive);
        for &key in &keys {
            self.unplace(key);
        }
        self.by_segment.retain(|segment, _| segment.drive != drive);
        let extents = keys.len();
        tracing::error!(drive = drive.0, %why, extents, "the drive is retired; its rows come from the table until they are filled elsewhere");
        drop(forget(&self.cores, keys));
    }
}
