//! Decides which runs to merge, and which ones are needed.
//!
//! Each new data file gets a run of its own (small files get one run together), and a look-up probes every run. So runs
//! are merged until at most [`RUNS_MAX`] are left: the smallest ones, and a larger one only if the merged run would
//! otherwise have more than a quarter of the larger one's rows. Runs of about equal size would be worse: each append
//! would have to be merged with one of them. Over 1,000 equal appends, each row is merged 8 times on average, over
//! 10,000 appends 18 times (with a half in place of a quarter 9 and 40 times, with an eighth 13 and 19 times).

use std::collections::HashSet;

use crate::files::DataFile;
use crate::geometry::Geometry;
use crate::run::Run;
use crate::spill::Spilled;

/// The maximum number of runs in memory that a look-up probes, and likewise of paged runs. Each run costs a look-up one
/// more cache line, or one more read if it is paged. With fewer runs, rows would be merged more often.
pub const RUNS_MAX: usize = 4;

/// The minimum size of the next larger run, as a multiple of a merged run's size. The head of this file has the figures
/// for a half and an eighth.
const SIZE_RATIO: u64 = 4;

/// The number of bits that must distinguish the keys of a bucket: with 10, one look-up in 55 to 110 gets a
/// candidate that is not its row. With fewer, a merge needs the key column.
const TAG_BITS_MIN: u32 = 10;

/// The facts about a run that decide whether it is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFacts {
    /// The number of rows of those files of the run that are in some version in use.
    pub live_rows: u64,
    /// The number of rows of the run's other files, which are in no version in use any more.
    pub dead_rows: u64,
    /// The number of bits of each hash that the run keeps.
    pub hash_bits: u32,
    /// About the number of entries of live rows that have no room in their pages; 0 if it is not known.
    pub spilled: u64,
}

impl RunFacts {
    /// Returns the facts about `run`, if versions in use have the files of `live`.
    pub fn of(run: &Run, live: &HashSet<DataFile>) -> Self {
        let facts = Self::of_files(run.files(), run.hash_bits(), live);
        let rows = (facts.live_rows + facts.dead_rows).max(1);
        Self { spilled: run.spilled_entries() as u64 * facts.live_rows / rows, ..facts }
    }

    /// Returns the facts about a run of `files` that keeps `hash_bits` bits of each hash. Its spilled entries are not known.
    pub fn of_files(files: &[DataFile], hash_bits: u32, live: &HashSet<DataFile>) -> Self {
        let rows = |file: &DataFile| u64::from(file.rows);
        let all: u64 = files.iter().map(rows).sum();
        let live_rows = files.iter().filter(|file| live.contains(*file)).map(rows).sum();
        Self { live_rows, dead_rows: all - live_rows, hash_bits, spilled: 0 }
    }
}

/// A merge to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The indexes of the runs to replace by one new run. A single run is written again without its dead rows.
    pub runs: Vec<usize>,
    /// Whether to build the new run from the key column, because the runs keep too few bits of the hashes.
    pub needs_keys: bool,
    /// The memory that the new run takes if as many entries spill as before, and building it if that is needed, in
    /// bytes, without the list of files.
    pub bytes: u64,
}

/// Removes the files of a run from `missing`, and returns whether this removed any. Called for one run after the other,
/// largest first, this function says which runs are needed: those with a missing file that no larger run covers.
pub fn covers_some(files: &[DataFile], missing: &mut HashSet<&DataFile>) -> bool {
    let before = missing.len();
    for file in files {
        missing.remove(file);
    }
    missing.len() < before
}

/// Returns the next merge that `runs` need and that takes at most `bytes_max`, or `None` if there is none. Runs without
/// live rows should be deleted before the call.
pub fn next_merge(runs: &[RunFacts], bytes_max: u64) -> Option<Merge> {
    let mut by_size: Vec<usize> = (0..runs.len()).collect();
    by_size.sort_by_key(|&index| std::cmp::Reverse(runs[index].live_rows));
    let merge = |start: usize| Merge::of(runs, &by_size[start..], bytes_max);
    if runs.len() > RUNS_MAX {
        let is_worth_it = |&start: &usize| is_much_smaller(runs, &by_size, start);
        let chosen = (0..RUNS_MAX).rev().filter(is_worth_it).find_map(merge);
        // Such a merge may take too much memory, or have 2^32 rows or more. Then merge as many of the smallest runs as
        // possible.
        return chosen.or_else(|| (0..runs.len() - 1).find_map(merge));
    }
    let is_mostly_dead = |index: &usize| runs[*index].dead_rows > runs[*index].live_rows;
    by_size
        .iter()
        .copied()
        .filter(is_mostly_dead)
        .find_map(|index| Merge::of(runs, &[index], bytes_max))
}

/// Returns whether each run before `by_size[start]` has at least [`SIZE_RATIO`] times as many rows as the others
/// together.
fn is_much_smaller(runs: &[RunFacts], by_size: &[usize], start: usize) -> bool {
    let merged = live_rows(runs, &by_size[start..]);
    start == 0 || runs[by_size[start - 1]].live_rows / SIZE_RATIO >= merged
}

fn live_rows(runs: &[RunFacts], chosen: &[usize]) -> u64 {
    chosen.iter().map(|&index| runs[index].live_rows).sum()
}

impl Merge {
    /// Returns the merge of the `chosen` runs; `None` if it takes more than `bytes_max` or has too many rows for a run.
    fn of(runs: &[RunFacts], chosen: &[usize], bytes_max: u64) -> Option<Self> {
        let rows = live_rows(runs, chosen);
        if rows > u64::from(u32::MAX) {
            return None;
        }
        let hash_bits = chosen.iter().map(|&index| runs[index].hash_bits).min().unwrap_or(0);
        let merged = Geometry::for_keys(rows, hash_bits);
        let needs_keys = merged.effective_tag_bits() < TAG_BITS_MIN;
        let spilled: u64 = chosen.iter().map(|&index| runs[index].spilled).sum();
        let unspilled_bytes = match needs_keys {
            true => Run::build_bytes_of(rows),
            false => Run::ram_bytes_of(rows),
        };
        let bytes = unspilled_bytes + spilled * size_of::<Spilled>() as u64;
        (bytes <= bytes_max).then(|| Self { runs: chosen.to_vec(), needs_keys, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(live_rows: u64) -> RunFacts {
        RunFacts { live_rows, dead_rows: 0, hash_bits: 37, spilled: 0 }
    }

    /// Merges until nothing is left to merge; returns the rows that were written.
    fn settle(runs: &mut Vec<RunFacts>) -> u64 {
        let mut written = 0;
        while let Some(merge) = next_merge(runs, u64::MAX) {
            assert!(!merge.needs_keys && merge.runs.len() > 1);
            let rows = live_rows(runs, &merge.runs);
            let mut index = 0;
            runs.retain(|_| {
                index += 1;
                !merge.runs.contains(&(index - 1))
            });
            runs.push(facts(rows));
            written += rows;
        }
        written
    }

    #[test]
    fn appends_rewrite_few_rows_and_leave_at_most_four_runs() {
        let (mut runs, mut written) = (Vec::new(), 0);
        for append in 1..=10_000 {
            runs.push(facts(1_000));
            written += settle(&mut runs);
            assert!(runs.len() <= RUNS_MAX);
            if append == 1_000 {
                assert_eq!(written / 1_000_000, 8);
            }
        }
        assert_eq!(live_rows(&runs, &(0..runs.len()).collect::<Vec<_>>()), 10_000_000);
        assert_eq!(written / 10_000_000, 18);
    }

    #[test]
    fn small_appends_leave_a_large_run_alone() {
        let mut runs = vec![facts(100_000_000)];
        for _ in 0..1_000 {
            runs.push(facts(10_000));
            settle(&mut runs);
            assert!(runs.len() <= RUNS_MAX && runs.contains(&facts(100_000_000)));
        }
    }

    #[test]
    fn many_files_at_once_are_merged_at_once() {
        let runs = vec![facts(1_000_000); 100];
        let merge = next_merge(&runs, u64::MAX).unwrap();
        assert_eq!((merge.runs.len(), merge.needs_keys), (100, false));
        assert_eq!(next_merge(&runs[..4], u64::MAX), None);
        assert_eq!(next_merge(&[], u64::MAX), None);
    }

    #[test]
    fn runs_that_keep_too_few_bits_are_built_again() {
        let mut runs = vec![facts(100_000_000); 5];
        assert_eq!(
            next_merge(&runs, u64::MAX).unwrap(),
            Merge {
                runs: vec![0, 1, 2, 3, 4],
                needs_keys: false,
                bytes: Run::ram_bytes_of(500_000_000)
            }
        );
        runs[3].hash_bits = 34;
        assert!(next_merge(&runs, u64::MAX).unwrap().needs_keys);
    }

    #[test]
    fn dead_rows_are_dropped_once_they_are_the_most() {
        let mut runs = vec![facts(10), facts(5)];
        runs[1].dead_rows = 5;
        assert_eq!(next_merge(&runs, u64::MAX), None);
        runs[1].dead_rows = 6;
        assert_eq!(next_merge(&runs, u64::MAX).unwrap().runs, [1]);
    }

    #[test]
    fn no_merge_has_more_rows_than_a_run_can_have() {
        let mut runs = vec![facts(3_000_000_000); 5];
        runs.extend([facts(1_000_000_000); 2]);
        assert_eq!(next_merge(&runs, u64::MAX).unwrap().runs, [4, 5, 6][1..]);
        assert_eq!(next_merge(&runs[..5], u64::MAX), None);
    }

    #[test]
    fn a_merge_that_does_not_fit_is_replaced_by_a_smaller_one() {
        let mut runs = vec![facts(5_000_000); 4];
        runs.push(facts(1_000));
        let all = Run::ram_bytes_of(20_001_000);
        assert_eq!(next_merge(&runs, all).unwrap().runs, [0, 1, 2, 3, 4]);
        let merge = next_merge(&runs, all - 1).unwrap();
        assert_eq!((merge.runs, merge.bytes), (vec![1, 2, 3, 4], Run::ram_bytes_of(15_001_000)));
        assert_eq!(next_merge(&runs, Run::ram_bytes_of(5_001_000)).unwrap().runs, [3, 4]);
        assert_eq!(next_merge(&runs, Run::ram_bytes_of(5_001_000) - 1), None);

        // Building takes more memory than merging.
        runs[4].hash_bits = 20;
        assert_eq!(next_merge(&runs, all), None);
        let build = Run::build_bytes_of(20_001_000);
        assert_eq!(next_merge(&runs, build).unwrap().bytes, build);
    }

    #[test]
    fn spilled_entries_take_memory_too() {
        let mut runs = vec![facts(1_000); 5];
        (runs[0].spilled, runs[4].spilled) = (6, 4);
        let bytes = Run::ram_bytes_of(5_000) + 120;
        assert_eq!(next_merge(&runs, bytes).unwrap().bytes, bytes);
        assert_eq!(next_merge(&runs, bytes - 1).unwrap().runs, [1, 2, 3, 4]);
    }

    #[test]
    fn dead_rows_stay_if_the_smaller_run_does_not_fit() {
        let runs = [RunFacts { dead_rows: 2_000, ..facts(1_000) }];
        let bytes = Run::ram_bytes_of(1_000);
        assert_eq!(next_merge(&runs, bytes).unwrap().runs, [0]);
        assert_eq!(next_merge(&runs, bytes - 1), None);
    }
}
