//! A pool of threads in place of io_uring.
//!
//! A request moves to a thread with its buffer, and back with its completion; the ring's thread
//! never waits for the pool but in `wait`. Completions that pile up cost one wake-up (an eventfd),
//! not one each. The pool belongs to one ring: threads of two cores share nothing here.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::system_call::carry_out;
use super::{Backend, Completion, Request};
use crate::SlabFile;

/// See the module.
pub(crate) struct PreadPool {
    shared: Arc<Shared>,
    /// Pushed, not yet submitted.
    outbox: Vec<Request>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    files: Vec<SlabFile>,
    jobs: Mutex<Jobs>,
    job_came: Condvar,
    done: Mutex<Vec<Completion>>,
    done_came: Condvar,
    wake: EventFd,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Request>,
    closed: bool,
}

impl PreadPool {
    /// Starts the threads.
    pub fn start(files: &[SlabFile], threads: u32) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let mut pool = Self {
            shared: Arc::new(Shared {
                files: files.to_vec(),
                jobs: Mutex::default(),
                job_came: Condvar::new(),
                done: Mutex::default(),
                done_came: Condvar::new(),
                wake: EventFd::from_flags(flags)?,
            }),
            outbox: Vec::new(),
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("pread-{number}"));
            pool.threads.push(thread.spawn(move || shared.work())?);
        }
        Ok(pool)
    }
}

impl Backend for PreadPool {
    fn push(&mut self, request: Request) {
        self.outbox.push(request);
    }

    fn submit(&mut self) -> io::Result<()> {
        let count = self.outbox.len();
        lock(&self.shared.jobs).queue.extend(self.outbox.drain(..));
        for _ in 0..count.min(self.threads.len()) {
            self.shared.job_came.notify_one();
        }
        Ok(())
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut lock(&self.shared.done));
    }

    fn wait(&mut self) -> io::Result<()> {
        let done = lock(&self.shared.done);
        let waited = self.shared.done_came.wait_while(done, |done| done.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn readiness(&self) -> io::Result<Option<OwnedFd>> {
        // The counter is never read: the driver is woken by each change of it, and it can't
        // overflow in 500 years of a wake-up a nanosecond.
        self.shared.wake.as_fd().try_clone_to_owned().map(Some)
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let jobs = lock(&self.jobs);
            let waited =
                self.job_came.wait_while(jobs, |jobs| jobs.queue.is_empty() && !jobs.closed);
            let Some(request) = waited.unwrap_or_else(PoisonError::into_inner).queue.pop_front()
            else {
                return;
            };
            let completion = carry_out(&self.files, request);
            let mut done = lock(&self.done);
            let first = done.is_empty();
            done.push(completion);
            drop(done);
            if first {
                self.done_came.notify_one();
                // Only a full counter can fail, and then the fd is readable anyway.
                let _ = self.wake.write(1);
            }
        }
    }
}

impl Drop for PreadPool {
    fn drop(&mut self) {
        lock(&self.shared.jobs).closed = true;
        self.shared.job_came.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
