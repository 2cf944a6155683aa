//! The runs of one version of a table, and look-ups in all of them.
//!
//! A batch is looked up in groups of [`GROUP_KEYS`]. All buckets of a group are prefetched, in every run in memory;
//! then the overflow lines that are needed; then the entries are read, key after key. So a group waits for memory
//! twice, not once per key. Runs whose pages stay in their files are searched in the pages that the caller has read.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use address::RowAddr;

use crate::KeyIndexError;
use crate::files::{DataFile, Files};
use crate::found::Found;
use crate::geometry::Spot;
use crate::merge::alike;
use crate::paged_run::PagedRun;
use crate::pages::{PageId, Pages};
use crate::policy::RUNS_MAX;
use crate::run::Run;

/// The number of keys whose buckets are prefetched together. With 8, batches of 64 are a quarter slower. With 32 or 64,
/// these batches are no faster, but a single look-up is slower, by up to a half, because it sets up room for a group.
const GROUP_KEYS: usize = 16;

/// The runs of one version, newest first: at most [`RUNS_MAX`] in memory, and as many whose pages stay in their files.
#[derive(Clone, Debug)]
pub struct RunSet {
    runs: Vec<Probed<Run>>,
    paged: Vec<Probed<PagedRun>>,
    uncovered: Vec<DataFile>,
}

#[derive(Debug)]
struct Probed<R> {
    run: Arc<R>,
    /// For each file of the run, whether look-ups return its rows: the version has the file, and no run that was chosen
    /// before covers it. `None` if they return the rows of all files.
    files: Option<Box<[bool]>>,
}

/// A run that a set may choose.
enum Candidate {
    InMemory(Arc<Run>),
    Paged(Arc<PagedRun>),
}

impl RunSet {
    /// Chooses the runs for a version with the data files `files`. The runs that cover the most rows of these files are
    /// chosen first; if two cover equally many, the one in memory comes first. A run is chosen only if it covers one of
    /// these files that no run chosen before covers. At most [`RUNS_MAX`] runs in memory are chosen, and as many paged
    /// ones.
    ///
    /// # Errors
    /// If runs differ in their seed or the type of their keys.
    pub fn new(
        runs: impl IntoIterator<Item = Arc<Run>>,
        paged: impl IntoIterator<Item = Arc<PagedRun>>,
        files: &[DataFile],
    ) -> Result<Self, KeyIndexError> {
        let runs = runs.into_iter().map(Candidate::InMemory);
        let mut all: Vec<Candidate> = runs.chain(paged.into_iter().map(Candidate::Paged)).collect();
        alike(all.iter().map(Candidate::seed_and_type))?;
        let mut missing: HashSet<&DataFile> = files.iter().collect();
        all.sort_by_cached_key(|run| {
            let useful = run.files().list().iter().filter(|file| missing.contains(file));
            let rows: u64 = useful.map(|file| u64::from(file.rows)).sum();
            let is_in_memory = matches!(run, Candidate::InMemory(_));
            Reverse((rows, is_in_memory, newest_fragment(run.files())))
        });
        let (mut runs, mut paged) = (Vec::new(), Vec::new());
        for run in all {
            let chosen = match run {
                Candidate::InMemory(_) => runs.len(),
                Candidate::Paged(_) => paged.len(),
            };
            if chosen == RUNS_MAX {
                continue;
            }
            let counts = run.files().list().iter().map(|file| missing.remove(file));
            let counts: Box<[bool]> = counts.collect();
            if !counts.contains(&true) {
                continue;
            }
            let files = counts.contains(&false).then_some(counts);
            match run {
                Candidate::InMemory(run) => runs.push(Probed { run, files }),
                Candidate::Paged(run) => paged.push(Probed { run, files }),
            }
        }
        runs.sort_by_key(|probed| Reverse(newest_fragment(&probed.run.files)));
        paged.sort_by_key(|probed| Reverse(newest_fragment(&probed.run.files)));
        let uncovered = files.iter().filter(|file| missing.contains(file)).cloned().collect();
        Ok(Self { runs, paged, uncovered })
    }

    /// Returns the runs in memory that look-ups probe, newest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.runs.iter().map(|probed| &probed.run)
    }

    /// Returns the paged runs that look-ups probe, newest first.
    pub fn paged(&self) -> impl Iterator<Item = &Arc<PagedRun>> {
        self.paged.iter().map(|probed| &probed.run)
    }

    /// Returns the run of a page.
    ///
    /// # Panics
    /// If the set has no such run.
    pub fn paged_run(&self, id: PageId) -> &Arc<PagedRun> {
        &self.paged[id.run].run
    }

    /// Returns the version's files that none of the set's runs covers. Their rows must be found in another way.
    pub fn uncovered(&self) -> &[DataFile] {
        &self.uncovered
    }

    /// Returns the pages that [`lookup`](Self::lookup) of a batch needs, in ascending order. Only the page of a bucket
    /// shows whether a look-up needs pages of spilled entries too. So the caller reads the returned pages, adds them to
    /// `pages`, and calls this again until `pages` has all of them. Look-ups in a set without paged runs need no pages.
    pub fn needed_pages(&self, hashes: &[u64], pages: &Pages) -> Vec<PageId> {
        let mut needed = Vec::with_capacity(self.paged.len() * hashes.len());
        for (run, probed) in self.paged.iter().enumerate() {
            let paged = &probed.run;
            for &hash in hashes {
                let spot = paged.spot(hash);
                let page = paged.page_of(spot);
                needed.push(PageId { run, page });
                let bucket = pages.get(run, page).flatten();
                if bucket.is_some_and(|bucket| paged.may_be_spilled(bucket, spot)) {
                    let spilled = paged.spill_pages_of(spot).unwrap_or_default();
                    needed.extend(spilled.map(|page| PageId { run, page }));
                }
            }
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Looks up a batch of keys by their hashes, and puts at most `limit` candidates of each into `found`. Rows for
    /// which `is_live` is false, because they are deleted, are skipped and do not count towards the limit. `pages` has
    /// the [`needed_pages`](Self::needed_pages). A key that needs a page that `pages` lacks is not looked up.
    ///
    /// A live row that has the key is always among the candidates, if its file is covered, the key was looked up and
    /// [`Found::has_more`] is false. Unless the limit is 0, a key that was looked up and has no candidates is in no
    /// live row of a covered file.
    pub fn lookup(
        &self,
        hashes: &[u64],
        pages: &Pages,
        limit: u32,
        is_live: impl Fn(RowAddr) -> bool,
        found: &mut Found,
    ) {
        found.clear();
        let mut spots = [[Spot::default(); GROUP_KEYS]; RUNS_MAX];
        for group in hashes.chunks(GROUP_KEYS) {
            let runs = || self.runs.iter();
            for (probed, spots) in runs().zip(&mut spots) {
                probed.run.prefetch(group, spots);
            }
            for (probed, spots) in runs().zip(&spots) {
                probed.run.prefetch_overflow(&spots[..group.len()]);
            }
            for (key, &hash) in group.iter().enumerate() {
                let start = found.rows.len();
                let rows = &mut found.rows;
                let mut take = |row: Option<RowAddr>| {
                    let Some(row) = row.filter(|&row| is_live(row)) else {
                        return ControlFlow::Continue(());
                    };
                    if rows.len() - start == limit as usize {
                        return ControlFlow::Break(());
                    }
                    rows.push(row);
                    ControlFlow::Continue(())
                };
                let mut outcome = runs().zip(&spots).try_for_each(|(probed, spots)| {
                    probed.run.each(spots[key], |rank| take(probed.row_in(&probed.run.files, rank)))
                });
                let mut is_unread = false;
                for (run, probed) in self.paged.iter().enumerate() {
                    match probed.each(run, hash, pages, &mut take) {
                        // The loop goes on: the key counts as not looked up if any other paged run lacks a page.
                        ControlFlow::Break(()) => outcome = ControlFlow::Break(()),
                        ControlFlow::Continue(is_read) => is_unread |= !is_read,
                    }
                }
                if is_unread {
                    found.rows.truncate(start);
                    found.unread.push(found.ends.len() as u32);
                } else if outcome.is_break() {
                    found.cut.push(found.ends.len() as u32);
                }
                let end =
                    u32::try_from(found.rows.len()).expect("a batch finds fewer than 2^32 rows");
                found.ends.push(end);
            }
        }
    }
}

impl Candidate {
    fn files(&self) -> &Files {
        match self {
            Self::InMemory(run) => &run.files,
            Self::Paged(run) => &run.files,
        }
    }

    fn seed_and_type(&self) -> (u64, crate::KeyType) {
        match self {
            Self::InMemory(run) => (run.seed, run.key_type),
            Self::Paged(run) => (run.seed, run.key_type),
        }
    }
}

impl<R> Probed<R> {
    /// Returns the row of a rank, if look-ups return the rows of its file. `files` are the run's.
    #[inline]
    fn row_in(&self, files: &Files, rank: u32) -> Option<RowAddr> {
        let file = files.file_of(rank);
        let counts = self.files.as_ref().is_none_or(|counts| counts[file]);
        counts.then(|| files.row(file, rank))
    }
}

impl Probed<PagedRun> {
    /// Calls `each` for every entry that has the hash, until `each` breaks: with the entry's row, or with `None` if
    /// look-ups do not return the rows of its file. Returns false if `pages` lacks a page that this needs, or if the
    /// spilled entries of the hash are on more pages than a look-up reads. `number` is the run's position among the
    /// paged runs.
    fn each(
        &self,
        number: usize,
        hash: u64,
        pages: &Pages,
        mut each: impl FnMut(Option<RowAddr>) -> ControlFlow<()>,
    ) -> ControlFlow<(), bool> {
        let spot = self.run.spot(hash);
        let page = |page: u32| pages.get(number, page).flatten();
        let mut each = |rank| each(self.row_in(&self.run.files, rank));
        let Some(bucket) = page(self.run.page_of(spot)) else {
            return ControlFlow::Continue(false);
        };
        match self.run.each_in_bucket(bucket, spot, &mut each)? {
            Some(true) => {}
            in_bucket => return ControlFlow::Continue(in_bucket.is_some()),
        }
        let Some(spilled) = self.run.spill_pages_of(spot) else {
            return ControlFlow::Continue(false);
        };
        for number in spilled {
            let Some(spilled) = page(number) else { return ControlFlow::Continue(false) };
            spilled.each_spilled(spot, &mut each)?;
        }
        ControlFlow::Continue(true)
    }
}

impl<R> Clone for Probed<R> {
    fn clone(&self) -> Self {
        Self { run: Arc::clone(&self.run), files: self.files.clone() }
    }
}

fn newest_fragment(files: &Files) -> Option<u32> {
    files.list().iter().map(|file| file.fragment).max()
}
