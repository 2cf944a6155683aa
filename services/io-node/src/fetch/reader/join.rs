//! Lets pieces join reads in flight, so that a sector that many requests ask for at once is read once.

use address::{DriveNo, SectorNo};
use tokio::time::Instant;

use super::{Piece, Reader};
use crate::fetch::coalesce::Want;
use crate::fetch::requests::Requests;

/// The number of places for each slot. Two reads in flight whose sectors share a place are rare then.
const PLACES_PER_SLOT: usize = 4;

/// The tags of the reads that were started last, each at the place of its drive and first sector. A later read takes the
/// place of an earlier one, which no piece joins any more. Places are not cleared: whether the read at a place is the
/// wanted one, and still in flight, is in its entry.
pub(super) struct Started {
    tags: Box<[u32]>,
}

impl Started {
    /// Creates places for `slots` reads in flight.
    pub fn new(slots: u32) -> Self {
        let places = (slots as usize * PLACES_PER_SLOT).next_power_of_two();
        Self { tags: vec![0; places].into() }
    }

    /// Records a read.
    pub fn add(&mut self, drive: DriveNo, first: SectorNo, tag: u32) {
        let place = self.place(drive, first);
        self.tags[place] = tag;
    }

    fn tag(&self, drive: DriveNo, first: SectorNo) -> u32 {
        self.tags[self.place(drive, first)]
    }

    fn place(&self, drive: DriveNo, first: SectorNo) -> usize {
        // The upper bits of a product with the golden ratio spread neighbouring sectors evenly.
        let mixed = (first.0 ^ u64::from(drive.0) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.tags.len() - 1)
    }
}

impl Reader {
    /// Adds a piece to a read in flight that begins at the piece's first sector and has all of its sectors. Returns
    /// whether there is such a read.
    ///
    /// A read whose first request has ended is not joined: the grace period of the sectors may be over
    /// (`shard/grace.rs`), so that they are another extent's by now. Nor is one that is late, because its drive may hang.
    pub(super) fn join(&self, requests: &mut Requests, want: Want<Piece>, now: Instant) -> bool {
        let tag = self.started.borrow().tag(want.drive, want.first) as usize;
        let mut table = self.in_flight.borrow_mut();
        let Some(read) = table.entries.get_mut(tag) else { return false };
        let is_it = (read.drive, read.first) == (want.drive, want.first);
        // Without pieces, the read has ended or was abandoned.
        let Some(first) = read.wants.first().filter(|_| is_it && !read.is_suspect) else {
            return false;
        };
        if read.sectors < want.sectors || requests.get_mut(first.piece.request).is_none() {
            return false;
        }
        if let Some(request) = requests.get_mut(want.piece.request) {
            request.times.reading.get_or_insert(now);
        }
        read.wants.push(want);
        true
    }
}
