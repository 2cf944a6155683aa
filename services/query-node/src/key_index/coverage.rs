//! The runs that cover one version of a table, and look-ups in them.

use std::cell::RefCell;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use address::RowAddr;
use arc_swap::{ArcSwap, Guard};
use key_index::{DataFile, Found, Run, RunSet};
use lake::{FragmentInfo, Table};

use crate::error::Result;

/// The maximum number of candidates of one key. A key that more rows may have gets those with the lowest addresses.
const CANDIDATES_MAX: u32 = 16;

/// The data files of one version with its key column, and the runs that cover them.
#[derive(Debug)]
pub struct VersionFiles {
    table: Table,
    files: Vec<DataFile>,
    /// Read by all cores with each look-up, and replaced when a run was built or merged.
    coverage: ArcSwap<Coverage>,
    /// Whether a `TableRuns` keeps `coverage` up to date.
    is_followed: AtomicBool,
}

/// The runs of a version, and what they leave out.
#[derive(Debug)]
pub struct Coverage {
    pub set: RunSet,
    /// The fragments that no run covers, ascending.
    pub uncovered: Arc<[u32]>,
}

/// The rows that may have some keys.
#[derive(Debug, Default)]
pub struct Candidates {
    /// The rows of all keys, key after key, by ascending address. None of them is deleted.
    pub rows: Vec<RowAddr>,
    /// For each key, the end of its rows.
    pub ends: Vec<u32>,
    /// The positions of the keys that further rows may have, ascending.
    pub cut: Vec<u32>,
    /// The fragments, ascending, whose rows are in no run: they may have the keys too.
    pub uncovered: Arc<[u32]>,
}

impl VersionFiles {
    /// Lists the files of a version that have `column`. No run covers them yet.
    pub fn new(table: &Table, column: &str) -> Self {
        let file = |info: &FragmentInfo| DataFile {
            // The column and the fragment are the table's own, so the identity is known.
            path: table.file_identity(info.id, column).unwrap_or_default(),
            fragment: info.id,
            rows: info.physical_rows,
        };
        let files: Vec<DataFile> = table.fragments().iter().map(file).collect();
        let coverage = ArcSwap::from_pointee(Coverage::new(Vec::new(), &files));
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

    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// Notes that the coverage is kept up to date from now on. Returns whether it was before.
    pub fn set_followed(&self) -> bool {
        self.is_followed.swap(true, Ordering::Relaxed)
    }

    /// Makes look-ups use those of `runs` that cover the most. All have the same seed and type of keys.
    pub fn cover(&self, runs: Vec<Arc<Run>>) {
        self.coverage.store(Arc::new(Coverage::new(runs, &self.files)));
    }

    /// Returns the rows that may have the keys with these hashes. Waits only for deletions of fragments with candidates
    /// that have not been loaded yet.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn candidates(&self, hashes: &[u64]) -> Result<Candidates> {
        loop {
            let mut unloaded = Vec::new();
            let candidates = self.loaded_candidates(hashes, &mut unloaded);
            if unloaded.is_empty() {
                return Ok(candidates);
            }
            unloaded.sort_unstable();
            unloaded.dedup();
            for fragment in unloaded {
                self.table.deleted(fragment).await?;
            }
        }
    }

    /// Returns the candidates. Puts fragments whose deletions are not known into `unloaded`; their rows are taken for
    /// live.
    fn loaded_candidates(&self, hashes: &[u64], unloaded: &mut Vec<u32>) -> Candidates {
        let coverage = self.coverage();
        let unloaded = RefCell::new(unloaded);
        let is_live = |addr: RowAddr| match self.table.is_missing(addr) {
            Some(is_missing) => !is_missing,
            None => {
                unloaded.borrow_mut().push(addr.fragment());
                true
            }
        };
        let mut found = Found::default();
        coverage.set.lookup(hashes, CANDIDATES_MAX, is_live, &mut found);
        let mut candidates =
            Candidates { uncovered: Arc::clone(&coverage.uncovered), ..Default::default() };
        candidates.rows.reserve(found.rows().len());
        candidates.ends.reserve(hashes.len());
        for (key, hash) in hashes.iter().enumerate() {
            let start = candidates.rows.len();
            if found.has_more(key) {
                candidates.cut.push(key as u32);
                candidates.rows.extend(lowest(&coverage.set, *hash, is_live));
            } else {
                candidates.rows.extend_from_slice(found.rows_of(key));
            }
            candidates.rows[start..].sort_unstable();
            candidates.ends.push(candidates.rows.len() as u32);
        }
        candidates
    }
}

impl Coverage {
    fn new(runs: Vec<Arc<Run>>, files: &[DataFile]) -> Self {
        let set = RunSet::new(runs, files).expect("the runs are alike");
        let mut uncovered: Vec<u32> = set.uncovered().iter().map(|file| file.fragment).collect();
        uncovered.sort_unstable();
        Self { set, uncovered: uncovered.into() }
    }
}

/// Returns the [`CANDIDATES_MAX`] live candidates of a key with the lowest addresses.
fn lowest(set: &RunSet, hash: u64, is_live: impl Fn(RowAddr) -> bool) -> Vec<RowAddr> {
    let lowest = RefCell::new(BinaryHeap::new());
    let collect = |addr: RowAddr| {
        let mut lowest = lowest.borrow_mut();
        let is_full = lowest.len() == CANDIDATES_MAX as usize;
        if (!is_full || lowest.peek().is_some_and(|most| addr < *most)) && is_live(addr) {
            lowest.push(addr);
            if is_full {
                lowest.pop();
            }
        }
        // Nothing is found, so the limit is not reached and every candidate is seen.
        false
    };
    set.lookup(&[hash], 0, collect, &mut Found::default());
    lowest.into_inner().into_vec()
}
