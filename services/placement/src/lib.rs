//! Placement: which rows make a chunk, and which I/O node owns it.
//!
//! Pure: no I/O, no clock, no randomness. Every node computes the same from the same table and the
//! same member list. Not here: who is a member and whether it is well.

mod chunking;
mod members;
mod runs;

pub use chunking::{CHUNK_BYTES_TARGET, chunk_rows};
pub use members::{Member, Members, MembersError, TableHash};
pub use runs::ChunkRun;
