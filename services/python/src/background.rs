//! The runtime of all connections of a process, and the thread that drives it.
//!
//! All network work and decoding runs in one runtime, on one thread at a time. A thread that waits for an answer drives
//! the runtime itself. Passing the call to another thread, and its answer back, would take two wake-ups, which cost
//! more than anything else that is done here for a small call. While no thread waits, a background thread drives the
//! runtime, and with it the calls that event loops await. No task takes Python's global lock, so none waits for Python
//! code.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::{Fault, Reason};

/// The time without a waiting thread after which the background thread drives the runtime again, if there is no task to
/// drive. A program that sends one request after another waits again sooner than this, so the background thread does
/// not drive the runtime between its requests.
const IDLE: Duration = Duration::from_millis(10);

/// The runtime, and the id of the process that started it. A fork starts another one, because it inherits no threads.
static RUNNING: Mutex<Option<(u32, &'static Background)>> = Mutex::new(None);

/// A runtime with its background thread. It lasts as long as the process.
pub struct Background {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    runtime: Runtime,
    /// The number of threads that wait for an answer.
    waiting: AtomicUsize,
    /// The number of waits that have begun.
    waits: AtomicU64,
    /// Whether the background thread drives the runtime.
    drives: AtomicBool,
    /// Tells the background thread to let a waiting thread drive.
    yields: Notify,
    /// Whether the background thread sleeps until no thread waits.
    sleeps: AtomicBool,
    /// The number of tasks for which no thread waits.
    tasks: AtomicUsize,
}

/// Returns this process's runtime. Starts it first if there is none.
///
/// # Errors
/// `INTERNAL` if the system refuses a thread or a file descriptor.
pub fn background() -> Result<&'static Background, Fault> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((of, background)) = *running
        && of == process
    {
        return Ok(background);
    }
    let refused =
        |error| Fault::new(Reason::Internal, format!("no thread can be started: {error}"));
    let shared = Arc::new(Shared {
        runtime: Builder::new_current_thread().enable_all().build().map_err(refused)?,
        waiting: AtomicUsize::new(0),
        waits: AtomicU64::new(0),
        drives: AtomicBool::new(false),
        yields: Notify::new(),
        sleeps: AtomicBool::new(false),
        tasks: AtomicUsize::new(0),
    });
    let driver = Arc::clone(&shared);
    let run = move || driver.run();
    let thread = thread::Builder::new().name("bireme".into()).spawn(run).map_err(refused)?;
    let background: &'static Background = Box::leak(Box::new(Background { shared, thread }));
    *running = Some((process, background));
    Ok(background)
}

impl Background {
    /// Begins a task, which no thread waits for.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let shared = &self.shared;
        let counted = Counted::new(Arc::clone(shared));
        let spawned = shared.runtime.spawn(async move {
            let _counted = counted;
            task.await;
        });
        if !shared.drives.load(SeqCst) {
            self.thread.thread().unpark();
        }
        spawned.abort_handle()
    }

    /// Waits for `answer`, and drives all tasks meanwhile.
    pub fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        let shared = &*self.shared;
        let _waiting = Waiting::new(self);
        shared.waits.fetch_add(1, SeqCst);
        if shared.drives.load(SeqCst) {
            shared.yields.notify_one();
        }
        // If several threads wait, tokio lets one of them drive. When that one has its answer, another drives.
        shared.runtime.block_on(answer)
    }
}

impl Shared {
    /// Drives the runtime whenever no thread waits.
    fn run(&self) {
        loop {
            self.drives.store(true, SeqCst);
            self.runtime.block_on(self.yields.notified());
            self.drives.store(false, SeqCst);
            while !self.is_wanted() {}
        }
    }

    /// Waits until no thread waits for an answer, and then, while there is no task, for at most [`IDLE`]. Returns
    /// whether the background thread is to drive.
    fn is_wanted(&self) -> bool {
        self.sleeps.store(true, SeqCst);
        while self.waiting.load(SeqCst) > 0 {
            thread::park();
        }
        self.sleeps.store(false, SeqCst);
        let waits = self.waits.load(SeqCst);
        if self.tasks.load(SeqCst) == 0 {
            thread::park_timeout(IDLE);
        }
        let is_idle = self.waits.load(SeqCst) == waits;
        self.waiting.load(SeqCst) == 0 && (is_idle || self.tasks.load(SeqCst) > 0)
    }
}

/// Counts a waiting thread until it has its answer, or panics. After the last one, the background thread drives.
struct Waiting<'a>(&'a Background);

impl<'a> Waiting<'a> {
    fn new(background: &'a Background) -> Self {
        background.shared.waiting.fetch_add(1, SeqCst);
        Self(background)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Background { shared, thread } = self.0;
        let is_last = shared.waiting.fetch_sub(1, SeqCst) == 1;
        if is_last && (shared.sleeps.load(SeqCst) || shared.tasks.load(SeqCst) > 0) {
            thread.thread().unpark();
        }
    }
}

/// Counts a task until it ends or is dropped.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: Arc<Shared>) -> Self {
        shared.tasks.fetch_add(1, SeqCst);
        Self(shared)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, SeqCst);
    }
}
