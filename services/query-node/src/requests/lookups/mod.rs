//! Lookup: a long-lived stream of batches of keys, for programs that look up many keys.
//!
//! ```text
//! LookupRequest ─► stream.rs: handles, credits ─► the batches of one projection that wait now: a group
//!                      ▲                               │
//!       LookupResponse │                               ▼
//!                      └────────── group.rs: keys.rs (typed keys) ─► gather.rs, find.rs: once for the group, and for
//!                                  groups of other streams ─► results.rs ─► one reply for each group
//! ```
//!
//! Invariants:
//! - Batches of one projection that arrive while the core is busy are looked up and fetched together. A batch that
//!   arrives alone is not delayed: nothing waits for a timer.
//! - Small groups of several streams of a core share a look-up and a fetch (`by_key/gather.rs`), and wait for each
//!   other meanwhile. The rows that are found together hold memory until each stream has copied its own. Credits,
//!   deadlines, limits, audit lines and the memory of answers are each stream's own.
//! - Each batch gets one result. The error of a batch, or of a row, fails no other batch, and is no other batch's
//!   error: a batch of which some rows can't be read is answered by itself.
//! - The memory of open projections is counted, and each is small (`projection.rs`).
//! - The keys that a stream has outstanding are bounded by its credits. While answers wait for the connection, no
//!   further batches are read.
//! - Each group is authorized anew, and finds the table's latest version unless its projection names one.

mod group;
mod keys;
mod plain_stream;
mod projection;
mod results;
mod stream;

pub use stream::LookupStream;
