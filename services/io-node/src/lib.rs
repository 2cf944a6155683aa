//! The I/O tier: rows by address, from local NVMe drives, a ring a core.
//!
//! ```text
//! node.rs    threads, listener ─► core/   one core: ring, directory, requests, mailbox
//! serve/     gRPC, streams     ─► fetch.rs ─► stages/   decode, locate, RAM tier, coalesce, read,
//!                                                       assemble, rerank, reply
//! table/     opened versions, packs, projections        fill/   chunks onto the drives
//! warm/      chunks filled ahead of their use
//! slab/      whose a drive is, and what of it outlives the process
//! memory.rs  where memory goes          metrics.rs  what is told of it all
//! stepped.rs the same node without threads, for simulations
//! ```
//!
//! A batch is served whole on the core whose connection it came over. Between cores there are only
//! mailboxes; nothing on the way of a fetch takes a lock.

mod config;
mod directory;
mod error;
mod fetch;
mod fill;
mod memory;
mod metrics;
mod node;
mod readiness;
mod serve;
mod shard;
mod slab;
mod stages;
mod stepped;
mod table;
mod table_rows;
mod warm;

pub use config::{
    Admission, AlsoReadsConfig, DriveConfig, EngineChoice, IoConfig, ShareConfig, StartWarmConfig,
};
pub use error::NodeError;
pub use fill::{DriveState, simulate};
pub use metrics::METRICS;
pub use node::{IoNode, Recovery};
pub use slab::{LaidOut, Superblock, inspect, lay_out, too_little};
pub use stepped::{SteppedNode, SteppedState};
pub use table::label as table_label;
