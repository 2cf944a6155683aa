//! Searches that return row addresses, with distances or scores, but no rows; rows are fetched elsewhere.
//!
//! Vector searches (`partitions.rs`), full-text searches (`text_search.rs`), look-ups (`key_rows.rs`), and searches and
//! counts by a filter alone (`filter.rs`) bypass Lance's scanner if they need no plan. All other searches run on the
//! scanner, which returns no column of the table (for look-ups, only the key column).
//!
//! A search with a filter uses the list of the rows that pass, which is made once for each filter and version, and kept
//! (`resolve_filter.rs`, `allow_lists.rs`). If finding these rows takes a scan, a vector search may return candidates
//! without the list instead, and its caller compares them with the filter (`candidates.rs`). If scalar indexes answer a
//! part of the filter, the candidates are among the rows that the indexes leave (`narrowing.rs`).

mod all_rows;
mod allow_list;
mod allow_lists;
mod beside;
mod candidates;
mod checked_filter;
mod coverage;
mod direct;
mod expressions;
mod filter;
mod fresh_scores;
mod fresh_text;
mod hit;
mod key;
mod key_btree;
mod key_rows;
mod ladder;
mod lookup;
mod narrowing;
mod open_partitions;
mod open_text_index;
mod part_of_table;
mod partitions;
mod plan_reason;
mod read_ahead;
mod resolve_filter;
mod row_addresses;
mod segment;
mod selection;
mod sole_segment;
mod text;
mod text_expr;
mod text_index;
mod text_limits;
mod text_node;
mod text_resolve;
mod text_search;
mod text_type;
mod vector;
mod vector_query;
mod widening;

pub use allow_list::{Allowed, AllowedBy};
pub(crate) use allow_lists::AllowLists;
pub use candidates::{CandidateSearch, Candidates};
pub use checked_filter::CheckedFilter;
pub(crate) use direct::DirectIndexes;
pub use expressions::Expression;
pub use filter::{FilterHits, KnownRows, OrderBy};
pub use hit::{DistanceHit, ScoreHit};
pub(crate) use key::{can_be_key, check_key_type, parse_key};
pub use key_rows::DIRECT_KEYS_MAX;
pub use ladder::MeasurableIndex;
pub use partitions::{COMPARED_PER_SCORED, Rung};
pub use plan_reason::PlanReason;
pub use text::{TextHits, TextQuery};
pub use text_expr::{
    Fuzziness, TextBoolean, TextBoost, TextCombined, TextExpr, TextMatch, TextPhrase,
};
pub use text_limits::BadText;
pub(crate) use text_type::can_be_searched;
pub use vector::{DirectSearch, VectorRoute};
pub use vector_query::VectorQuery;
pub use widening::Widened;
