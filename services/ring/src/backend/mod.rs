//! The backends that carry out operations: io_uring, a pool of threads, system calls on the ring's own thread, and a
//! simulated disk.
//!
//! A backend only moves bytes. It does not retry, has no queue beyond the requests it was given, and knows
//! nothing of sinks or futures. It owns a request's buffer from `push` until `reap` returns the buffer. A backend
//! that is dropped keeps each buffer until the kernel no longer uses it.

mod in_place;
mod pread;
mod sim;
mod system_call;
mod task_run;
mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use address::{ByteOffset, DriveNo};

pub(crate) use in_place::InPlace;
pub(crate) use pread::PreadPool;
pub(crate) use sim::SimBackend;
pub use task_run::TaskRun;
pub(crate) use uring::{Registered, Uring, setup as setup_uring};

use crate::AlignedBuf;
use crate::progress::OpKind;
use crate::slots::SlotId;

/// One operation: transfers `len` bytes between the drive at `offset` and `buf` at `start`.
pub(crate) struct Request {
    pub slot: SlotId,
    pub kind: OpKind,
    pub drive: DriveNo,
    pub offset: ByteOffset,
    pub start: u32,
    pub len: u32,
    /// Empty for an fsync.
    pub buf: AlignedBuf,
}

/// The result of a request: the number of bytes transferred, or a positive errno.
pub(crate) struct Completion {
    pub slot: SlotId,
    pub result: Result<u32, i32>,
    pub buf: AlignedBuf,
}

/// A mechanism that carries out operations.
pub(crate) trait Backend {
    /// Accepts a request. At any time, the backend may have at most as many requests as there are slots.
    fn push(&mut self, request: Request);

    /// Submits all pushed requests to the kernel. An error is temporary: no request is lost, and the caller
    /// must try again.
    fn submit(&mut self) -> io::Result<()>;

    /// Appends the available completions to `into`, without blocking.
    fn reap(&mut self, into: &mut Vec<Completion>);

    /// Blocks until there is a completion to collect. At least one submitted request must be in flight.
    fn wait(&mut self) -> io::Result<()>;

    /// Returns a file descriptor that becomes readable when there are completions, or `None` if the caller
    /// must call `reap` repeatedly while anything is in flight.
    fn readiness(&self) -> io::Result<Option<OwnedFd>>;

    /// Returns how long to wait between two calls of `reap` if `readiness` returns `None`. Zero means to
    /// yield to the runtime once.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// Any of the four backends. An enum saves a virtual call for each operation.
pub(crate) enum AnyBackend {
    Uring(Box<Uring>),
    Pread(PreadPool),
    InPlace(InPlace),
    Sim(SimBackend),
}

macro_rules! each {
    ($any:expr, $backend:ident => $call:expr) => {
        match $any {
            AnyBackend::Uring($backend) => $call,
            AnyBackend::Pread($backend) => $call,
            AnyBackend::InPlace($backend) => $call,
            AnyBackend::Sim($backend) => $call,
        }
    };
}

impl Backend for AnyBackend {
    fn push(&mut self, request: Request) {
        each!(self, backend => backend.push(request))
    }

    fn submit(&mut self) -> io::Result<()> {
        each!(self, backend => backend.submit())
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        each!(self, backend => backend.reap(into))
    }

    fn wait(&mut self) -> io::Result<()> {
        each!(self, backend => backend.wait())
    }

    fn readiness(&self) -> io::Result<Option<OwnedFd>> {
        each!(self, backend => backend.readiness())
    }

    fn pause(&self) -> Duration {
        each!(self, backend => backend.pause())
    }
}
