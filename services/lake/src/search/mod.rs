//! Searches that return only row addresses and approximate scores; rows are fetched elsewhere.
//!
//! Searches run on Lance's scanner without a projection. Vector searches (`partitions.rs`) and look-ups
//! (`key_rows.rs`) that need no plan bypass the scanner.

mod direct;
mod filter;
mod hit;
mod key;
mod key_index;
mod key_rows;
mod lookup;
mod partitions;
mod sole_segment;
mod text;
mod vector;

pub(crate) use direct::DirectIndexes;
pub use hit::{DistanceHit, ScoreHit};
pub(crate) use key::{can_be_key, check_key_type};
pub use text::TextQuery;
pub(crate) use text::can_be_searched;
pub use vector::VectorQuery;
