//! Drops extents that can't be served, and stops using drives that fail.

use std::fmt::Display;
use std::sync::Arc;

use address::DriveNo;
use tokio::time::Instant;

use super::{CacheBooks, bytes_of};
use crate::cache::books::events::Action;
use crate::cache::books::unrecorded::Unrecorded;
use crate::drive::{DriveState, ExtentError, Health};
use crate::extent::Extent;

impl CacheBooks {
    /// Starts to scrub the next extent, if one is due.
    pub(super) fn start_scrub(&mut self, now: Instant) {
        if self.scrub.is_due(now) {
            self.scrub.begin(self.by_segment.keys().copied().collect(), now);
        }
        let len = |segment| self.by_segment.get(&segment).map_or(0, Vec::len);
        while let Some((segment, at)) = self.scrub.next(now, len) {
            let extent = Arc::clone(&self.by_segment[&segment][at]);
            // Skips extents that were placed elsewhere since.
            if self.placed.has(&extent) {
                self.scrub.reading(extent.drive, bytes_of(&extent), now);
                self.actions.push(Action::Scrub(extent));
                return;
            }
        }
    }

    /// Handles the outcome of reading an extent to check it.
    pub(super) fn scrubbed(
        &mut self,
        extent: &Arc<Extent>,
        outcome: Result<(), ExtentError>,
        now: Instant,
    ) {
        self.scrub.read(extent.drive);
        self.counts.scrubbed += 1;
        if let Err(error) = outcome
            && error.means_bad_data()
        {
            self.drop_extent(extent, error, now);
        }
    }

    /// Drops an extent that can't be served, and counts the failure against its drive.
    pub(super) fn drop_extent(&mut self, extent: &Arc<Extent>, error: ExtentError, now: Instant) {
        let drive = extent.drive;
        // An outdated report may be about an extent that was replaced since.
        if self.placed.has(extent) {
            tracing::warn!(drive = drive.0, sector = extent.first.0, key = ?extent.key, %error, "an extent is dropped; its rows come from the table until it is filled again");
            self.unplace(extent.key);
            self.counts.dropped += 1;
            // The extent's space becomes free when its segment is reclaimed, so nothing has to wait for the cores to
            // forget it. The journal still has the extent, so after a restart it is found again, and dropped again when
            // reading it fails.
            self.forget(vec![extent.key]);
            if self.health[usize::from(drive.0)].read_failed(error, now) {
                self.degrade(drive, &error);
            }
        }
    }

    /// Counts a late answer against a drive. Too many retire the drive.
    pub(super) fn late(&mut self, drive: DriveNo, now: Instant) {
        if self.health[usize::from(drive.0)].was_late(now) {
            self.degrade(drive, &"it does not answer in time");
        }
    }

    /// Counts a second of slow reads against a drive. Too many retire the drive, if another one serves.
    pub(super) fn slow(&mut self, drive: DriveNo, now: Instant) {
        if !self.health[usize::from(drive.0)].was_slow(now) {
            return;
        }
        let serves =
            |(at, health): (u16, &Health)| at != drive.0 && health.state() == DriveState::Serving;
        if (0..).zip(&self.health).any(serves) {
            self.health[usize::from(drive.0)].retire();
            self.degrade(drive, &"its reads take many times longer than usual");
        } else {
            // The drive's extents could be filled nowhere else.
            tracing::error!(
                drive = drive.0,
                "the drive's reads take many times longer than usual; it stays in use, because no other drive serves"
            );
        }
    }

    /// Applies a drive's new state: it takes no more writes, or is not used at all.
    pub(super) fn degrade(&mut self, drive: DriveNo, why: &dyn Display) {
        let state = self.health[usize::from(drive.0)].state();
        self.segments.close(drive);
        // The drive's extents that are not in a journal yet stay unrecorded.
        self.unrecorded[usize::from(drive.0)].0 = Unrecorded::default();
        // Gives up reclaiming a segment of this drive: the segment's space could not be used, and if the drive is not
        // retired, the extents in the segment are still served.
        self.reclaiming.take_if(|reclaim| reclaim.segment.drive == drive);
        if state != DriveState::Retired {
            tracing::error!(drive = drive.0, %why, "the drive takes no more writes; the extents on it are served");
            return;
        }
        // A drive that hangs never finishes its operations; nothing may wait for them.
        self.writing[usize::from(drive.0)] = 0;
        self.unrecorded[usize::from(drive.0)].1 = false;
        self.scrub.read(drive);
        self.by_segment.retain(|segment, _| segment.drive != drive);
        let keys = self.placed.on_drive(drive);
        for &key in &keys {
            self.unplace(key);
        }
        let extents = keys.len();
        tracing::error!(drive = drive.0, %why, extents, "the drive is retired; its rows come from the table until they are filled elsewhere");
        self.forget(keys);
    }
}
