//! A pool of threads that takes io_uring's place.
//!
//! A request moves to a thread together with its buffer, and both come back with the completion. The ring's thread
//! blocks on the pool only in `wait`, and when the pool is dropped. Completions that accumulate cause a single wake-up
//! (by an eventfd), not one each. A pool belongs to one ring, so the pools of two cores share nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::system_call::carry_out;
use super::{Backend, Completion, Request};
use crate::SlabFile;

/// The backend of blocking system calls on other threads.
pub(crate) struct PreadPool {
    state: Arc<PoolState>,
    /// Requests pushed but not submitted.
    outbox: Vec<Request>,
    threads: Vec<JoinHandle<()>>,
}

struct PoolState {
    files: Vec<SlabFile>,
    jobs: Mutex<Jobs>,
    job_added: Condvar,
    done: Mutex<Vec<Completion>>,
    completion_added: Condvar,
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
            state: Arc::new(PoolState {
                files: files.to_vec(),
                jobs: Mutex::default(),
                job_added: Condvar::new(),
                done: Mutex::default(),
                completion_added: Condvar::new(),
                wake: EventFd::from_flags(flags)?,
            }),
            outbox: Vec::new(),
            threads: Vec::new(),
        };
        for number in 0..threads {
            let state = Arc::clone(&pool.state);
            let thread = std::thread::Builder::new().name(format!("pread-{number}"));
            pool.threads.push(thread.spawn(move || state.work())?);
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
        lock(&self.state.jobs).queue.extend(self.outbox.drain(..));
        for _ in 0..count.min(self.threads.len()) {
            self.state.job_added.notify_one();
        }
        Ok(())
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut lock(&self.state.done));
    }

    fn wait(&mut self) -> io::Result<()> {
        let done = lock(&self.state.done);
        let waited = self.state.completion_added.wait_while(done, |done| done.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn readiness(&self) -> io::Result<Option<OwnedFd>> {
        // The counter is never read, because every change of it wakes the driver. At a wake-up per nanosecond
        // it would take 500 years to overflow.
        self.state.wake.as_fd().try_clone_to_owned().map(Some)
    }
}

impl PoolState {
    fn work(&self) {
        loop {
            let jobs = lock(&self.jobs);
            let waited =
                self.job_added.wait_while(jobs, |jobs| jobs.queue.is_empty() && !jobs.closed);
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
                self.completion_added.notify_one();
                // The write can only fail if the counter is full, and then the descriptor is readable anyway.
                let _ = self.wake.write(1);
            }
        }
    }
}

impl Drop for PreadPool {
    fn drop(&mut self) {
        lock(&self.state.jobs).closed = true;
        self.state.job_added.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to clean up.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
