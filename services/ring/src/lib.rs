//! One io_uring of one core: reads that cost no task and no allocation, writes that give their
//! buffer back, and a pool of threads or a simulated disk in its place where that is wanted.
//!
//! # Invariants
//!
//! - A slot has at most one operation in flight, and the buffer of that operation belongs to the
//!   backend from submission to completion. Whoever asked for it may go away at any time; the
//!   buffer stays.
//! - `user_data` is a slot's index with a generation, never a pointer.
//! - Completions are collected first and run afterwards, with nothing borrowed: a sink may call
//!   any method of the ring.
//! - Every queue has a bound, and what is over it is refused with a typed error.
//! - A ring waits for what the kernel still does before it frees anything.
//!
//! # The way of a read
//!
//! ```text
//! Ring::read -> waiting (FIFO, bounded) --Ring::submit--> slot + buffer -> backend -> kernel
//!                   | sink gone: discarded, no read               |
//!                   v                                             v
//!                                     ReadSink::read_done <- judged <- collected in a batch
//! ```
//!
//! # What it deliberately does not do
//!
//! It knows nothing of extents, checksums or requests, doesn't coalesce, has no timer and never moves
//! work between cores. Of the clock it only says when a batch of completions was collected. Polled
//! completions (`IOPOLL`) and huge pages have a place in `backend/uring.rs` and `aligned.rs`, and aren't
//! built.

pub mod affinity;
mod aligned;
mod backend;
mod config;
mod describe;
pub mod device;
mod driver;
mod error;
mod fault;
mod ledger;
mod probe;
mod progress;
mod ring;
pub mod sim;
mod sink;
mod slab;
mod slab_error;
mod slots;
mod stats;
mod transfer;
mod transfer_limits;
mod transfer_queues;
mod waiting;

pub use aligned::AlignedBuf;
pub use config::{ConfigError, Engine, RingConfig};
pub use describe::{EngineInUse, RingDescription};
pub use driver::submit_all;
pub use error::{ReadError, Returned, StartError, WriteError};
pub use fault::Fault;
pub use probe::{IoUringSupport, TaskRun, WhyNot, probe};
pub use ring::{Drain, Ring};
pub use sink::ReadSink;
pub use slab::{Direct, OpenOptions, SlabFile};
pub use slab_error::SlabError;
pub use stats::RingStats;
pub use transfer::{ReadOwned, Sync, Write};
