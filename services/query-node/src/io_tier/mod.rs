//! The I/O tier, as a query node uses it: which I/O node owns a row, whether it should be asked, and the fetch of rows.
//!
//! ```text
//! nodes.rs   the list of I/O nodes and their health (ejection.rs), shared by all cores
//!    └─► routes.rs   one core's routes: the owner of a chunk, and a client of each node (node.rs)
//!
//! fetch.rs, rerank.rs, filter.rs ─► slice_fetch.rs ─► slices.rs ─► plan.rs: the rows of each owner, one slice each
//!        │                               ├─► I/O node, for each slice ── fails (faults.rs) ──► table_rows.rs
//!        │                               └─► score.rs, predicate_filter.rs: distances, rows that pass
//!        └─► join.rs: rows in the request's order; cost.rs: what the fetch cost
//!
//! readable.rs  a fetch like fetch.rs, of which the rows that can be read are returned if others can't
//! open_ahead.rs   the I/O nodes open a version while its rows are searched for
//! files.rs   index and deletion files, which Lance reads through the nodes
//! file_blocks.rs  the owners of the blocks of such a file
//! owners.rs  the owners of a table's chunks, for Warm and Placement
//! ```
//!
//! If a node is slow:
//! - Rows: the node has three quarters of the time that is left until the request's deadline (`request_context.rs`). If
//!   it has not answered by then, or fails, the table is read (`slice_fetch.rs`; `faults.rs` has the exceptions). No
//!   other node is asked meanwhile: `docs/decisions/one-owner-per-chunk.md` says why.
//! - Index and deletion files: the store is asked too, 0.4 s after the node (`lake/src/store/cached.rs`), and the first
//!   answer counts.
//! - A node is ejected after several failures in a row (`ejection.rs`). A deadline that passed without an answer counts
//!   as a failure (`faults.rs`). An answer before the deadline does not, however slow it is.
//!
//! Invariants: a stage (each part of it, if a filter is evaluated in parts) takes the routes once and finishes on them;
//! the choice of a node changes who answers, never the answer.

mod cost;
mod ejection;
mod faults;
mod fetch;
mod file_blocks;
mod files;
mod filter;
mod join;
mod node;
mod nodes;
mod open_ahead;
mod owners;
mod plan;
mod predicate_filter;
mod readable;
mod rerank;
mod routes;
mod score;
mod slice_fetch;
mod slices;
mod table_rows;

pub use cost::Cost;
pub use fetch::{Fetched, fetch_rows};
pub use file_blocks::{blocks_of, fill_requests};
pub use files::TierFiles;
pub use filter::filter_rows;
pub use join::present;
pub use node::Node;
pub use nodes::IoNodes;
pub use open_ahead::open_ahead;
pub use owners::{add_chunk, all_runs, each_chunk, ranges_by_owner};
pub use predicate_filter::PredicateFilter;
pub use readable::{UnreadRows, fetch_readable};
pub use rerank::{SCORED_AT_ONCE, Scoring, score_rows};
pub use routes::{IoTier, Routes};
pub use score::Vectors;
