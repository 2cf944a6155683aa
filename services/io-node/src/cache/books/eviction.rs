//! The eviction policy: which extents of a reclaimed segment are kept. S3-FIFO (Yang and others, SOSP 2023) over
//! segments.
//!
//! ```text
//! a fill ─► small log ─┬─ read since ─► main log ─┬─ read since ─► main log again
//!                      └─ not: evicted, its name a ghost └─ not: evicted
//! a fill of a ghost ─► main log
//! ```
//!
//! Most chunks, above all those of a scan or a warm, are not read again soon after they were filled. They pass through
//! the small log, while hot extents stay in the main log. Keeping an extent means writing it once more, so hot extents
//! are kept only up to a share of the bytes filled, the hottest first. Extents that a table's guarantee needs are kept
//! in any case. Pure; `simulate.rs` compares the policy with others.

use address::ExtentKey;

use super::arrivals::Arrivals;
use crate::extent::ByKey;

/// One of a drive's three logs. Each extent is in one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Log {
    /// New extents. On a full drive, this log has a tenth of the segments that are not in the held log.
    #[default]
    Small = 0,
    /// Extents that were read again, or were evicted and then filled again.
    Main = 1,
    /// Extents that count towards a table's guarantee ([`super::shares`]). A segment of this log is reclaimed only for
    /// the space in it that is not held.
    Held = 2,
}

/// The number of logs on a drive.
pub const LOGS: usize = 3;

impl Log {
    /// All logs.
    pub const ALL: [Self; LOGS] = [Self::Small, Self::Main, Self::Held];

    /// Returns the log with this number in a journal, or the small log if the number is unknown.
    pub fn of_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|&log| log as u32 == number).unwrap_or_default()
    }
}

/// The maximum of the allowance for rewriting hot extents, in segments. It bounds the burst of rewriting that may
/// follow a long time without hot extents.
pub const SEGMENTS_SAVED: u64 = 4;

/// The number of sectors that may be rewritten to keep hot extents, per 100 sectors filled. At 25, at most 1.25 bytes
/// are written for each byte filled, apart from extents that are kept for guarantees, and each trace of
/// `bireme bench eviction` has a better hit ratio than LRU of single extents
/// (`docs/decisions/s3-fifo-over-segments.md`).
const KEPT_PERCENT: u64 = 25;

/// Unless a guarantee needs it, an extent is kept only if at least this many batches, over all cores, have read it
/// since it was placed. `Directory::extent_counting_reader` counts them, whether the rows are in RAM or not. The batch
/// whose miss filled the extent does not count, because it was answered from the table. So a missed chunk is kept after
/// two reads, and a warmed chunk after one.
const KEPT_HEAT_MIN: u32 = 1;

/// Up to this many ghosts are remembered, or up to the number of extents on the drives, if that is larger. The names of
/// 1,024 ghosts take about 100 KB.
const GHOSTS_MIN: usize = 1024;

/// An extent of a segment that is to be reclaimed.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The extent's name.
    pub key: ExtentKey,
    /// The extent's length, in sectors.
    pub sectors: u64,
    /// Batches that have read it since it was placed, up to [`HEAT_MAX`](crate::extent::HEAT_MAX) per core.
    pub heat: u32,
    /// Whether it must be kept for its table's guarantee ([`super::shares::Shares::mark_due`]).
    pub is_due: bool,
}

/// The policy: the ghosts, and the allowance for rewriting.
#[derive(Debug, Default)]
pub struct Eviction {
    ghosts: Ghosts,
    /// The allowance for rewriting, in hundredths of sectors.
    allowance: u64,
    allowance_max: u64,
}

impl Eviction {
    /// Creates a policy whose allowance is `burst_sectors` at first, and never more.
    pub fn new(burst_sectors: u64) -> Self {
        let allowance_max = burst_sectors * 100;
        Self { ghosts: Ghosts::default(), allowance: allowance_max, allowance_max }
    }

    /// The log into which a chunk is to be filled.
    pub fn log_for(&self, key: ExtentKey) -> Log {
        if self.ghosts.names.contains_key(&key) { Log::Main } else { Log::Small }
    }

    /// Records that an extent was filled: adds to the allowance, and removes the extent's name from the ghosts.
    pub fn filled(&mut self, key: ExtentKey, sectors: u64) {
        self.ghosts.names.remove(&key);
        self.allowance = (self.allowance + sectors * KEPT_PERCENT).min(self.allowance_max);
    }

    /// Gives back the allowance of an extent that was to be kept but could not be.
    pub fn refund(&mut self, sectors: u64) {
        self.allowance = (self.allowance + sectors * 100).min(self.allowance_max);
    }

    /// Chooses which of a segment's extents to keep, as indexes: first the due ones, then the hottest as far as the
    /// allowance goes. The others become ghosts if they were in the small log. `extents` is the number of extents on
    /// the drives, and the maximum number of ghosts to remember, unless `GHOSTS_MIN` is larger.
    pub fn keep(&mut self, log: Log, candidates: &[Candidate], extents: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse((candidates[at].is_due, candidates[at].heat)));
        let mut kept = Vec::new();
        for at in order {
            let Candidate { key, sectors, heat, is_due } = candidates[at];
            if is_due {
                kept.push(at);
            } else if heat >= KEPT_HEAT_MIN && sectors * 100 <= self.allowance {
                self.allowance -= sectors * 100;
                kept.push(at);
            } else if log == Log::Small {
                self.ghosts.add(key, extents);
            }
        }
        kept
    }
}

/// Names of extents that were recently evicted from the small log.
#[derive(Debug, Default)]
struct Ghosts {
    /// For each name, the serial number of its entry in `order`.
    names: ByKey<u64>,
    /// The names, oldest first. Entries that are not in `names` are stale: their extents were filled again.
    order: Arrivals,
}

impl Ghosts {
    fn add(&mut self, key: ExtentKey, extents: usize) {
        if self.names.contains_key(&key) {
            return;
        }
        self.names.insert(key, self.order.add(key));
        while self.names.len() > extents.max(GHOSTS_MIN)
            && let Some(oldest) = self.order.first(|key, serial| is_ghost(&self.names, key, serial))
        {
            self.names.remove(&oldest);
        }
        let names = &self.names;
        self.order.compact(names.len(), GHOSTS_MIN, |key, serial| is_ghost(names, key, serial));
    }
}

fn is_ghost(names: &ByKey<u64>, key: &ExtentKey, serial: u64) -> bool {
    names.get(key) == Some(&serial)
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
    fn due_extents_are_kept_first_and_cost_no_allowance() {
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
        // An allowance of 5 sectors is left, and filling 20 sectors adds 5.
        assert!(eviction.keep(Log::Main, &candidates(&[1]), 0).is_empty());
        eviction.filled(key(0), 20);
        assert_eq!(eviction.log_for(key(0)), Log::Small);
        assert_eq!(eviction.keep(Log::Main, &candidates(&[1]), 0), [0]);
        // An extent that leaves the main log was hot once, and does not become a ghost.
        eviction.keep(Log::Main, &candidates(&[0]), 0);
        assert_eq!(eviction.log_for(key(0)), Log::Small);
    }

    #[test]
    fn ghosts_are_as_many_as_extents() {
        let mut eviction = Eviction::new(0);
        let count = 2 * GHOSTS_MIN;
        let cold = candidates(&vec![0; count]);
        assert!(eviction.keep(Log::Small, &cold, GHOSTS_MIN).is_empty());
        let is_ghost = |at: &usize| eviction.log_for(cold[*at].key) == Log::Main;
        let ghosts: Vec<_> = (0..count).filter(is_ghost).collect();
        assert_eq!(ghosts, (GHOSTS_MIN..count).collect::<Vec<_>>());
    }

    #[test]
    fn extents_that_were_filled_again_take_no_place_of_ghosts() {
        let mut eviction = Eviction::new(0);
        let cold = candidates(&vec![0; 2 * GHOSTS_MIN]);
        eviction.keep(Log::Small, &cold[..GHOSTS_MIN], 0);
        // The first one is filled and evicted again and again, and is the youngest ghost in the end.
        for _ in 0..10 * GHOSTS_MIN {
            eviction.filled(cold[0].key, 10);
            eviction.keep(Log::Small, &cold[..1], 0);
            assert!(eviction.ghosts.order.len() <= 3 * GHOSTS_MIN);
        }
        assert_eq!(eviction.ghosts.names.len(), GHOSTS_MIN);
        eviction.keep(Log::Small, &cold[GHOSTS_MIN..2 * GHOSTS_MIN - 1], 0);
        let ghosts = cold.iter().filter(|it| eviction.log_for(it.key) == Log::Main);
        let ghosts: Vec<_> = ghosts.map(|it| it.key.chunk as usize).collect();
        let expected: Vec<_> = [0].into_iter().chain(GHOSTS_MIN..2 * GHOSTS_MIN - 1).collect();
        assert_eq!(ghosts, expected);
    }
}
