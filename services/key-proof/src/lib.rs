//! Decides which fetched rows have the keys for which they were fetched.
//!
//! The key index only says which rows may have a key, so the key column is fetched with the columns that the caller
//! wants. [`Rounds`] compares each fetched row with its key and drops rows with another key. A key whose row was
//! dropped stays open, and its next candidate is tried in the next round:
//!
//! ```text
//! open keys ──► their next candidates ──► fetch ──► Rounds::add ──► rows that have their keys
//!     ▲                                                 │
//!     └──────────── keys whose row has another key ◄────┘
//! ```
//!
//! Invariants:
//! - A row is returned for a key only if its key column has that key. Null is the key of no row.
//! - The rows are in the order of the keys. Each key has at most one row, unless the caller wants all of them
//!   ([`Rounds::add_all`]): then all candidates are fetched, and those with the key are returned.
//! - A row that is tried for several keys, or for a key that is listed twice, is fetched once ([`DistinctRows`]).
//!
//! This crate does no I/O: the caller looks candidates up and fetches rows. The query node does so, and the simulation.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod distinct_rows;
mod found_rows;
mod rounds;

pub use distinct_rows::{DistinctRows, RowsOfTries};
pub use found_rows::FoundRows;
pub use rounds::Rounds;
