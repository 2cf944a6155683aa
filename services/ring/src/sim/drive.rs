//! The contents of one simulated drive, and the writes that a crash may undo.

use std::collections::BTreeSet;

use address::SECTOR_BYTES;

use super::random::SimRandom;

/// A drive writes this many bytes entirely or not at all, so a crash cannot tear them.
const ATOMIC_WRITE_BYTES: usize = 512;

/// A simulated drive.
pub(crate) struct SimDrive {
    pub bytes: Vec<u8>,
    /// Completed writes that no fsync has covered: for each, the moment of its completion, its offset, and the bytes
    /// that it replaced.
    unsynced: Vec<(u64, usize, Vec<u8>)>,
}

impl SimDrive {
    pub fn new(len: u64) -> Self {
        Self { bytes: vec![0; len as usize], unsynced: Vec::new() }
    }

    /// Applies a write that completed at `moment`.
    pub fn write(&mut self, moment: u64, at: usize, data: &[u8]) {
        let place = &mut self.bytes[at..at + data.len()];
        self.unsynced.push((moment, at, place.to_vec()));
        place.copy_from_slice(data);
    }

    /// Makes durable the writes that completed before `moment`.
    pub fn fsync(&mut self, moment: u64) {
        self.unsynced.retain(|(completed, ..)| *completed >= moment);
    }

    /// Applies a random part of a write that was in flight at a crash.
    pub fn tear(&mut self, at: usize, data: &[u8], random: &mut SimRandom) {
        for (number, atom) in data.chunks(ATOMIC_WRITE_BYTES).enumerate() {
            if random.below(2) == 0 {
                let start = at + number * ATOMIC_WRITE_BYTES;
                self.bytes[start..start + atom.len()].copy_from_slice(atom);
            }
        }
    }

    /// Undoes some of the completed writes that were not fsynced. For each sector, undoes its writes from the last one
    /// backwards: up to a random one, which is kept, or all of them.
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
    fn a_crash_undoes_only_unsynced_writes_in_reverse_order() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..64 {
            let mut drive = SimDrive::new(8192);
            drive.write(1, 0, &[1; 4096]);
            drive.fsync(2);
            drive.write(3, 0, &[2; 4096]);
            drive.write(4, 0, &[3; 4096]);
            drive.crash(&mut SimRandom::new(seed));
            outcomes.insert(drive.bytes[0]);
            assert_eq!(drive.bytes[4096..], [0; 4096]);
        }
        assert_eq!(outcomes, BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn an_fsync_does_not_cover_writes_that_completed_after_it_began() {
        let mut drive = SimDrive::new(4096);
        drive.write(5, 0, &[1; 4096]);
        drive.fsync(5);
        assert_eq!(drive.unsynced.len(), 1);
    }
}
