//! The simulated disk as a backend. Each `reap` advances the time by one tick.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::{Backend, Completion, Request};
use crate::sim::{RingNo, SimDisk};

/// The backend of simulated drives.
pub(crate) struct SimBackend {
    disk: SimDisk,
    ring: RingNo,
    now: u64,
    /// Requests pushed but not submitted.
    outbox: Vec<Request>,
    /// Whether `wait` was called since the last `reap`. The next `reap` then completes everything, regardless of
    /// latencies, even if the disk is held or a drive hangs.
    complete_all: bool,
}

impl SimBackend {
    pub fn start(disk: &SimDisk) -> Self {
        Self {
            disk: disk.clone(),
            ring: disk.add_ring(),
            now: 0,
            outbox: Vec::new(),
            complete_all: false,
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
        match std::mem::take(&mut self.complete_all) {
            true => self.disk.finish(self.ring, into),
            false => self.disk.complete(self.ring, self.now, into),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.complete_all = true;
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
