//! The I/O tier: serves rows by address from local NVMe drives, with one ring per core.
//!
//! ```text
//! node/         IoNode, SteppedNode, the thread and event loop of a core, readiness, the warm at the start, the
//!  │            division of memory, metrics: composition only
//!  ├─ serve/    the gRPC edge: streams and their bodies, the other calls, health
//!  ├─ fetch/    one fetch: its stages from decode to reply, and the state of a core that they work on
//!  ├─ cache/    what is on the drives
//!  │   ├─ io/      the filler and its steps: scans, writes, reads, records; carries out what the books decide
//!  │   └─ books/   CacheBooks: events in, actions out; space, extents, shares, eviction, queues. Pure
//!  ├─ shard/    one core's mailbox and messages, grace periods, memory for projections, counters; no stage of a fetch
//!  ├─ drive/    slabs, superblocks, journals and recovery; drives' health
//!  ├─ config    the settings, checked
//!  ├─ extent/   extents, segments, and the directory that finds extents by name
//!  ├─ table/    opened versions of tables, packs, projections
//!  ├─ audit_line  a call's lines in the audit log
//!  └─ error     errors, and their form on the wire
//! ```
//!
//! A module imports only from folders further down in this drawing. `.ci/imports` checks that no imports form a circle,
//! except between a module and its direct children.
//!
//! A batch is served on the core whose connection it arrived on; other threads only read rows from tables for it. Cores
//! communicate only through mailboxes, and a fetch whose rows are all on drives takes no lock that cores share.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod audit_line;
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
    AlsoReadsConfig, DriveConfig, EngineChoice, IoAccess, IoConfig, ShareConfig, StartWarmConfig,
    too_little,
};
pub use drive::{DriveState, LaidOut, Superblock, inspect, lay_out};
pub use error::NodeError;
pub use node::{IoNode, METRICS, Recovery, SteppedNode, SteppedState};
pub use table::label as table_label;
