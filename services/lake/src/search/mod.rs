//! Searches that answer with row addresses and approximate scores only: rows are fetched elsewhere.
//!
//! They run on Lance's scanner without a projection, but for vector searches that need nothing that it
//! plans (`partitions.rs`), and look-ups likewise (`keys.rs`).

mod direct;
mod filter;
mod hit;
mod key;
mod keys;
mod lookup;
mod partitions;
mod text;
mod vector;

pub(crate) use direct::Direct;
pub use hit::{DistanceHit, ScoreHit};
pub(crate) use key::{can_be_key, check_key_type};
pub use text::TextQuery;
pub(crate) use text::can_be_searched;
pub use vector::VectorQuery;
