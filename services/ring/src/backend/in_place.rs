//! System calls on the ring's own thread, for drives that are memory.
//!
//! tmpfs offers no reads that give up rather than wait, so io_uring hands each to a worker thread: a
//! 4 KiB read then costs two switches for a copy of a microsecond (fio: 0.35 M reads/s that way, 0.67 M
//! with pread, one thread each). There is nothing to wait for, so there is nothing to overlap either:
//! what was pushed is carried out when it's submitted.

use std::io;
use std::os::fd::OwnedFd;

use super::system_call::carry_out;
use super::{Backend, Completion, Request};
use crate::SlabFile;

/// See the module.
pub(crate) struct InPlace {
    files: Vec<SlabFile>,
    /// Pushed, not yet submitted.
    outbox: Vec<Request>,
    /// Done, not yet reaped.
    done: Vec<Completion>,
}

impl InPlace {
    pub fn start(files: &[SlabFile]) -> Self {
        Self { files: files.to_vec(), outbox: Vec::new(), done: Vec::new() }
    }
}

impl Backend for InPlace {
    fn push(&mut self, request: Request) {
        self.outbox.push(request);
    }

    fn submit(&mut self) -> io::Result<()> {
        let files = &self.files;
        self.done.extend(self.outbox.drain(..).map(|request| carry_out(files, request)));
        Ok(())
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }

    fn wait(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn readiness(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}
