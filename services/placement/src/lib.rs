//! Placement: which rows form a chunk, and which I/O node owns it.
//!
//! Pure: no I/O, no clock, no randomness. Every node computes the same placement from the same table and the
//! same list of members. This crate does not know how members are discovered or whether they are healthy.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod chunking;
mod members;
mod runs;

pub use chunking::{CHUNK_BYTES_TARGET, chunk_rows};
pub use members::{Member, Members, MembersError, TableHash};
pub use runs::ChunkRun;
