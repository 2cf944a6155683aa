//! Counts the runs of a node by their source.

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
}

impl RunSource {
    /// The sources' names in metrics.
    pub const NAMES: [&str; 3] = ["file", "column", "merge"];
}

/// The numbers of runs that a node has loaded, built or merged since its start.
#[derive(Debug, Default)]
pub struct RunCounts {
    by_source: [AtomicU64; RunSource::NAMES.len()],
    /// The number of files that were refused because they are damaged or have an unknown format.
    refused: AtomicU64,
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
}
