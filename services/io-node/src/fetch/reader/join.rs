//! Lets pieces join reads in flight, so that a sector that many requests ask for at once is read once.

use address::{DriveNo, SectorNo};
use tokio::time::Instant;

use super::{Piece, Reader};
use crate::fetch::coalesce::Want;
use crate::fetch::requests::Requests;

/// The number of places for each slot. Two reads in flight whose sectors share a place are rare then.
const PLACES_PER_SLOT: usize = 4;

/// The maximum number of pieces of a read that further pieces join. It bounds the memory of a read, and the time that its
/// completion takes.
const PIECES_MAX: usize = 256;

/// The tags of the reads that were started last, each at the places of the first sectors of its pieces. A later read takes
/// the place of an earlier one, which no piece joins there any more. Places are not cleared: whether the read at a place
/// is the wanted one, and still in flight, is in its entry.
pub(super) struct Started {
    tags: Box<[u32]>,
}

impl Started {
    /// Creates places for `slots` reads in flight.
    pub fn new(slots: u32) -> Self {
        let places = (slots as usize * PLACES_PER_SLOT).next_power_of_two();
        Self { tags: vec![0; places].into() }
    }

    /// Records a read, with a sector at which one of its pieces begins.
    pub fn add(&mut self, drive: DriveNo, sector: SectorNo, tag: u32) {
        let place = self.place(drive, sector);
        self.tags[place] = tag;
    }

    fn tag(&self, drive: DriveNo, sector: SectorNo) -> u32 {
        self.tags[self.place(drive, sector)]
    }

    fn place(&self, drive: DriveNo, sector: SectorNo) -> usize {
        // The upper bits of a product with the golden ratio spread neighbouring sectors evenly.
        let mixed = sector.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (mixed ^ u64::from(drive.0)) as usize & (self.tags.len() - 1)
    }
}

impl Reader {
    /// Adds a piece to a read in flight that has all of its sectors, and another piece that begins at the same sector.
    /// Returns whether there is such a read.
    ///
    /// The request of the other piece must not have ended: the grace period of the sectors would be over then
    /// (`shard/grace.rs`), and they might be another extent's by now. A read that is late is not joined, because its drive
    /// may hang.
    pub(super) fn join(&self, requests: &mut Requests, want: Want<Piece>, now: Instant) -> bool {
        let tag = self.started.borrow().tag(want.drive, want.first) as usize;
        let mut table = self.in_flight.borrow_mut();
        let Some(read) = table.entries.get_mut(tag) else { return false };
        let end = |first: SectorNo, sectors: u32| first.0 + u64::from(sectors);
        let has_it = read.drive == want.drive
            && read.first <= want.first
            && end(want.first, want.sectors) <= end(read.first, read.sectors);
        if !has_it || read.is_suspect || read.wants.len() >= PIECES_MAX {
            return false;
        }
        // Without pieces, the read has ended or was abandoned.
        let mut beside = read.wants.iter().filter(|it| it.first == want.first);
        if !beside.any(|it| requests.get_mut(it.piece.request).is_some()) {
            return false;
        }
        if let Some(request) = requests.get_mut(want.piece.request) {
            request.times.reading.get_or_insert(now);
        }
        read.wants.push(want);
        true
    }
}
