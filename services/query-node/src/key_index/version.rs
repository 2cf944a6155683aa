//! The key index of one version of a table.

use std::sync::Arc;

use arrow_array::ArrayRef;
use futures::FutureExt;
use lake::{Lake, Table};

use super::coverage::{Candidates, VersionFiles, WantedRows};
use super::page_reads::candidates_with_pages;
use super::report::KeyIndexReport;
use super::runs::{RunsReport, TableRuns};
use crate::error::Result;

/// The key index of one version of a table. Immutable, except for the runs that cover its files.
#[derive(Debug)]
pub struct VersionKeys {
    files: Arc<VersionFiles>,
    runs: Arc<TableRuns>,
}

impl VersionKeys {
    /// Opens the index of a version. If the column is indexed, existing runs that have the version's files cover these
    /// from now on. The first version looks for persisted runs, and begins to index the column if there are any.
    pub(super) fn open(table: &Table, runs: Arc<TableRuns>) -> Arc<Self> {
        let files = Arc::new(VersionFiles::new(table, &runs.column().name));
        runs.open(&files);
        Arc::new(Self { files, runs })
    }

    /// Returns the indexed column's name.
    pub fn column(&self) -> &str {
        &self.runs.column().name
    }

    /// Begins to index the column, unless that has begun already. Called by each look-up.
    pub fn want(&self) {
        if !self.files.is_followed() || !self.is_looked_up() {
            self.runs.want(&self.files);
        }
    }

    /// If the column is indexed, begins to load, build and merge runs where that is due ([`TableRuns::follow`]). Does
    /// not wait for them.
    pub fn follow(&self) {
        self.runs.follow(&self.files);
    }

    /// Writes those runs of the version, which is the latest one, that are not in files beside the table yet. Returns
    /// whether this succeeded; a failure is logged.
    pub async fn write(&self, lake: &Lake) -> bool {
        self.runs.write(lake, self.files.table()).boxed().await
    }

    /// Waits until the runs cover all of the version's files, or until no run is being looked for, loaded, built or
    /// merged.
    pub async fn covered(&self) {
        self.runs.covered(&self.files).await;
    }

    /// Returns whether somebody has looked up a key, in this version or another one.
    pub fn is_looked_up(&self) -> bool {
        self.runs.is_looked_up()
    }

    /// Returns whether the runs cover at least one of the version's files, or the version has no files.
    pub fn covers_any(&self) -> bool {
        let (files, uncovered) = (self.files.files().len(), self.files.coverage().uncovered.len());
        uncovered < files || files == 0
    }

    /// Returns whether the runs cover all of the version's files.
    pub fn covers_all(&self) -> bool {
        self.files.is_covered()
    }

    /// Returns whether look-ups read pages of runs that are not in memory.
    pub fn is_paged(&self) -> bool {
        self.files.coverage().set.paged().next().is_some()
    }

    /// Returns the rows that may have these keys, which are values of the column's type. If all runs are in memory, it
    /// waits only if the deletions of a fragment with candidates have not been loaded yet. Otherwise it reads pages.
    ///
    /// # Errors
    /// Errors of the store. Keys of another type are an error too, and a defect.
    pub async fn candidates(&self, keys: &ArrayRef, wanted: WantedRows) -> Result<Candidates> {
        match self.is_paged() {
            true => candidates_with_pages(&self.files, &self.runs, keys, wanted).boxed().await,
            false => self.files.candidates_in_memory(keys, wanted).await,
        }
    }

    /// Returns the state of the index.
    pub fn report(&self) -> KeyIndexReport {
        let coverage = self.files.coverage();
        let uncovered = coverage.uncovered.iter().filter_map(|id| self.files.table().fragment(*id));
        let RunsReport { is_wanted, bytes, runs_loaded, fault } = self.runs.report(&coverage.set);
        KeyIndexReport {
            is_wanted,
            runs: coverage.set.runs().count() + coverage.set.paged().count(),
            runs_loaded,
            runs_paged: coverage.set.paged().count(),
            paged_bytes: coverage.set.paged().map(|run| run.paged_bytes()).sum(),
            bytes,
            uncovered_rows: uncovered.map(|info| u64::from(info.physical_rows)).sum(),
            fault,
        }
    }
}
