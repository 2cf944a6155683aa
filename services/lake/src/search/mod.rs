//! Searches that answer with row addresses and approximate scores only: rows are fetched elsewhere.
//!
//! All of them run on Lance's scanner without a projection. A file each, because the vector search
//! is to leave the scanner one day (its plan costs 0.6 ms of the 0.8 ms that an IVF_RQ search takes).

mod filter;
mod hit;
mod key;
mod lookup;
mod text;
mod vector;

pub use hit::{DistanceHit, ScoreHit};
pub(crate) use key::can_be_key;
pub use text::TextQuery;
pub(crate) use text::can_be_searched;
pub use vector::VectorQuery;
