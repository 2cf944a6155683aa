//! The threads that do the work of fills.
//!
//! Scans, encoding and copying for writes are nearly all of a fill's cost, and no fetch waits for them. They run on a
//! *yielding* thread, which gives way to all other threads, so that reads are not slowed down. When reads use all CPUs,
//! the yielding thread gets almost no time. Then an *insisting* thread takes over the work under way: its priority is
//! lowered too, but it gets a share of a CPU. So each runtime of fills has two threads, and only one of them drives it
//! at any time:
//!
//! ```text
//! yielding    ███████████░░░ waits for a CPU ░░░█                 ██████████
//! insisting                    not scheduled ─►████████████████─► tries again
//! ```
//!
//! The runtime's threads for blocking file reads inherit the priority of the thread that started them. If the yielding
//! thread started them, reads of a table in a folder stay as slow as its share of a CPU, even after the insisting
//! thread has taken over. Tables in object stores need no such threads.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{Notify, watch};

/// The interval at which the insisting thread checks that the yielding thread is scheduled. With [`TURN_MAX`], fills
/// stand still for at most 0.4 s before they are taken over. Each check wakes both threads, so it is not made more
/// often.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// If a task has waited for the yielding thread for this long, no CPU is idle: with an idle CPU, the task before it
/// takes about ten milliseconds.
const TURN_MAX: Duration = Duration::from_millis(200);
/// The time for which the insisting thread drives the runtime before it first hands the runtime back, to try whether
/// the yielding thread gets CPU time again. The time doubles with each failed try. A failed try may cost seconds,
/// because the yielding thread gets only a third of a percent of a CPU until its task next waits.
const TAKEN_FIRST: Duration = Duration::from_secs(4);
/// The maximum time for which the insisting thread drives the runtime before it hands the runtime back. When reads no
/// longer use all CPUs, the insisting thread may still slow them down for this long. Shorter times would spend more of
/// a saturated node's time on failed tries.
const TAKEN_MAX: Duration = Duration::from_secs(64);
/// The maximum time from [`FillLane::end`] until the lane's drop returns, while a task of the lane is still polled.
/// Lanes that are ended together, before the first is dropped, wait for this long together. A poll takes milliseconds,
/// or a few seconds on a machine without an idle CPU.
const END_MAX: Duration = Duration::from_secs(5);

/// The runtimes on which steps of fills run, in turn.
pub struct FillThreads {
    handles: Vec<Handle>,
    next: usize,
}

impl FillThreads {
    /// Runs steps on `lanes` in turn. There must be at least one.
    pub fn from_lanes(lanes: &[FillLane]) -> Self {
        let handles = lanes.iter().map(|lane| lane.handle.clone()).collect();
        Self { handles, next: 0 }
    }

    /// Runs all steps on `handle`, the runtime of all other work.
    pub fn shared(handle: Handle) -> Self {
        Self { handles: vec![handle], next: 0 }
    }

    /// The runtime for the next step.
    pub fn next(&mut self) -> &Handle {
        self.next = (self.next + 1) % self.handles.len();
        &self.handles[self.next]
    }
}

/// A runtime for fills and its two threads, which end when it is dropped.
pub struct FillLane {
    handle: Handle,
    ended: Arc<Ended>,
    insisting: Thread,
    /// The time until which the drop waits; `None` before the lane is ended.
    wait_until: Option<Instant>,
    /// Is disconnected when both threads have stopped polling tasks. The mutex makes it `Sync`; nobody locks it.
    idle: Mutex<Receiver<()>>,
}

/// The signal for both threads to end.
#[derive(Default)]
struct Ended {
    flag: AtomicBool,
    /// Wakes the insisting thread while it drives the runtime. At other times that thread is parked, and `unpark` wakes
    /// it, or it waits for [`TURN_MAX`] at most. The yielding thread ends after the insisting one.
    notify: Notify,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the end waits for real threads; a SteppedNode has none"
)]
impl FillLane {
    /// Starts the runtime and its threads.
    ///
    /// # Errors
    /// A runtime or thread could not be created.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            // After each task, the thread that drives the runtime checks whether the other thread wants to drive it.
            .event_interval(1)
            .global_queue_interval(1)
            // The name of the runtime's threads for files.
            .thread_name("bireme-io-fill")
            .on_thread_start(process::step_back)
            .build()?;
        let runtime = Arc::new(runtime);
        let handle = runtime.handle().clone();
        let ended = Arc::new(Ended::default());
        let (taken, is_taken) = watch::channel(false);
        let yielding = Arc::clone(&runtime);
        let (busy, idle) = sync_channel(0);
        thread("bireme-io-yield", move || {
            process::yield_to_all();
            drive_while_free(&yielding, is_taken);
            // The insisting thread has ended. The end of the runtime, after this, waits for reads of files.
            drop(busy);
        })?;
        let insisting = Insisting { runtime, taken, ended: Arc::clone(&ended) };
        let insisting = thread("bireme-io-insist", move || {
            process::step_back();
            insisting.run();
        })?;
        let (insisting, idle) = (insisting.thread().clone(), Mutex::new(idle));
        Ok(Self { handle, ended, insisting, wait_until: None, idle })
    }

    /// Tells the threads to end, without waiting for them. Returns the time until which the drop waits, as the first
    /// call sets it.
    pub fn end(&mut self) -> Instant {
        self.ended.flag.store(true, Ordering::Release);
        self.ended.notify.notify_one();
        self.insisting.unpark();
        *self.wait_until.get_or_insert_with(|| Instant::now() + END_MAX)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the end waits for real threads; a SteppedNode has none"
)]
impl Drop for FillLane {
    /// Waits until no task is polled any more, for at most `END_MAX` from the first [`end`](Self::end). The owner ends
    /// other runtimes after this, and a task that polls a timer of an ended runtime panics: the body of a store's
    /// answer has such a timer, of the runtime that sent the request.
    fn drop(&mut self) {
        let wait = self.end().saturating_duration_since(Instant::now());
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        if idle.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(waited = ?END_MAX, "a step of a fill does not end; it may fail with a panic");
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).spawn(run)
}

/// The yielding thread: drives the runtime whenever the insisting thread doesn't, until that thread has ended.
fn drive_while_free(runtime: &Runtime, mut taken: watch::Receiver<bool>) {
    loop {
        // `Runtime::block_on` below holds the runtime's lock until it returns. This `block_on` waits without the lock,
        // so that the other thread gets it.
        if !block_on(async { taken.wait_for(|taken| !taken).await.is_ok() }) {
            return;
        }
        if !runtime.block_on(async { taken.wait_for(|&taken| taken).await.is_ok() }) {
            return;
        }
    }
}

/// The insisting thread's state.
struct Insisting {
    runtime: Arc<Runtime>,
    taken: watch::Sender<bool>,
    ended: Arc<Ended>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "these threads follow the real load of CPUs; a SteppedNode has none"
)]
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
            tracing::debug!(
                ?taken_for,
                "no CPU is idle for fills; the insisting thread takes over"
            );
            self.taken.send_replace(true);
            let ended = self.ended.notify.notified();
            self.runtime.block_on(async {
                // The spawned task runs once the yielding thread has finished its current poll of a task and has left
                // the runtime.
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
        // The channel is disconnected if the runtime has ended and dropped the task. Then there is nothing to take
        // over.
        !matches!(turn.recv_timeout(TURN_MAX), Err(RecvTimeoutError::Timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than a thread waits to be scheduled on a machine without idle CPUs.
    const DEADLINE: Duration = TAKEN_MAX.saturating_mul(3);

    fn this_thread() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    #[test]
    fn tasks_are_taken_over_when_the_yielding_thread_gets_no_cpu_and_given_back() {
        let lane = FillLane::start().unwrap();
        let (answer, answers) = sync_channel(1);
        // The task is under way all the time, and answers with the name of the thread that polls it.
        let (ask, mut asked) = tokio::sync::mpsc::channel::<()>(1);
        lane.handle.spawn(async move {
            while asked.recv().await.is_some() {
                answer.send(this_thread()).unwrap();
            }
        });
        let until_driven_by = |name: &str| {
            let driver = || {
                ask.blocking_send(()).unwrap();
                answers.recv_timeout(DEADLINE).unwrap()
            };
            let began = Instant::now();
            while driver() != name {
                assert!(began.elapsed() < DEADLINE, "{name} never drives it");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until_driven_by("bireme-io-yield");
        // Blocks the yielding thread, as if it had no CPU.
        lane.handle.spawn(async { std::thread::sleep(2 * (ASK_EVERY + TURN_MAX)) });
        until_driven_by("bireme-io-insist");
        until_driven_by("bireme-io-yield");
    }

    #[test]
    fn no_task_is_polled_after_a_lane_is_dropped() {
        for tries_left in (0..3).rev() {
            let other = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let other = other.unwrap();
            // The lane's task polls a timer of the other runtime, like the body of an answer from a store.
            let mut timer = {
                let _entered = other.enter();
                Box::pin(tokio::time::sleep(DEADLINE))
            };
            let lane = FillLane::start().unwrap();
            let task = lane.handle.spawn(async move {
                loop {
                    let _ = futures::poll!(&mut timer);
                    tokio::task::yield_now().await;
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            let began = Instant::now();
            drop(lane);
            let waited = began.elapsed();
            other.shutdown_background();
            let ended: Result<(), _> = block_on(task);
            if ended.unwrap_err().is_cancelled() {
                return;
            }
            // The drop waits for at most END_MAX, and on a busy machine a poll may take longer.
            assert!(waited >= END_MAX && tries_left > 0, "it panicked; the drop took {waited:?}");
        }
    }

    #[test]
    fn lanes_that_are_ended_together_wait_together() {
        let mut lanes = [FillLane::start().unwrap(), FillLane::start().unwrap()];
        let (begin, begun) = sync_channel(2);
        for lane in &lanes {
            let begin = begin.clone();
            lane.handle.spawn(async move {
                begin.send(()).unwrap();
                // One poll, which takes longer than all lanes may wait.
                std::thread::sleep(3 * END_MAX);
            });
        }
        lanes.iter().for_each(|_| begun.recv_timeout(DEADLINE).unwrap());
        let began = Instant::now();
        for lane in &mut lanes {
            lane.end();
        }
        drop(lanes);
        let waited = began.elapsed();
        assert!(waited < 2 * END_MAX, "one after the other: {waited:?}");
    }

    #[test]
    fn dropping_a_lane_ends_its_threads_and_tasks() {
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
