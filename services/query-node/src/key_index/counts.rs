//! Counts a node's runs, by source, and the pages that look-ups need, by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

/// The source of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSource {
    /// A file beside the table.
    File,
    /// The key column.
    Column,
    /// Other runs, from which it was merged.
    Merge,
    /// A file beside the table, in which the run's pages stay.
    Pages,
}

impl RunSource {
    /// The sources' names in metrics.
    pub const NAMES: [&str; 4] = ["file", "column", "merge", "pages"];
}

/// The outcome of reading a page for a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOutcome {
    /// It was read and searched.
    Read,
    /// It is not the page that was written.
    Damaged,
    /// It could not be read.
    Failed,
}

impl PageOutcome {
    /// The outcomes' names in metrics.
    pub const NAMES: [&str; 3] = ["read", "damaged", "failed"];
}

/// The numbers of runs that a node has loaded, opened, built or merged, and of pages that look-ups needed, since its
/// start.
#[derive(Debug, Default)]
pub struct RunCounts {
    by_source: [AtomicU64; RunSource::NAMES.len()],
    /// The number of files that were refused because they are damaged or have an unknown format.
    refused: AtomicU64,
    pages: [AtomicU64; PageOutcome::NAMES.len()],
    /// The number of runs that were written beside their tables.
    written: AtomicU64,
    /// The number of times that the runs of a table could not be written.
    write_failures: AtomicU64,
}

impl RunCounts {
    pub fn made(&self, source: RunSource) {
        self.by_source[source as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of runs by source, in the order of [`RunSource::NAMES`], and of refused files.
    pub fn get(&self) -> ([u64; RunSource::NAMES.len()], u64) {
        let by_source = self.by_source.each_ref().map(|count| count.load(Ordering::Relaxed));
        (by_source, self.refused.load(Ordering::Relaxed))
    }

    pub fn written(&self, runs: usize) {
        self.written.fetch_add(runs as u64, Ordering::Relaxed);
    }

    pub fn write_failed(&self) {
        self.write_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of runs that were written beside their tables, and how often that failed.
    pub fn get_written(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.write_failures.load(Ordering::Relaxed))
    }

    pub fn page(&self, outcome: PageOutcome) {
        self.pages[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of pages by outcome, in the order of [`PageOutcome::NAMES`].
    pub fn get_pages(&self) -> [u64; PageOutcome::NAMES.len()] {
        self.pages.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}
