//! The key indexes of a node's tables. They say which rows may have a key (`services/key-index` has the format).
//!
//! A table's key column is indexed in the background: from its first look-up on, or from the start if there are files
//! of persisted runs beside the table (`services/key-runs`). Runs are loaded from these files. Once a key has been
//! looked up, the runs of data files that no persisted run covers are built from the key column. If a persisted run
//! does not fit into memory, its pages stay in its file, and look-ups read the pages that they need. Runs are shared by
//! all versions that have their data files:
//!
//! ```text
//! KeyIndexes ── one per node: the memory of all runs; one run is loaded, built or merged at a time
//!   └─ TableRuns ── one per table and key column: its runs, and the task that loads, builds and merges them
//!        └─ VersionKeys ── one per open version: its data files, and the runs that cover them
//! ```
//!
//! Invariants:
//! - A look-up never waits until a run is loaded or built, only for pages and deletions. Data files without a run are
//!   reported ([`Candidates::uncovered`]), and the caller finds their rows in another way.
//! - All runs together, and what loading or building one takes, stay within `key_index`. If the runs that have to be
//!   built for a table do not fit, none of them is built, and the reason is reported.
//! - If a page is damaged or can't be read, the keys that need it are looked up as if no run covered any file.
//! - All runs of a table have the seed of the first one: that in its file if it was loaded, or else a random one.
//! - A new version has the runs of its data files as soon as it is open: only files that it adds have none.

mod counts;
mod coverage;
mod error;
mod indexes;
mod memory;
mod page_reads;
mod report;
mod runs;
mod version;
mod write_schedule;

pub use counts::{PageOutcome, RunSource};
pub use coverage::{Candidates, WantedRows};
pub use indexes::KeyIndexes;
pub use report::KeyIndexReport;
pub use version::VersionKeys;
pub use write_schedule::{WAIT_MS, WriteSchedule};
