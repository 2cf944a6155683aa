//! The I/O tier's client: rows by address from one I/O node.
//!
//! ```text
//! fetch(addrs) ─ split at batch_rows_max ─┬─ stream 0: Ledger ─ Batches ─► I/O node, one core
//!                                         └─ stream 1: Ledger ─ Batches ─► I/O node, another core
//!        joined again ◄─ replies, in the order in which they are ready
//! ```
//!
//! Each stream has an HTTP/2 connection of its own and a task of its own ([`driver`]), the only one
//! that touches its [`ledger`]: credits, open projections, what waits and what is outstanding.
//! Whatever waits when the connection takes the next message leaves in that one message; nothing
//! ever waits for a timer.
//!
//! Invariants: rows outstanding never exceed the stream's credit; callers get credit in the order in
//! which they came; every batch is answered exactly once, or its caller has gone; a dropped future
//! cancels its batch; a broken stream fails its batches with `NODE_UNAVAILABLE`, and each is tried
//! once more (batches are idempotent).
//!
//! Not here: which node owns a row, and what to do without it.

mod backoff;
mod context;
mod credit;
mod driver;
#[cfg(test)]
mod fuzz_tests;
mod handles;
mod incoming;
mod job;
mod ledger;
mod link;
mod options;
mod outage;
mod pool;
mod projection;
mod reply;
mod split;
mod state;
mod unary;

pub use context::FetchContext;
pub use distance::Metric;
pub use ledger::UNANSWERED;
pub use options::FetchOptions;
pub use outage::Outage;
pub use pool::FetchClient;
pub use projection::{Projection, Rerank, TableVersion};
pub use reply::{Outcome, Reply, Trip, TripTimeline, Trips, add_counts};
pub use state::Counters;
pub use tokio::time::Instant;
pub use unary::WarmStream;
pub use wire::fetch::{Priority, StageTimes};
