//! Checks each sector of a read once, however many pieces lie in it.

use std::sync::Arc;

use address::SECTOR_BYTES;

use super::{Piece, ReadContext};
use crate::drive::ExtentError;
use crate::extent::Extent;
use crate::fetch::ram_tier::{Admission, SectorName};

/// The sectors of a read that were checked, those found wrong, and those offered to the RAM tier: one bit per sector (a
/// read has at most 64).
#[derive(Default)]
pub struct Checks {
    checked: u64,
    bad: u64,
    offered: u64,
}

impl Checks {
    /// Returns whether all of a piece's sectors match their checksums. The piece begins `skipped` sectors after the
    /// start of the read, whose bytes are `bytes`. Each sector is checked once, and reported if it does not match.
    #[inline]
    pub fn verify(
        &mut self,
        core: &ReadContext<'_>,
        extent: &Arc<Extent>,
        piece: &Piece,
        skipped: usize,
        bytes: &[u8],
    ) -> bool {
        let mut all = true;
        for at in 0..piece.sectors() {
            let index = skipped + at as usize;
            let bit = 1u64 << index;
            let sector = piece.first_sector() + at;
            if self.checked & bit == 0 {
                self.checked |= bit;
                let sector_bytes = &bytes[index * SECTOR_BYTES..][..SECTOR_BYTES];
                if extent.index.check(sector, sector_bytes).is_err() {
                    self.bad |= bit;
                    core.stats.bad_sectors.add(1);
                    core.fills.bad_extent(extent, ExtentError::Checksum);
                }
            }
            all &= self.bad & bit == 0;
        }
        all
    }

    /// Offers the sectors of a piece that was verified and decoded to the RAM tier, each once.
    #[inline]
    pub fn offer(
        &mut self,
        core: &ReadContext<'_>,
        extent: &Extent,
        piece: &Piece,
        skipped: usize,
        bytes: &[u8],
    ) {
        for at in 0..piece.sectors() {
            let index = skipped + at as usize;
            let bit = 1u64 << index;
            if self.offered & bit == 0 {
                self.offered |= bit;
                let name = SectorName::new(extent.key, piece.first_sector() + at);
                admit(core, name, &bytes[index * SECTOR_BYTES..][..SECTOR_BYTES]);
            }
        }
    }
}

fn admit(core: &ReadContext<'_>, name: SectorName, bytes: &[u8]) {
    match core.ram.admit(name, bytes) {
        Admission::No => {}
        Admission::Added => core.stats.ram_admitted.add(1),
        Admission::Replaced => {
            core.stats.ram_admitted.add(1);
            core.stats.ram_evicted.add(1);
        }
    }
}
