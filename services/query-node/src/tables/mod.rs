//! Opens the tables that a node serves, caches them, and follows them to new versions.
//!
//! ```text
//! node.rs ─► Catalog::refresh, after each `refresh_interval` ─┐
//! http/ ─► Catalog::catch_up ─────────────────────────────────┴─► is there a newer version? ─► Entry::replace
//! node.rs ─► Catalog::list_folders (folders.rs): the tables in folders ─► entries that appear or go
//!
//! Catalog (catalog.rs)           the tables by name, and the open branches (branches.rs)
//!  └─► Entry (entry.rs)          a table or branch: its state, which is replaced as a whole
//!       └─► OpenTable (open.rs)  a version, with everything that requests need; projection.rs: its columns;
//!                                packed_row.rs: the size of its rows; open/part.rs: parts, for grants that show
//!                                only some columns or rows
//! ```
//!
//! dropped.rs: the index files that I/O nodes no longer need, because no version in use names them.
//!
//! A request keeps the version that it opened, whatever becomes the current version meanwhile.

mod asked;
mod branches;
mod catalog;
mod dropped;
mod entry;
mod folders;
mod idle;
mod named;
mod open;
mod packed_row;
mod projection;

pub use asked::AskedVersion;
pub use catalog::{Catalog, Listed};
pub use folders::Folder;
pub use open::OpenTable;
pub use projection::{
    DISTANCE, Measure, Projection, RELEVANCE, ROW_ADDRESS, SCORE, bytes_of_rows, row_bytes,
};
