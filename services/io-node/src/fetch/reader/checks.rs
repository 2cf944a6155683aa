//! Checks each sector of a read once, however many pieces lie in it.

use std::sync::Arc;

use address::SECTOR_BYTES;

use super::{Piece, ReadContext};
use crate::drive::ExtentError;
use crate::extent::Extent;
use crate::fetch::ram_tier::{Admission, SectorName};

/// The sectors of a read that were checked, and those found wrong: one bit per sector (a read has at most 64).
#[derive(Default)]
pub struct Checks {
    checked: u64,
    bad: u64,
}

impl Checks {
    /// Returns whether all of a piece's sectors match their checksums. The piece begins `skipped` sectors after the
    /// start of the read, whose bytes are `bytes`. Each sector is checked once. If it matches, it is offered to the RAM
    /// tier; if not, it is reported.
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
                match extent.index.check(sector, sector_bytes) {
                    Ok(()) => admit(core, SectorName::new(extent.key, sector), sector_bytes),
                    Err(_) => {
                        self.bad |= bit;
                        core.stats.bad_sectors.add(1);
                        core.fills.bad_extent(extent, ExtentError::Checksum);
                    }
                }
            }
            all &= self.bad & bit == 0;
        }
        all
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
