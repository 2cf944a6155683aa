//! Which threads do a fill's work.
//!
//! Scans, encoding and the copies that are written are nearly all of what a fill costs, and nobody waits for them: they
//! run on a thread that yields to all others, so that reads don't feel them. Where reads use the CPUs up such a thread
//! gets next to nothing; then another takes everything that is under way over, which has stepped back too, but gets its
//! part. So each runtime of fills has two threads, of which one at a time drives it:
//!
//! ```text
//! yielding    ███████████░░░ waits for a CPU ░░░█                 ██████████
//! insisting                       no turn came ─►████████████████─► tries again
//! ```
//!
//! Threads that read files for it belong to whichever drove when they started: those of a table in a folder stay with
//! the yielding one's share of a CPU. What comes from an object store has none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{Notify, watch};

/// How often it is asked whether the yielding thread gets its turns.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// A turn that is longer in coming says that there is no CPU for it: while there is one, what it is busy with takes some
/// ten milliseconds.
const TURN_MAX: Duration = Duration::from_millis(200);
/// How long the other drives before the yielding one is tried again: first, and at most. A try that fails may cost
/// seconds: what the thread has begun has its third of a percent of a CPU until it next waits for something.
const TAKEN_FIRST: Duration = Duration::from_secs(4);
const TAKEN_MAX: Duration = Duration::from_secs(64);

/// Where steps of fills run, each on the next of several runtimes.
pub struct FillThreads {
    handles: Vec<Handle>,
    next: usize,
}

impl FillThreads {
    /// Those of these, of which there is one at least.
    pub fn of(lanes: &[FillLane]) -> Self {
        let handles = lanes.iter().map(|lane| lane.handle.clone()).collect();
        Self { handles, next: 0 }
    }

    /// Those of a runtime that does everything else too.
    pub fn shared(handle: Handle) -> Self {
        Self { handles: vec![handle], next: 0 }
    }

    /// Where the next step is to run.
    pub fn next(&mut self) -> &Handle {
        self.next = (self.next + 1) % self.handles.len();
        &self.handles[self.next]
    }
}

/// A runtime of fills and its two threads, until dropped.
pub struct FillLane {
    handle: Handle,
    ended: Arc<Ended>,
    insisting: Thread,
}

/// Whether the threads are to end.
#[derive(Default)]
struct Ended {
    flag: AtomicBool,
    /// Wakes whoever drives the runtime; who waits outside is unparked.
    notify: Notify,
}

impl FillLane {
    /// Starts its threads.
    ///
    /// # Errors
    /// A runtime or a thread that can't be had.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            // Who drives looks after each task whether the other wants to, and lets in who asks for a turn.
            .event_interval(1)
            .global_queue_interval(1)
            // Of its threads for files.
            .thread_name("bireme-io-fill")
            .on_thread_start(process::step_back)
            .build()?;
        let runtime = Arc::new(runtime);
        let handle = runtime.handle().clone();
        let ended = Arc::new(Ended::default());
        let (taken, is_taken) = watch::channel(false);
        let yielding = Arc::clone(&runtime);
        thread("bireme-io-yield", move || {
            process::yield_to_all();
            drive_while_free(&yielding, is_taken);
        })?;
        let insisting = Insisting { runtime, taken, ended: Arc::clone(&ended) };
        let insisting = thread("bireme-io-insist", move || {
            process::step_back();
            insisting.run();
        })?;
        Ok(Self { handle, ended, insisting: insisting.thread().clone() })
    }
}

impl Drop for FillLane {
    fn drop(&mut self) {
        self.ended.flag.store(true, Ordering::Release);
        self.ended.notify.notify_one();
        self.insisting.unpark();
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).spawn(run)
}

/// The yielding thread: it drives the runtime whenever the other doesn't, until that has ended.
fn drive_while_free(runtime: &Runtime, mut taken: watch::Receiver<bool>) {
    loop {
        // What is waited for is a lock, which is let go within: the other takes it next.
        if !block_on(async { taken.wait_for(|taken| !taken).await.is_ok() }) {
            return;
        }
        if !runtime.block_on(async { taken.wait_for(|&taken| taken).await.is_ok() }) {
            return;
        }
    }
}

/// The insisting thread.
struct Insisting {
    runtime: Arc<Runtime>,
    taken: watch::Sender<bool>,
    ended: Arc<Ended>,
}

impl Insisting {
    fn run(self) {
        let mut taken_for = TAKEN_FIRST;
        let mut given_back = Instant::now();
        while !self.ended.flag.load(Ordering::Acquire) {
            if self.yielding_has_turns() {
                std::thread::park_timeout(ASK_EVERY);
                continue;
            }
            taken_for = match given_back.elapsed() < 2 * (ASK_EVERY + TURN_MAX) {
                true => TAKEN_MAX.min(2 * taken_for),
                false => TAKEN_FIRST,
            };
            tracing::debug!(?taken_for, "fills get no CPU that nobody else wants; now they insist");
            self.taken.send_replace(true);
            let ended = self.ended.notify.notified();
            self.runtime.block_on(async {
                // Runs once the other has left: after what it is polling, for which it has its share of a CPU.
                let _ = tokio::spawn(async {}).await;
                let _ = tokio::time::timeout(taken_for, ended).await;
            });
            self.taken.send_replace(false);
            given_back = Instant::now();
        }
    }

    fn yielding_has_turns(&self) -> bool {
        let (came, turn) = sync_channel(1);
        self.runtime.spawn(async move { came.send(()) });
        // A runtime that has ended drops its tasks.
        !matches!(turn.recv_timeout(TURN_MAX), Err(RecvTimeoutError::Timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also on a machine whose CPUs are used up: a thread that was taken over for may wait for its turn that long.
    const DEADLINE: Duration = TAKEN_MAX.saturating_mul(3);

    fn this_thread() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    #[test]
    fn what_is_under_way_is_taken_over_where_no_turn_comes_and_given_back() {
        let lane = FillLane::start().unwrap();
        let (tell, told) = sync_channel(1);
        // Under way all the time, it answers whoever drives when it is asked.
        let (ask, mut asked) = tokio::sync::mpsc::channel::<()>(1);
        lane.handle.spawn(async move {
            while asked.recv().await.is_some() {
                tell.send(this_thread()).unwrap();
            }
        });
        let until_driven_by = |name: &str| {
            let driver = || {
                ask.blocking_send(()).unwrap();
                told.recv_timeout(DEADLINE).unwrap()
            };
            let began = Instant::now();
            while driver() != name {
                assert!(began.elapsed() < DEADLINE, "{name} never drives it");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until_driven_by("bireme-io-yield");
        // As if it had no CPU.
        lane.handle.spawn(async { std::thread::sleep(2 * (ASK_EVERY + TURN_MAX)) });
        until_driven_by("bireme-io-insist");
        until_driven_by("bireme-io-yield");
    }

    #[test]
    fn its_threads_end_with_it_and_what_runs_on_them() {
        let lane = FillLane::start().unwrap();
        let (held, is_held) = sync_channel::<()>(1);
        lane.handle.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(lane);
        assert_eq!(is_held.recv_timeout(DEADLINE), Err(RecvTimeoutError::Disconnected));
    }
}
