//! Look-ups in runs whose pages stay in their files.
//!
//! ```text
//! keys ──► hashes, in order ──a part at a time──► numbers of pages ──► reads, many at a time ──► pages ──► candidates
//! ```
//!
//! Runs are ordered by hash, and so are the keys here: keys of one page follow each other, so each page is read once.
//! Only the pages of one part are in memory at a time: at most [`PAGES_MAX`] pages of buckets, and the few pages of
//! spilled entries that keys in these buckets need. `state/admission.rs` bounds the number of concurrent look-ups.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::ArrayRef;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use key_index::{Page, PageId, PagedRun, Pages, RunSet};
use key_runs::RunFiles;

use super::counts::PageOutcome;
use super::coverage::{Candidates, VersionFiles, WantedRows};
use super::memory::PAGES_READING_MAX;
use super::runs::TableRuns;
use crate::call_rules::BATCH_ROWS_MAX;
use crate::error::Result;

/// The maximum number of pages of buckets that a look-up holds: 1 MiB.
const PAGES_MAX: usize = 256;

/// Returns the rows that may have these keys. Keys that need a page that is damaged or can't be read are among
/// [`Candidates::cut`].
///
/// # Errors
/// Errors of the store, except those of reading pages. Keys of another type than the column's are an error too, and a
/// defect.
pub async fn candidates_with_pages(
    version: &VersionFiles,
    runs: &Arc<TableRuns>,
    keys: &ArrayRef,
    wanted: WantedRows,
) -> Result<Candidates> {
    let coverage = version.coverage_to_keep();
    let reader = PageReader { files: RunFiles::of(version.table()).await?, runs, version };
    let hashes = coverage.hashes(keys)?;
    let mut order: Vec<u32> = (0..hashes.len() as u32).collect();
    order.sort_unstable_by_key(|&key| hashes[key as usize]);
    let part_keys = PAGES_MAX / coverage.set.paged().count().max(1);
    let mut pages = Pages::default();
    // The rows of all keys, in the order of hashes, and for each key the range of its rows in `rows`.
    let mut rows: Vec<RowAddr> = Vec::new();
    let mut places = vec![0..0; hashes.len()];
    let mut cut = Vec::new();
    for part in order.chunks(part_keys) {
        let hashes: Vec<u64> = part.iter().map(|&key| hashes[key as usize]).collect();
        reader.read_for(&coverage.set, &hashes, &mut pages).await;
        let found = version.candidates_in(&coverage, &hashes, &pages, wanted).await?;
        let first = rows.len();
        let starts = [0].into_iter().chain(found.ends.iter().copied());
        for ((&key, start), &end) in part.iter().zip(starts).zip(&found.ends) {
            places[key as usize] = first + start as usize..first + end as usize;
        }
        rows.extend_from_slice(&found.rows);
        cut.extend(found.cut.iter().map(|&at| part[at as usize]));
        if wanted == WantedRows::All && rows.len() > BATCH_ROWS_MAX {
            break;
        }
    }
    cut.sort_unstable();
    let uncovered = Arc::clone(&coverage.uncovered);
    let mut candidates = Candidates { cut, uncovered, ..Candidates::default() };
    for place in places {
        candidates.rows.extend_from_slice(&rows[place]);
        candidates.ends.push(candidates.rows.len() as u32);
    }
    Ok(candidates)
}

/// Reads pages of the runs that cover a version.
struct PageReader<'a> {
    files: RunFiles,
    runs: &'a Arc<TableRuns>,
    version: &'a VersionFiles,
}

impl PageReader<'_> {
    /// Adds to `pages` the pages that look-ups of these hashes need, and removes all others from it.
    async fn read_for(&self, set: &RunSet, hashes: &[u64], pages: &mut Pages) {
        pages.keep(&set.needed_pages(hashes, pages));
        loop {
            let mut missing = set.needed_pages(hashes, pages);
            missing.retain(|id| !pages.contains(id));
            if missing.is_empty() {
                return;
            }
            let read = |id: PageId| async move { (id, self.read(set, id).await) }.boxed();
            let reads: Vec<_> = missing.into_iter().map(read).collect();
            let mut reads = stream::iter(reads).buffer_unordered(PAGES_READING_MAX);
            while let Some((id, page)) = reads.next().await {
                pages.insert(id, page);
            }
        }
    }

    /// Reads a page. `None` if it can't be used. Each such page is counted; the log gets at most one warning a minute
    /// about them.
    async fn read(&self, set: &RunSet, id: PageId) -> Option<Page> {
        let run = set.paged_run(id);
        let _permit = self.runs.page_read().await;
        let error = match self.files.page(run, id.page).await {
            Ok(Some(page)) => {
                self.runs.count_page(PageOutcome::Read);
                return Some(page);
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let path = self.files.path_of(run.name());
        let is_gone = match error {
            None => {
                self.runs.count_page(PageOutcome::Failed);
                true
            }
            Some(error) => {
                let is_logged =
                    self.runs.page_is_unusable(run, &path, self.version.table().uri(), &error);
                is_logged && self.is_deleted(run).await
            }
        };
        if is_gone {
            self.runs.drop_paged(run, &path);
        }
        None
    }

    /// Returns whether the store no longer lists a run's file. A read need not fail because of that: an I/O node that
    /// has the file's blocks still answers.
    async fn is_deleted(&self, run: &PagedRun) -> bool {
        let listed = self.files.list().await;
        listed.is_ok_and(|files| files.iter().all(|file| file.name != run.name()))
    }
}
