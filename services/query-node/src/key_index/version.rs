//! The key index of one version of a table.

use std::sync::Arc;

use arrow_array::ArrayRef;
use lake::Table;

use super::coverage::{Candidates, VersionFiles};
use super::hashes::each_hash;
use super::report::KeyIndexReport;
use super::runs::TableRuns;
use crate::error::{QueryError, Result};

/// The key index of one version of a table. Immutable, except for the runs that cover its files.
#[derive(Debug)]
pub struct VersionKeys {
    files: Arc<VersionFiles>,
    runs: Arc<TableRuns>,
}

impl VersionKeys {
    /// Opens the index of a version. If the column is indexed, runs of other versions that have its files cover it from
    /// now on.
    pub(super) fn open(table: &Table, runs: Arc<TableRuns>) -> Arc<Self> {
        let files = Arc::new(VersionFiles::new(table, &runs.column().name));
        runs.join(&files, false);
        Arc::new(Self { files, runs })
    }

    /// Returns the indexed column's name.
    pub fn column(&self) -> &str {
        &self.runs.column().name
    }

    /// Begins to index the column, unless that has begun already. Called by each look-up.
    pub fn want(&self) {
        if !self.files.is_followed() {
            self.runs.join(&self.files, true);
        }
    }

    /// Builds and merges what is missing, if the column is indexed. Does not wait for it.
    pub fn follow(&self) {
        self.runs.follow();
    }

    /// Returns whether the runs know anything of the version: at least one of its files is covered, or it has none.
    pub fn covers_any(&self) -> bool {
        let (files, uncovered) = (self.files.files().len(), self.files.coverage().uncovered.len());
        uncovered < files || files == 0
    }

    /// Returns whether the runs cover all of the version's files.
    pub fn covers_all(&self) -> bool {
        self.files.coverage().uncovered.is_empty()
    }

    /// Returns the hashes of keys, which are values of the column's type.
    ///
    /// # Errors
    /// If they are of another type, which is a defect.
    pub fn hashes(&self, keys: &ArrayRef) -> Result<Vec<u64>> {
        let mut hashes = Vec::with_capacity(keys.len());
        // Null gets the hash of some other key: no row proves it.
        let each = |hash: Option<u64>| hashes.push(hash.unwrap_or_default());
        each_hash(&self.runs.column().hasher(), keys, each)
            .map_err(|error| QueryError::Server(error.to_string()))?;
        Ok(hashes)
    }

    /// Returns the rows that may have the keys with these hashes. Waits only for deletions of fragments with candidates
    /// that have not been loaded yet.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn candidates(&self, hashes: &[u64]) -> Result<Candidates> {
        self.files.candidates(hashes).await
    }

    /// Returns the state of the index.
    pub fn report(&self) -> KeyIndexReport {
        let coverage = self.files.coverage();
        let uncovered = coverage.uncovered.iter().filter_map(|id| self.files.table().fragment(*id));
        let (is_wanted, bytes, fault) = self.runs.report();
        KeyIndexReport {
            is_wanted,
            runs: coverage.set.runs().count(),
            bytes,
            uncovered_rows: uncovered.map(|info| u64::from(info.physical_rows)).sum(),
            fault,
        }
    }
}
