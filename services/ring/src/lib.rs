//! Asynchronous drive I/O for one core, over one io_uring. A read needs no task and no allocation of its own, and a
//! write returns its buffer. A pool of threads, plain system calls or a simulated disk can take io_uring's place.
//!
//! # Invariants
//!
//! - A slot has at most one operation in flight. The backend owns that operation's buffer from submission to
//!   completion, even if the caller goes away in the meantime.
//! - An operation's `user_data` is its slot's index and generation, never a pointer.
//! - Completions are first collected and then delivered. While they are delivered, no state of the ring is borrowed, so
//!   a sink may call any method of the ring.
//! - Every queue has a maximum length. An operation that exceeds it is refused with a typed error.
//! - A ring waits for all operations in the kernel before it frees any memory.
//!
//! # The path of a read
//!
//! ```text
//! Ring::read -> queue (FIFO, bounded) --Ring::submit--> slot + buffer -> backend -> kernel
//!                 | sink dropped: discarded, no read              |
//!                 v                                               v
//!                                     ReadSink::read_done <- checked <- collected in a batch
//! ```
//!
//! # What it deliberately does not do
//!
//! A ring knows nothing of extents, checksums or requests. It does not coalesce reads, has no timers (only the ticks of
//! a simulated disk may sleep), and never moves work between cores. It reads the clock only to report to sinks when a
//! batch of completions was collected. Polled completions (`IOPOLL`) are not implemented. The place for them is
//! `backend/uring.rs`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod affinity;
mod aligned;
mod backend;
mod config;
mod describe;
pub mod device;
mod error;
mod fault;
mod ledger;
mod probe;
mod progress;
mod read_queue;
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

pub use aligned::AlignedBuf;
pub use backend::TaskRun;
pub use config::{ConfigError, Engine, RingConfig};
pub use describe::{EngineInUse, RingDescription};
pub use error::{ReadError, Returned, StartError, WriteError};
pub use fault::DriveFault;
pub use probe::{IoUringSupport, IoUringUnavailable, probe};
pub use ring::{Drain, Ring, submit_all};
pub use sink::ReadSink;
pub use slab::{Direct, OpenOptions, SlabFile};
pub use slab_error::SlabError;
pub use stats::RingStats;
pub use transfer::{Fsync, ReadOwned, Write};
