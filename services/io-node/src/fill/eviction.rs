//! What is kept of a segment that is reclaimed: S3-FIFO (Yang and others, SOSP 2023) over segments.
//!
//! ```text
//! a fill ─► small log ─┬─ read since ─► main log ─┬─ read since ─► main log again
//!                      └─ not: gone, its name a ghost └─ not: gone
//! a fill of a ghost ─► main log
//! ```
//!
//! Most chunks that are filled once are not read again before long, those of a scan or a warm above all: they
//! pass through the small log, and what is hot stays. What is kept is written once more, so that is bounded:
//! by a share of the bytes filled, the hottest first. Pure; `simulate.rs` holds it against other policies.

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use address::ExtentKey;

use crate::directory::KeyHasher;

/// Which log of a drive an extent is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Log {
    /// New ones: a tenth of the drive once it is full.
    #[default]
    Small = 0,
    /// Those that were read again.
    Main = 1,
    /// Those that a table may count on ([`super::shares`]): their segments are reclaimed only for what is there
    /// no more.
    Held = 2,
}

/// How many logs a drive has.
pub const LOGS: usize = 3;

impl Log {
    /// All of them.
    pub const ALL: [Self; LOGS] = [Self::Small, Self::Main, Self::Held];

    /// As journals have it; what is unknown is as new.
    pub fn of_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|&log| log as u32 == number).unwrap_or_default()
    }
}

/// Batches that an extent is counted to have been read by, at most.
pub const HEAT_MAX: u8 = 3;

/// Of 100 sectors filled, how many may be written once more to be kept.
const KEPT_PERCENT: u64 = 25;

/// Ghosts that are remembered at least.
const GHOSTS_MIN: usize = 1024;

/// An extent of a segment that is to be reclaimed.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its name.
    pub key: ExtentKey,
    /// Its length.
    pub sectors: u64,
    /// Batches that read it since it was placed, up to [`HEAT_MAX`] a core.
    pub heat: u32,
    /// Whether its table may count on it ([`super::shares::Shares::due`]).
    pub is_due: bool,
}

/// The policy's memory.
#[derive(Debug, Default)]
pub struct Eviction {
    ghosts: Ghosts,
    /// Chunks that were asked for, and not filled.
    touched: Ghosts,
    /// Hundredths of sectors that may be written once more.
    allowance: u64,
    allowance_max: u64,
}

impl Eviction {
    /// One that may save up for keeping `burst_sectors` at a time.
    pub fn new(burst_sectors: u64) -> Self {
        let allowance_max = burst_sectors * 100;
        let (ghosts, touched) = Default::default();
        Self { ghosts, touched, allowance: allowance_max, allowance_max }
    }

    /// Which log a chunk is to be filled into.
    pub fn log_for(&self, key: ExtentKey) -> Log {
        if self.ghosts.names.contains(&key) { Log::Main } else { Log::Small }
    }

    /// Whether a chunk was asked for before, lately; from now on it was.
    pub fn is_second_touch(&mut self, key: ExtentKey, extents: usize) -> bool {
        // What was let go was there, and so was asked for before.
        let seen = [&self.ghosts, &self.touched].iter().any(|names| names.names.contains(&key));
        self.touched.add(key, extents);
        seen
    }

    /// An extent was filled.
    pub fn filled(&mut self, key: ExtentKey, sectors: u64) {
        self.ghosts.names.remove(&key);
        self.touched.names.remove(&key);
        self.allowance = (self.allowance + sectors * KEPT_PERCENT).min(self.allowance_max);
    }

    /// An extent that was to be kept could not be.
    pub fn refund(&mut self, sectors: u64) {
        self.allowance = (self.allowance + sectors * 100).min(self.allowance_max);
    }

    /// Which of a segment's extents are to be kept, by their places: first those that are due, then the hottest,
    /// as far as the allowance goes. The others become ghosts, of which as many are remembered as there are
    /// `extents`.
    pub fn keep(&mut self, log: Log, candidates: &[Candidate], extents: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse((candidates[at].is_due, candidates[at].heat)));
        let mut kept = Vec::new();
        for at in order {
            let Candidate { key, sectors, heat, is_due } = candidates[at];
            if is_due {
                kept.push(at);
            } else if heat > 0 && sectors * 100 <= self.allowance {
                self.allowance -= sectors * 100;
                kept.push(at);
            } else if log == Log::Small {
                self.ghosts.add(key, extents);
            }
        }
        kept
    }
}

/// Names of extents that were let go lately.
#[derive(Debug, Default)]
struct Ghosts {
    names: HashSet<ExtentKey, BuildHasherDefault<KeyHasher>>,
    /// Oldest first; some perhaps filled again since.
    order: VecDeque<ExtentKey>,
}

impl Ghosts {
    fn add(&mut self, key: ExtentKey, extents: usize) {
        if self.names.insert(key) {
            self.order.push_back(key);
        }
        while self.order.len() > extents.max(GHOSTS_MIN) {
            if let Some(oldest) = self.order.pop_front() {
                self.names.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use address::PackKey;

    use super::*;

    fn key(chunk: u32) -> ExtentKey {
        ExtentKey { pack: PackKey(0), chunk }
    }

    fn candidates(heats: &[u32]) -> Vec<Candidate> {
        (0..)
            .zip(heats)
            .map(|(chunk, &heat)| Candidate { key: key(chunk), sectors: 10, heat, is_due: false })
            .collect()
    }

    #[test]
    fn what_is_due_is_kept_first_and_costs_no_allowance() {
        let mut eviction = Eviction::new(10);
        let mut candidates = candidates(&[1, 0, 3, 0]);
        candidates[1].is_due = true;
        assert_eq!(eviction.keep(Log::Small, &candidates, 0), [1, 2]);
        assert_eq!(eviction.keep(Log::Held, &candidates, 0), [1]);
        assert_eq!(Log::ALL.map(|log| Log::of_number(log as u32)), Log::ALL);
        assert_eq!(Log::of_number(77), Log::Small);
    }

    #[test]
    fn the_hottest_are_kept_as_far_as_the_allowance_goes() {
        let mut eviction = Eviction::new(25);
        assert_eq!(eviction.keep(Log::Small, &candidates(&[1, 0, 3, 2]), 0), [2, 3]);
        assert_eq!(eviction.log_for(key(0)), Log::Main);
        assert_eq!(eviction.log_for(key(2)), Log::Small);
        // 5 are left; a quarter of 20 is 5 more.
        assert!(eviction.keep(Log::Main, &candidates(&[1]), 0).is_empty());
        eviction.filled(key(0), 20);
        assert_eq!(eviction.log_for(key(0)), Log::Small);
        assert_eq!(eviction.keep(Log::Main, &candidates(&[1]), 0), [0]);
        // What goes from the main log was hot once: no ghost.
        eviction.keep(Log::Main, &candidates(&[0]), 0);
        assert_eq!(eviction.log_for(key(0)), Log::Small);
    }

    #[test]
    fn ghosts_are_as_many_as_extents() {
        let mut eviction = Eviction::new(0);
        let count = 2 * GHOSTS_MIN as u32;
        for chunk in 0..count {
            assert!(!eviction.is_second_touch(key(chunk), GHOSTS_MIN));
        }
        assert!(
            (GHOSTS_MIN as u32..count)
                .all(|chunk| eviction.is_second_touch(key(chunk), GHOSTS_MIN))
        );
        assert!(!eviction.is_second_touch(key(0), GHOSTS_MIN));
        // Touched once is not let go.
        assert_eq!(eviction.log_for(key(count - 1)), Log::Small);
    }
}
