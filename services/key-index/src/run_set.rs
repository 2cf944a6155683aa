//! The runs of one version of a table, and look-ups in all of them.
//!
//! A batch is looked up in groups of [`GROUP_KEYS`]. All buckets of a group are prefetched, in every run; then the
//! overflow lines that are needed; then the entries are read, key after key. So a group waits for memory twice, not
//! once per key.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use address::RowAddr;

use crate::KeyIndexError;
use crate::files::DataFile;
use crate::found::Found;
use crate::geometry::Spot;
use crate::merge::alike;
use crate::policy::RUNS_MAX;
use crate::run::Run;

/// The keys whose buckets are prefetched together. With 8, batches of 64 are a quarter slower; with 32 and 64 they are
/// no faster, but a single look-up is slower, by up to a half, because it sets up room for the others.
const GROUP_KEYS: usize = 16;

/// The runs of one version, newest first: at most [`RUNS_MAX`].
#[derive(Clone, Debug)]
pub struct RunSet {
    runs: Vec<Probed>,
    uncovered: Vec<DataFile>,
}

#[derive(Clone, Debug)]
struct Probed {
    run: Arc<Run>,
    /// For each file of the run, whether look-ups return its rows: the version has the file, and no larger run that was
    /// chosen covers it. `None` if they return the rows of all files.
    files: Option<Box<[bool]>>,
}

impl RunSet {
    /// Chooses the runs for a version with these data files: the largest ones first, and only runs with a file that no
    /// larger one covers.
    ///
    /// # Errors
    /// If runs differ in their seed or the type of their keys.
    pub fn new(
        runs: impl IntoIterator<Item = Arc<Run>>,
        files: &[DataFile],
    ) -> Result<Self, KeyIndexError> {
        let mut missing: HashSet<&DataFile> = files.iter().collect();
        let mut runs: Vec<Arc<Run>> = runs.into_iter().collect();
        if !runs.is_empty() {
            alike(&runs.iter().map(Arc::as_ref).collect::<Vec<_>>())?;
        }
        let useful_rows = |run: &Arc<Run>| -> u64 {
            let useful = run.files().iter().filter(|file| missing.contains(file));
            useful.map(|file| u64::from(file.rows)).sum()
        };
        runs.sort_by_cached_key(|run| Reverse((useful_rows(run), newest_fragment(run))));
        let mut chosen = Vec::new();
        for run in runs {
            if chosen.len() == RUNS_MAX {
                break;
            }
            let counts: Box<[bool]> = run.files().iter().map(|file| missing.remove(file)).collect();
            if counts.contains(&true) {
                let all = counts.iter().all(|&counts| counts);
                chosen.push(Probed { run, files: (!all).then_some(counts) });
            }
        }
        chosen.sort_by_key(|probed| Reverse(newest_fragment(&probed.run)));
        let uncovered = files.iter().filter(|file| missing.contains(file)).cloned().collect();
        Ok(Self { runs: chosen, uncovered })
    }

    /// Returns the runs that look-ups probe, newest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.runs.iter().map(|probed| &probed.run)
    }

    /// Returns the version's files that no run covers. Their rows must be found in another way.
    pub fn uncovered(&self) -> &[DataFile] {
        &self.uncovered
    }

    /// Looks up a batch of keys by their hashes, and puts at most `limit` candidates of each into `found`. Rows for
    /// which `is_live` is false, because they are deleted, are skipped and do not count towards the limit.
    ///
    /// A row that has the key is always among the candidates, if its file is covered and the limit is not reached.
    /// Unless the limit is 0, a key without candidates is in no live row of a covered file.
    pub fn lookup(
        &self,
        hashes: &[u64],
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
            for key in 0..group.len() {
                let start = found.rows.len();
                let outcome = runs().zip(&spots).try_for_each(|(probed, spots)| {
                    probed.run.each(spots[key], |rank| {
                        let Some(row) = probed.row(rank).filter(|&row| is_live(row)) else {
                            return ControlFlow::Continue(());
                        };
                        if found.rows.len() - start == limit as usize {
                            return ControlFlow::Break(());
                        }
                        found.rows.push(row);
                        ControlFlow::Continue(())
                    })
                });
                if outcome.is_break() {
                    found.cut.push(found.ends.len() as u32);
                }
                let end =
                    u32::try_from(found.rows.len()).expect("a batch finds fewer than 2^32 rows");
                found.ends.push(end);
            }
        }
    }
}

impl Probed {
    /// Returns the row of a rank, if look-ups return the rows of its file.
    #[inline]
    fn row(&self, rank: u32) -> Option<RowAddr> {
        let file = self.run.files.file_of(rank);
        let counts = self.files.as_ref().is_none_or(|files| files[file]);
        counts.then(|| self.run.files.row(file, rank))
    }
}

fn newest_fragment(run: &Run) -> Option<u32> {
    run.files().iter().map(|file| file.fragment).max()
}
