//! The I/O tier: serves rows by address from local NVMe drives, with one ring per core.
//!
//! ```text
//! node.rs    threads, listener ─► shard/  one core: ring, directory, requests, mailbox
//! serve/     gRPC, streams     ─► fetch.rs ─► stages/   decode, locate, RAM tier, coalesce, read,
//!                                                       assemble, rerank, reply
//! table/     opened versions, packs, projections        fill/   writes chunks to the drives
//! warm/      fills chunks before they are requested
//! slab/      superblocks and journals: what a drive keeps across restarts
//! memory.rs  divides memory             metrics.rs  exported metrics
//! stepped.rs the node without threads, for simulations
//! ```
//!
//! A batch is served entirely on the core whose connection it arrived on. Cores communicate only through
//! mailboxes, and a fetch takes no lock.

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
