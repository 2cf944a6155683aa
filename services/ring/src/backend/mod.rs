//! What carries operations out. Four of a kind: io_uring, a pool of threads, the ring's own thread, a
//! simulated disk.
//!
//! A backend moves bytes and nothing else: it doesn't retry, doesn't queue beyond what it's given,
//! and knows neither sinks nor futures. It owns a request's buffer from `push` until `reap` hands it
//! out again, and doesn't let go of it on drop before the kernel has.

mod in_place;
mod pread;
mod sim;
mod system_call;
mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use address::{ByteOffset, DriveNo};

pub(crate) use in_place::InPlace;
pub(crate) use pread::PreadPool;
pub(crate) use sim::SimBackend;
pub(crate) use uring::{Registered, Uring, setup as setup_uring};

use crate::AlignedBuf;
use crate::progress::Kind;
use crate::slots::SlotId;

/// One operation: `len` bytes at `offset` of the drive, from or to `start` in `buf`.
pub(crate) struct Request {
    pub slot: SlotId,
    pub kind: Kind,
    pub drive: DriveNo,
    pub offset: ByteOffset,
    pub start: u32,
    pub len: u32,
    /// Empty for a sync.
    pub buf: AlignedBuf,
}

/// How it ended: the bytes moved, or a positive errno.
pub(crate) struct Completion {
    pub slot: SlotId,
    pub result: Result<u32, i32>,
    pub buf: AlignedBuf,
}

/// See the module.
pub(crate) trait Backend {
    /// Takes a request. At most as many as there are slots are with the backend at a time.
    fn push(&mut self, request: Request);

    /// Hands everything pushed to the kernel. An error is temporary: nothing is lost, ask again.
    fn submit(&mut self) -> io::Result<()>;

    /// Appends the completions that are there, without blocking.
    fn reap(&mut self, into: &mut Vec<Completion>);

    /// Blocks until there is a completion to reap. To be called only with a request submitted.
    fn wait(&mut self) -> io::Result<()>;

    /// What turns readable when there are completions; `None` if `reap` has to be called as long as
    /// something is in flight.
    fn readiness(&self) -> io::Result<Option<OwnedFd>>;

    /// How long to wait between two calls of `reap` where `readiness` is `None`; zero for a turn of the runtime.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// One of the four, without a virtual call for each operation.
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
