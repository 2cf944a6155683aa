//! Fetches rows from the I/O nodes (`io_nodes/`), or from the table if a node does not answer, and has the nodes score
//! and filter them.
//!
//! ```text
//! rows.rs, rerank.rs, filter.rs ─► slice_fetch.rs ─► slices.rs ─► plan.rs: the rows of each owner, one slice each
//!        │                               ├─► I/O node, for each slice ── fails ──► table_rows.rs
//!        │                               └─► score.rs, predicate_filter.rs: distances, rows that pass
//!        └─► join.rs: rows in the request's order; cost.rs: what the fetch cost
//!
//! readable.rs  a fetch like rows.rs, of which the rows that can be read are returned if others can't
//! parts.rs     the parts of a fetch whose rows may be too large to be in memory at once
//! open_ahead.rs   the I/O nodes open a version while its rows are searched for
//! ```
//!
//! A node has three quarters of the time that is left until the request's deadline (`request_context.rs`). If it has not
//! answered by then, or fails, the table is read (`slice_fetch.rs`; `io_nodes/faults.rs` has the exceptions). No other
//! node is asked meanwhile: `docs/decisions/one-owner-per-chunk.md` says why.
//!
//! Invariant: a stage (each part of it, if a filter is evaluated in parts) takes the routes once and finishes on them.

mod cost;
mod filter;
mod join;
mod open_ahead;
mod parts;
mod plan;
mod predicate_filter;
mod readable;
mod rerank;
mod rows;
mod score;
mod slice_fetch;
mod slices;
mod table_rows;

pub use cost::Cost;
pub use filter::filter_rows;
pub use join::present;
pub use open_ahead::open_ahead;
pub use parts::{FetchParts, rows_likely};
pub use predicate_filter::PredicateFilter;
pub use readable::{UnreadRows, fetch_readable};
pub use rerank::{SCORED_AT_ONCE, Scoring, score_rows};
pub use rows::{Fetched, fetch_rows};
pub use score::Vectors;
