//! Counts and logs pages of paged runs that are damaged or can't be read, and drops runs whose files are gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use key_index::PagedRun;
use key_runs::RunFileError;
use tokio::sync::SemaphorePermit;
use tracing::{info, warn};

use super::TableRuns;
use crate::key_index::counts::PageOutcome;

/// The shortest time between two lines of the log about pages that can't be used.
const WARN_EVERY: Duration = Duration::from_secs(60);

impl TableRuns {
    /// Waits until another page may be read.
    pub async fn page_read(&self) -> SemaphorePermit<'_> {
        self.memory.page_read().await
    }

    /// Counts a page that a look-up needed.
    pub fn count_page(&self, outcome: PageOutcome) {
        self.counts.page(outcome);
    }

    /// Drops a run whose file is gone, because `bireme index` has replaced it, and begins the task, which lists the
    /// files again.
    pub fn drop_paged(self: &Arc<Self>, run: &Arc<PagedRun>, path: &str) {
        let mut state = self.state();
        let before = state.paged.len();
        state.paged.retain(|it| !Arc::ptr_eq(&it.run, run));
        if state.paged.len() < before {
            let (table, column) = (&self.table, &self.column.name);
            info!(table, column, "{path} is gone: looking for the persisted runs that replace it");
            state.cover_all();
            // A file that seemed superfluous may have been written in place of this one.
            state.opened.clear();
            (state.must_list, state.full) = (true, None);
            self.begin(&mut state, None);
        }
    }

    /// Counts that a page of a run is damaged or can't be read, and logs it unless another such line was logged within
    /// [`WARN_EVERY`]. Returns whether it was logged.
    pub fn page_is_unusable(
        &self,
        run: &Arc<PagedRun>,
        path: &str,
        uri: &str,
        error: &RunFileError,
    ) -> bool {
        let is_damaged = matches!(error, RunFileError::Refused(_));
        let outcome = if is_damaged { PageOutcome::Damaged } else { PageOutcome::Failed };
        self.count_page(outcome);
        let mut state = self.state();
        let held = state.paged.iter_mut().find(|it| Arc::ptr_eq(&it.run, run));
        if let Some(held) = held.filter(|_| is_damaged)
            && !std::mem::replace(&mut held.is_damaged, true)
        {
            self.counts.refused();
        }
        if state.page_warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return false;
        }
        state.page_warned = Some(Instant::now());
        drop(state);
        let (table, column) = (&self.table, &self.column.name);
        let note = "keys that need the page are looked up through the BTREE or a scan";
        if is_damaged {
            let remedy = format!("write it again: `bireme index --table {uri} --key-runs`");
            warn!(table, column, "{path}: {error}; {note}; {remedy}");
        } else {
            warn!(table, column, "a page of {path} can't be read: {error}; {note}");
        }
        true
    }
}
