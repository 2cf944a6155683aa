//! Abandons reads that a drive does not answer in time, and stops reading drives that hang.

use std::mem::{replace, take};
use std::sync::Arc;
use std::time::Duration;

use address::DriveNo;
use tokio::time::Instant;

use super::{Piece, ReadContext, Reader, Want, mark_piece_undelivered, mark_undelivered};
use crate::extent::Extent;
use crate::shard::RequestNo;

/// A drive gets no more reads once its abandoned reads occupy more than one slot in this many. Until one of them is
/// answered, it takes no further slots from the other drives.
const STUCK_PART: u32 = 8;

impl Reader {
    /// Abandons reads that have been in flight for `limit`: their rows come from the table, and the bytes of the drive's
    /// late answer are discarded. If that is an error, the extents are reported like those of other reads: a bad sector
    /// may keep a drive busy for longer than the limit at each attempt. The slot stays occupied until the drive answers.
    /// Returns the requests that have no pieces left.
    ///
    /// A read is abandoned when it is found late for the second time, so that a pause of this process is not mistaken
    /// for a pause of the drive.
    pub fn give_up(&self, core: &ReadContext<'_>, limit: Duration) -> Vec<RequestNo> {
        let mut ended = Vec::new();
        if self.busy.get() == 0 {
            return ended;
        }
        let now = Instant::now();
        let (mut late, mut drives) = (Vec::new(), Vec::new());
        for entry in &mut self.in_flight.borrow_mut().entries {
            if !entry.wants.is_empty()
                && now - entry.since >= limit
                && replace(&mut entry.is_suspect, true)
            {
                let wants = take(&mut entry.wants);
                entry.abandoned = extents_of(core, &wants);
                late.push(wants);
                drives.push(entry.drive);
            }
        }
        core.stats.late_reads.add(late.len() as u64);
        let all_stuck = {
            let mut stuck = self.stuck.borrow_mut();
            for drive in &drives {
                let at = usize::from(drive.0);
                let len = stuck.len().max(at + 1);
                stuck.resize(len, 0);
                stuck[at] += 1;
            }
            stuck.iter().sum::<u32>() >= self.slots
        };
        // Report a drive for as long as one of its reads hangs, even if the drive gets no more reads.
        for (drive, &reads) in (0..).zip(self.stuck.borrow().iter()) {
            if reads > 0 {
                core.fills.late(DriveNo(drive));
            }
        }
        for wants in late {
            mark_undelivered(core, &wants, None, &mut ended);
        }
        if all_stuck {
            // No slot becomes free before a drive answers, so the waiting pieces come from the table too.
            let waiting = take(&mut *self.waiting.borrow_mut());
            waiting
                .into_pieces()
                .for_each(|piece| mark_piece_undelivered(core, piece, None, &mut ended));
        }
        if !drives.is_empty() && !self.waiting.borrow().is_empty() {
            // Abandoned reads do not count towards the limit of reads in flight, so others may be started now. If all
            // reads in flight were on drives that hang, no completion would start them.
            self.wake();
        }
        ended
    }

    /// Returns whether a drive has so many abandoned reads in flight that it gets no more reads.
    pub(super) fn is_stuck(&self, drive: DriveNo) -> bool {
        let stuck = self.stuck.borrow();
        stuck.get(usize::from(drive.0)).is_some_and(|&reads| reads > self.slots / STUCK_PART)
    }
}

/// Returns the extents of those pieces whose requests have not ended. Once a request has ended, another extent may have
/// the number of its piece's.
fn extents_of(core: &ReadContext<'_>, wants: &[Want<Piece>]) -> Vec<Arc<Extent>> {
    let (mut requests, directory) = (core.requests.borrow_mut(), core.directory.borrow());
    let pieces = wants.iter().map(|want| want.piece);
    let pieces = pieces.filter(|piece| requests.get_mut(piece.request).is_some());
    let mut extents: Vec<Arc<Extent>> = Vec::new();
    for extent in pieces.filter_map(|piece| directory.extent(piece.extent)) {
        if !extents.iter().any(|known| Arc::ptr_eq(known, extent)) {
            extents.push(Arc::clone(extent));
        }
    }
    extents
}
