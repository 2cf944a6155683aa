//! The client of one I/O node: fetches rows by address.
//!
//! ```text
//! fetch(addrs) ─ split at batch_rows_max ─┬─ stream 0: Ledger ─ Batches ─► I/O node, one core
//!                                         └─ stream 1: Ledger ─ Batches ─► I/O node, another core
//!        joined again ◄─ replies, in the order in which they are ready
//! ```
//!
//! Each stream has its own HTTP/2 connection and its own task ([`driver`]). Only that task uses the stream's
//! [`ledger`]: credits, open projections, waiting and outstanding batches. When the connection takes the next message,
//! that message carries all waiting batches for which there is credit and room. No batch waits for a timer.
//!
//! Invariants:
//! - The rows outstanding on a stream never exceed its credit.
//! - Each flow (the callers under one grant) gets credit in proportion to its weight, and callers of a flow with the
//!   same priority get it in the order of their arrival. While several flows are active, a flow that has used its share
//!   of the credit gets no more, so that one flow cannot use up the credit of the others.
//! - Every batch is answered exactly once, unless its caller is gone.
//! - A dropped future cancels its batch.
//! - If a stream breaks, its batches fail with `NODE_UNAVAILABLE`, and each is tried once more, because batches are
//!   idempotent. Opens of projections are not tried again.
//!
//! This module does not know which node owns a row, or what to do if the node cannot be reached.

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
pub use ledger::{OPENING, UNANSWERED};
pub use options::FetchOptions;
pub use outage::Outage;
pub use pool::FetchClient;
pub use projection::{Projection, Rerank, TableFile, TableVersion};
pub use reply::{Outcome, Reply, Trip, TripTimeline, Trips, add_counts};
pub use scheduler::{Flow, Priority};
pub use state::Counters;
pub use tokio::time::Instant;
pub use unary::WarmStream;
pub use wire::fetch::{Predicate, StageTimes};
