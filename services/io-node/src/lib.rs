//! The I/O tier: serves rows by address from local NVMe drives, with one ring per core.
//!
//! ```text
//! node/       IoNode, SteppedNode, the threads and event loop of a core, readiness, the warm at the start, memory,
//!   │         metrics: composition only
//!   ├─ serve/       the gRPC edge: streams, bodies, calls, health
//!   │    └─ fetch/  one fetch: decode, admit, locate, RAM tier, coalesce, read, assemble, rerank, reply, and the
//!   │         │     core's state
//!   ├─ cache/       what is on the drives: books/ keeps the records and decides, io/ carries out
//!   ├─ shard/       one core's mailbox, grace periods, counters: knows no stage
//!   ├─ drive/       slabs, superblocks and journals: what a drive keeps across restarts; drives' health
//!   ├─ config       the settings, checked
//!   ├─ extent/      extents, and the directory that finds them     table/   opened versions, packs, projections
//!   └─ error
//! ```
//!
//! A batch is served entirely on the core whose connection it arrived on. Cores communicate only through
//! mailboxes, and a fetch takes no lock.

mod cache;
mod config;
mod drive;
mod error;
mod extent;
mod fetch;
mod node;
mod serve;
mod shard;
mod table;

pub use cache::simulate;
pub use config::{
    Admission, AlsoReadsConfig, DriveConfig, EngineChoice, IoConfig, ShareConfig, StartWarmConfig,
    too_little,
};
pub use drive::{DriveState, LaidOut, Superblock, inspect, lay_out};
pub use error::NodeError;
pub use node::{IoNode, METRICS, Recovery, SteppedNode, SteppedState};
pub use table::label as table_label;
