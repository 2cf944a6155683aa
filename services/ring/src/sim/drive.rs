//! The bytes of one simulated drive, and which of them a crash may take back.

use std::collections::BTreeSet;

use address::SECTOR_BYTES;

use super::random::SimRandom;

/// What a drive can't tear: it writes 512 bytes wholly or not at all.
const ATOM_BYTES: usize = 512;

/// See the module.
pub(crate) struct SimDrive {
    pub bytes: Vec<u8>,
    /// Completed writes that no sync has covered: when, where, and what was there before.
    unsynced: Vec<(u64, usize, Vec<u8>)>,
}

impl SimDrive {
    pub fn new(len: u64) -> Self {
        Self { bytes: vec![0; len as usize], unsynced: Vec::new() }
    }

    /// A write that completed, as the `moment`th operation.
    pub fn write(&mut self, moment: u64, at: usize, data: &[u8]) {
        let place = &mut self.bytes[at..at + data.len()];
        self.unsynced.push((moment, at, place.to_vec()));
        place.copy_from_slice(data);
    }

    /// Makes durable what completed before `moment`.
    pub fn sync(&mut self, moment: u64) {
        self.unsynced.retain(|(completed, ..)| *completed >= moment);
    }

    /// A write that the crash found in flight.
    pub fn tear(&mut self, at: usize, data: &[u8], random: &mut SimRandom) {
        for (number, atom) in data.chunks(ATOM_BYTES).enumerate() {
            if random.below(2) == 0 {
                let start = at + number * ATOM_BYTES;
                self.bytes[start..start + atom.len()].copy_from_slice(atom);
            }
        }
    }

    /// Takes back some of what completed unsynced, sector by sector: from a sector's last write
    /// backwards, until one is found to have been kept.
    pub fn crash(&mut self, random: &mut SimRandom) {
        let mut kept = BTreeSet::new();
        for (_, at, before) in self.unsynced.drain(..).rev() {
            for (number, sector) in before.chunks(SECTOR_BYTES).enumerate() {
                let start = at + number * SECTOR_BYTES;
                if kept.contains(&start) {
                    continue;
                }
                if random.below(2) == 0 {
                    kept.insert(start);
                } else {
                    self.bytes[start..start + sector.len()].copy_from_slice(sector);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_takes_back_only_the_unsynced_and_never_an_older_version() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..64 {
            let mut drive = SimDrive::new(8192);
            drive.write(1, 0, &[1; 4096]);
            drive.sync(2);
            drive.write(3, 0, &[2; 4096]);
            drive.write(4, 0, &[3; 4096]);
            drive.crash(&mut SimRandom::new(seed));
            outcomes.insert(drive.bytes[0]);
            assert_eq!(drive.bytes[4096..], [0; 4096]);
        }
        assert_eq!(outcomes, BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn a_sync_doesnt_cover_what_completed_after_its_start() {
        let mut drive = SimDrive::new(4096);
        drive.write(5, 0, &[1; 4096]);
        drive.sync(5);
        assert_eq!(drive.unsynced.len(), 1);
    }
}
