//! The simulated disk as a backend: a tick a reap.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::{Backend, Completion, Request};
use crate::sim::{RingNo, SimDisk};

/// See the module.
pub(crate) struct SimBackend {
    disk: SimDisk,
    ring: RingNo,
    now: u64,
    /// Pushed, not yet submitted.
    outbox: Vec<Request>,
    /// Somebody blocks: the next reap ends everything, whatever its latency and though it's held.
    in_a_hurry: bool,
}

impl SimBackend {
    pub fn start(disk: &SimDisk) -> Self {
        Self {
            disk: disk.clone(),
            ring: disk.join(),
            now: 0,
            outbox: Vec::new(),
            in_a_hurry: false,
        }
    }
}

impl Backend for SimBackend {
    fn push(&mut self, request: Request) {
        self.outbox.push(request);
    }

    fn submit(&mut self) -> io::Result<()> {
        for request in self.outbox.drain(..) {
            self.disk.push(self.ring, self.now, request);
        }
        Ok(())
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        self.now += 1;
        match std::mem::take(&mut self.in_a_hurry) {
            true => self.disk.finish(self.ring, into),
            false => self.disk.complete(self.ring, self.now, into),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.in_a_hurry = true;
        Ok(())
    }

    fn readiness(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn pause(&self) -> Duration {
        self.disk.tick()
    }
}

impl Drop for SimBackend {
    fn drop(&mut self) {
        self.disk.finish(self.ring, &mut Vec::new());
    }
}
