//! The key indexes of all tables of a node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use key_runs::{KeyColumn, key_type};
use lake::Table;
use tokio::runtime::Handle;

use super::counts::{PageOutcome, RunCounts, RunSource};
use super::memory::KeyIndexMemory;
use super::runs::TableRuns;
use super::version::VersionKeys;

/// The key indexes of all tables of a node.
pub struct KeyIndexes {
    memory: Arc<KeyIndexMemory>,
    counts: Arc<RunCounts>,
    /// The runs by the table's name and key column, as long as a version of the table is in use. Locked only while a
    /// version is opened.
    tables: Mutex<HashMap<(String, String), Weak<TableRuns>>>,
    /// The runtime that loads and builds runs.
    background: Handle,
}

impl KeyIndexes {
    /// Creates the indexes, none of them built. All together take at most `bytes_max`; with 0 there are none.
    pub fn new(bytes_max: u64, background: Handle) -> Self {
        let memory = Arc::new(KeyIndexMemory::new(bytes_max));
        Self { memory, counts: Arc::default(), tables: Mutex::default(), background }
    }

    /// Returns the number of runs by source, in the order of [`RunSource::NAMES`], and of files that were refused, since
    /// the start.
    pub fn run_counts(&self) -> ([u64; RunSource::NAMES.len()], u64) {
        self.counts.get()
    }

    /// Returns the number of pages that look-ups needed, by outcome, in the order of [`PageOutcome::NAMES`], since the
    /// start.
    pub fn page_counts(&self) -> [u64; PageOutcome::NAMES.len()] {
        self.counts.get_pages()
    }

    /// Returns the number of runs that were written beside their tables, and how often that failed, since the start.
    pub fn write_counts(&self) -> (u64, u64) {
        self.counts.get_written()
    }

    /// Waits until no run is being loaded, built or merged. None is until the permit is dropped.
    #[cfg(test)]
    pub async fn hold_builder(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.memory.turn().await
    }

    /// Returns the maximum memory of all indexes and the part in use, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        (self.memory.max, self.memory.used())
    }

    /// Returns the index of `column` of one version of the table `name`; `None` if columns of its type are not indexed,
    /// or if `key_index` is 0. The runs of other versions are used if this version has their files.
    pub fn open(&self, name: &str, table: &Table, column: &str) -> Option<Arc<VersionKeys>> {
        let field = table.schema().field_with_name(column).ok()?;
        let key_type = key_type(field.data_type()).filter(|_| self.memory.max > 0)?;
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, runs| runs.strong_count() > 0);
        let of = (name.to_owned(), column.to_owned());
        let runs = tables.get(&of).and_then(Weak::upgrade);
        let runs = runs.filter(|runs| runs.column().key_type == key_type).unwrap_or_else(|| {
            let column = KeyColumn { name: column.to_owned(), key_type };
            let (memory, counts) = (Arc::clone(&self.memory), Arc::clone(&self.counts));
            let runs = TableRuns::new(name, column, memory, counts, self.background.clone());
            tables.insert(of, Arc::downgrade(&runs));
            runs
        });
        drop(tables);
        Some(VersionKeys::open(table, runs))
    }
}
