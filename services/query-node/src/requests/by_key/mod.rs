//! Rows by their keys, for Gets, Lookup streams and searches by the vector of a key's row.
//!
//! ```text
//! gather ─► find     keys of several requests are looked up together; tried until each has its row
//! extra_rows         bounds the rows of keys that have several
//! ```

mod extra_rows;
mod find;
mod gather;

pub use extra_rows::ExtraRows;
pub use find::{UnreadKeys, find_all_rows, find_readable, find_rows};
pub use gather::{Gathered, find_gathered};
