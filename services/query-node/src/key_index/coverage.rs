//! The runs that cover one version of a table, and look-ups in them.

#[cfg(test)]
mod deletion_tests;

use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use address::RowAddr;
use arc_swap::{ArcSwap, Guard};
use arrow_array::{Array, ArrayRef};
use key_index::{DataFile, Found, KeyHasher, PagedRun, Pages, Run, RunSet};
use key_runs::{data_files, each_hash};
use lake::Table;

use crate::call_rules::{BATCH_ROWS_MAX, KEY_ROWS_MAX};
use crate::error::{QueryError, Result};

/// The maximum number of candidates of one key, unless all are wanted. If more rows may have a key, its candidates are
/// those with the lowest addresses.
const CANDIDATES_A_KEY_MAX: u32 = 16;

/// The number of keys that are looked up together if all rows are wanted. Between these parts, a look-up ends if there
/// are too many rows. So the rows of a part, at most 160,016, are the most that it collects in excess.
const ALL_ROWS_PART_KEYS: usize = 16;

/// The rows of a key that a look-up wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedRows {
    /// The rows with the lowest addresses, at most [`CANDIDATES_A_KEY_MAX`].
    Lowest,
    /// All rows. If a key has more than [`KEY_ROWS_MAX`], or all keys together have more than [`BATCH_ROWS_MAX`], some
    /// of them are left out, but more than the maximum are returned.
    All,
}

/// The data files of one version that have its key column, and the runs that cover them.
#[derive(Debug)]
pub struct VersionFiles {
    table: Table,
    files: Vec<DataFile>,
    /// Read by all cores with each look-up, and replaced when the runs have changed.
    coverage: ArcSwap<Coverage>,
    /// Whether a `TableRuns` keeps `coverage` up to date.
    is_followed: AtomicBool,
}

/// The runs of a version, and the fragments that they do not cover.
#[derive(Debug)]
pub struct Coverage {
    pub set: RunSet,
    /// The hasher of the runs, which all have one seed; `None` without a run.
    hasher: Option<KeyHasher>,
    /// The fragments that no run covers, ascending.
    pub uncovered: Arc<[u32]>,
}

/// The rows that may have some keys.
#[derive(Debug, Default)]
pub struct Candidates {
    /// The rows of all keys, key after key, by ascending address. None of them is deleted.
    pub rows: Vec<RowAddr>,
    /// For each key, the index in `rows` at which its rows end.
    pub ends: Vec<u32>,
    /// The positions, ascending, of the keys for which `rows` may lack rows of covered fragments. Keys that could not
    /// be looked up are among them, without candidates. If all rows are wanted, no other keys are.
    pub cut: Vec<u32>,
    /// The fragments that no run covers, ascending. Their rows may have the keys too.
    pub uncovered: Arc<[u32]>,
}

impl VersionFiles {
    /// Lists the files of a version that have `column`. No run covers them yet.
    pub fn new(table: &Table, column: &str) -> Self {
        let files = data_files(table, column).expect("the table has its key column");
        let coverage = ArcSwap::from_pointee(Coverage::new(Vec::new(), Vec::new(), &files));
        Self { table: table.clone(), files, coverage, is_followed: AtomicBool::new(false) }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    pub fn coverage(&self) -> Guard<Arc<Coverage>> {
        self.coverage.load()
    }

    /// Returns whether the runs cover all files.
    pub fn is_covered(&self) -> bool {
        self.coverage().uncovered.is_empty()
    }

    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// Notes that the coverage is kept up to date from now on. Returns whether it was before.
    pub fn set_followed(&self) -> bool {
        self.is_followed.swap(true, Ordering::Relaxed)
    }

    /// Makes look-ups use the runs that cover the most: some of `runs`, and some of `paged`. All have the same seed and
    /// type of keys.
    pub fn cover(&self, runs: Vec<Arc<Run>>, paged: Vec<Arc<PagedRun>>) {
        self.coverage.store(Arc::new(Coverage::new(runs, paged, &self.files)));
    }

    /// Returns the coverage in a form that a look-up may keep while it waits.
    pub fn coverage_to_keep(&self) -> Arc<Coverage> {
        self.coverage.load_full()
    }

    /// Returns the rows that may have these keys. All runs must be in memory. Waits only if the deletions of a fragment
    /// with candidates have not been loaded yet.
    ///
    /// # Errors
    /// Errors of the store. Keys of another type than the column's are an error too, and a defect.
    pub async fn candidates_in_memory(
        &self,
        keys: &ArrayRef,
        wanted: WantedRows,
    ) -> Result<Candidates> {
        let look_up = |unloaded: &mut Vec<u32>| {
            let coverage = self.coverage();
            // Runs may be replaced by others with another seed, so keys are hashed for the runs that are searched.
            let hashes = coverage.hashes(keys)?;
            Ok(self.loaded_candidates(&coverage, &hashes, &Pages::default(), wanted, unloaded))
        };
        self.with_deletions(look_up).await
    }

    /// Returns the rows that may have keys with these hashes. `pages` has the pages that the look-up needs, except
    /// those that could not be read. Waits like [`candidates_in_memory`](Self::candidates_in_memory).
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn candidates_in(
        &self,
        coverage: &Coverage,
        hashes: &[u64],
        pages: &Pages,
        wanted: WantedRows,
    ) -> Result<Candidates> {
        let look_up = |unloaded: &mut Vec<u32>| {
            Ok(self.loaded_candidates(coverage, hashes, pages, wanted, unloaded))
        };
        self.with_deletions(look_up).await
    }

    /// Looks up again and again, until the deletions of all fragments with candidates are loaded. `look_up` returns the
    /// candidates, and adds the fragments whose deletions are not loaded to its argument.
    async fn with_deletions(
        &self,
        look_up: impl Fn(&mut Vec<u32>) -> Result<Candidates>,
    ) -> Result<Candidates> {
        loop {
            let mut unloaded = Vec::new();
            let candidates = look_up(&mut unloaded)?;
            if unloaded.is_empty() {
                return Ok(candidates);
            }
            self.table.deleted_of(unloaded.into_iter()).await?;
        }
    }

    /// Returns the candidates. Puts fragments whose deletions are not known into `unloaded`; their rows are taken for
    /// live.
    fn loaded_candidates(
        &self,
        coverage: &Coverage,
        hashes: &[u64],
        pages: &Pages,
        wanted: WantedRows,
        unloaded: &mut Vec<u32>,
    ) -> Candidates {
        let unloaded = RefCell::new(unloaded);
        let is_live = |addr: RowAddr| match self.table.is_missing(addr) {
            Some(is_missing) => !is_missing,
            None => {
                unloaded.borrow_mut().push(addr.fragment());
                true
            }
        };
        coverage.candidates(hashes, pages, wanted, is_live)
    }
}

impl Coverage {
    fn new(runs: Vec<Arc<Run>>, paged: Vec<Arc<PagedRun>>, files: &[DataFile]) -> Self {
        let set = RunSet::new(runs, paged, files).expect("the runs are alike");
        let mut uncovered: Vec<u32> = set.uncovered().iter().map(|file| file.fragment).collect();
        uncovered.sort_unstable();
        let of_runs = set.runs().next().map(|run| run.hasher());
        let hasher = of_runs.or_else(|| set.paged().next().map(|run| run.hasher()));
        Self { set, hasher, uncovered: uncovered.into() }
    }

    /// Returns the rows that may have keys with these hashes. Rows for which `is_live` is false are left out. `pages` has
    /// the pages that the look-up needs, except those that could not be read.
    fn candidates(
        &self,
        hashes: &[u64],
        pages: &Pages,
        wanted: WantedRows,
        is_live: impl Fn(RowAddr) -> bool,
    ) -> Candidates {
        let (key_max, part_keys) = match wanted {
            WantedRows::Lowest => (CANDIDATES_A_KEY_MAX, hashes.len().max(1)),
            // One more than the maximum shows that there are too many.
            WantedRows::All => (KEY_ROWS_MAX as u32 + 1, ALL_ROWS_PART_KEYS),
        };
        let mut found = Found::default();
        // The range in `candidates.rows` of the lowest rows with a hash. A key may occur many times in one look-up, and
        // finding its lowest rows takes a step for each of its rows.
        let mut lowest_of = HashMap::<u64, Range<usize>>::new();
        let mut candidates =
            Candidates { uncovered: Arc::clone(&self.uncovered), ..Default::default() };
        candidates.ends.reserve(hashes.len());
        for part in hashes.chunks(part_keys) {
            if wanted == WantedRows::All && candidates.rows.len() > BATCH_ROWS_MAX {
                break;
            }
            self.set.lookup(part, pages, key_max, &is_live, &mut found);
            candidates.rows.reserve(found.rows().len());
            let first = candidates.ends.len() as u32;
            for (key, hash) in part.iter().enumerate() {
                let start = candidates.rows.len();
                if found.is_unread(key) {
                    // Any row may have the key.
                    candidates.cut.push(first + key as u32);
                } else if found.has_more(key) && wanted == WantedRows::Lowest {
                    candidates.cut.push(first + key as u32);
                    match lowest_of.get(hash) {
                        Some(rows) => candidates.rows.extend_from_within(rows.clone()),
                        None => {
                            candidates.rows.extend(lowest(&self.set, *hash, pages, &is_live));
                            lowest_of.insert(*hash, start..candidates.rows.len());
                        }
                    }
                } else {
                    candidates.rows.extend_from_slice(found.rows_of(key));
                }
                candidates.rows[start..].sort_unstable();
                candidates.ends.push(candidates.rows.len() as u32);
            }
        }
        // Keys that were not looked up have no rows.
        candidates.ends.resize(hashes.len(), candidates.rows.len() as u32);
        candidates
    }

    /// Returns the hashes of keys. A null key gets the hash 0 and may have candidates, but no row turns out to have it.
    /// Without a run, all hashes are 0.
    pub fn hashes(&self, keys: &ArrayRef) -> Result<Vec<u64>> {
        let Some(hasher) = &self.hasher else { return Ok(vec![0; keys.len()]) };
        let mut hashes = Vec::with_capacity(keys.len());
        each_hash(hasher, keys, |hash| hashes.push(hash.unwrap_or_default()))
            .map_err(|error| QueryError::Server(error.to_string()))?;
        Ok(hashes)
    }
}

/// Returns the [`CANDIDATES_A_KEY_MAX`] live candidates of a key with the lowest addresses.
fn lowest(
    set: &RunSet,
    hash: u64,
    pages: &Pages,
    is_live: impl Fn(RowAddr) -> bool,
) -> Vec<RowAddr> {
    let lowest = RefCell::new(BinaryHeap::new());
    let collect = |addr: RowAddr| {
        let mut lowest = lowest.borrow_mut();
        let is_full = lowest.len() == CANDIDATES_A_KEY_MAX as usize;
        if (!is_full || lowest.peek().is_some_and(|most| addr < *most)) && is_live(addr) {
            lowest.push(addr);
            if is_full {
                lowest.pop();
            }
        }
        // No row counts as live, so the limit is not reached and every candidate is seen.
        false
    };
    let mut found = Found::default();
    set.lookup(&[hash], pages, 0, collect, &mut found);
    match found.is_unread(0) {
        true => Vec::new(),
        false => lowest.into_inner().into_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use key_index::{KeyHashes, KeyType};

    use super::*;

    /// The hash of the first 100 rows of [`coverage`].
    const FREQUENT: u64 = 1 << 63;

    /// The hash of the last row of [`coverage`].
    const RARE: u64 = 1 << 60;

    fn coverage() -> Coverage {
        let mut hashes = KeyHashes::with_capacity(101);
        (0..100).for_each(|_| hashes.push(Some(FREQUENT)));
        hashes.push(Some(RARE));
        let files = vec![DataFile { path: "file".into(), fragment: 0, rows: 101 }];
        let run = Run::build(7, KeyType::Integer, files.clone(), &hashes).unwrap();
        Coverage::new(vec![Arc::new(run)], Vec::new(), &files)
    }

    #[test]
    fn the_lowest_rows_of_a_key_are_searched_once_however_often_it_occurs() {
        let coverage = coverage();
        let look_up = |hashes: &[u64]| {
            let seen = Cell::new(0);
            let is_live = |_: RowAddr| {
                seen.set(seen.get() + 1);
                true
            };
            let found = coverage.candidates(hashes, &Pages::default(), WantedRows::Lowest, is_live);
            (found, seen.get())
        };
        let (once, seen_once) = look_up(&[FREQUENT]);
        let lowest = (0..CANDIDATES_A_KEY_MAX).map(|offset| RowAddr::new(0, offset));
        let lowest: Vec<RowAddr> = lowest.collect();
        assert_eq!((once.rows, once.ends, once.cut), (lowest.clone(), vec![16], vec![0]));

        let (found, seen) = look_up(&[FREQUENT, RARE, FREQUENT, FREQUENT]);
        let rare = vec![RowAddr::new(0, 100)];
        let rows = [lowest.clone(), rare, lowest.clone(), lowest].concat();
        assert_eq!((found.rows, found.ends), (rows, vec![16, 17, 33, 49]));
        assert_eq!(found.cut, [0, 2, 3]);
        // The rare key's row, and for each further occurrence of the frequent key one row more than the maximum.
        assert_eq!(seen, seen_once + 1 + 2 * (CANDIDATES_A_KEY_MAX + 1));
    }
}
