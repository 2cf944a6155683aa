//! Searches that return row addresses, with distances or scores, but no rows; rows are fetched elsewhere.
//!
//! ```text
//! direct    what is open for the searches of a version
//! vector/   the rows nearest to a vector
//! text/     the rows that match words best
//! expressions, part_of_table: columns of expressions; the part of a table that a grant shows
//! filter/   the rows that pass a filter, and searches by a filter alone
//! keys/     the rows that have keys
//! hit, selection, coverage, row_addresses, beside, plan_reason: what several of these use
//! ```
//!
//! A module imports only from modules further down in this list. The four folders bypass Lance's scanner if they need
//! no plan (`vector/partitions.rs`, `text/search.rs`, `keys/rows.rs`, `filter/mod.rs`). All other searches run on the
//! scanner, which returns no column of the table (for look-ups, only the key column).
//!
//! A search with a filter uses the list of the rows that pass, which is made once for each filter and version, and kept
//! (`filter/resolve.rs`, `filter/allow_lists.rs`). If finding these rows takes a scan, a vector search may return
//! candidates without the list instead, and its caller compares them with the filter (`vector/candidates.rs`). If scalar
//! indexes answer a part of the filter, the candidates are among the rows that the indexes leave
//! (`filter/narrowing.rs`).

mod beside;
mod coverage;
mod direct;
mod expressions;
mod filter;
mod hit;
mod keys;
mod part_of_table;
mod plan_reason;
mod row_addresses;
mod selection;
mod text;
mod vector;

pub(crate) use direct::DirectIndexes;
pub use expressions::Expression;
pub(crate) use filter::AllowLists;
pub use filter::{Allowed, AllowedBy, CheckedFilter, FilterHits, KnownRows, OrderBy};
pub use hit::{DistanceHit, ScoreHit};
pub use keys::DIRECT_KEYS_MAX;
pub use plan_reason::PlanReason;
pub use text::{
    BadText, Fuzziness, TextBoolean, TextBoost, TextCombined, TextExpr, TextHits, TextMatch,
    TextPhrase, TextQuery,
};
pub use vector::{
    COMPARED_PER_SCORED, CandidateSearch, Candidates, DirectSearch, MeasurableIndex, Rung,
    VectorQuery, VectorRoute, Widened,
};
