//! A shard: one core's part of the node. This folder has the parts of a shard that do not depend on the stages of a
//! fetch: the core's mailbox and its messages, the numbers of requests and streams, grace periods, and counters. The
//! state that the stages work on is in `fetch/core_state.rs`.
//!
//! Everything that belongs to a core stays on the core's thread; other threads send messages to its [`mailbox`].

mod connection;
mod grace;
mod ids;
pub mod mailbox;
mod stats;
pub mod totals;

pub use connection::Accepted;
pub use grace::Grace;
pub use ids::{RequestNo, SessionNo};
pub use stats::{CoreHistograms, CoreSnapshot, CoreStats, DriveCounts};
pub use traffic::{HeldBytes, HeldProjection, ProjectionMemory, TrafficMemory};
