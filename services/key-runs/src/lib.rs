//! The runs of a table's key column: built from the column, and kept in files beside the table.
//!
//! ```text
//! key column ──build_run──► Run ──RunFiles::write──► TABLE/_bireme/keys/*.keys ─┬─RunFiles::open──► head ──► Run
//!                                                                               ├─open_paged──► head ──► PagedRun
//!                                                                               └─page──► a page of a PagedRun
//!
//! write_runs (`bireme index`): loads the runs of unchanged data files, builds the others, merges small ones, writes
//!                              what is new, and then deletes the files that nobody needs any more
//! write_runs_beside (a node):  does the same with the runs that the node has in memory, and within its memory
//! ```
//!
//! `key-index` has the format of runs and their look-ups; query nodes decide which runs to load, within their memory.
//!
//! Invariants:
//! - A file is trusted only if its checksums are right, and used only for data files that it names: these never change,
//!   and their names are never used again. So a file of another table, or of data that was replaced, covers nothing.
//! - All runs that are used together have one seed. The seed is in the files: whoever can read the table's folder knows
//!   it.
//! - An undamaged file is deleted only after the runs that replace it were written. It is kept while a version of the
//!   table's main branch has one of its data files that no run of the latest version covers.
//!
//! This crate deliberately locks nothing. Writers look for changes by others before they write and before they delete.
//! Two that write at the very same time may both write the same runs, and the next one deletes those that are
//! superfluous.

mod hashes;
mod key_column;
mod paged_file;
mod run_build;
mod run_file;
mod run_writer;
mod version_search;
mod write_budget;

pub use hashes::{each_hash, key_type};
pub use key_column::{KeyColumn, data_files};
pub use paged_file::{PagedHead, PagedReader, SPILL_PIECES_BYTES};
pub use run_build::{BuildError, ROWS_TOGETHER, build_run, first_together, split_into_runs};
pub use run_file::{RunFile, RunFileError, RunFiles, RunHead, RunReader};
pub use run_writer::{KnownRuns, RunsSummary, write_runs, write_runs_beside};
pub use version_search::VersionSearch;
pub use write_budget::{RunWriteError, WriteBudget};
