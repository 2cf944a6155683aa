//! The key indexes of a node's tables: which rows may have a key, in memory (`services/key-index` has the format).
//!
//! A table's key column is indexed from its first look-up on, in the background. Runs are shared by all versions that
//! have their data files:
//!
//! ```text
//! KeyIndexes ── one per node: the memory of all runs; one run is built or merged at a time
//!   └─ TableRuns ── one per table and key column: its runs, and the task that builds and merges them
//!        └─ VersionKeys ── one per open version: its data files, and the runs that cover them
//! ```
//!
//! Invariants:
//! - A look-up never waits for a run. Data files without a run are named ([`Candidates::uncovered`]), and the caller
//!   finds their rows in another way.
//! - All runs together, and what building one takes, stay within `key_index`. If the runs of a table do not fit, none
//!   of its missing runs is built, and the reason is reported.
//! - A new version has the runs of its data files as soon as it is open: only files that it adds have none.

mod coverage;
mod error;
mod hashes;
mod indexes;
mod memory;
mod report;
mod run_build;
mod runs;
mod version;

pub use coverage::Candidates;
pub use indexes::KeyIndexes;
pub use report::KeyIndexReport;
pub use version::VersionKeys;
