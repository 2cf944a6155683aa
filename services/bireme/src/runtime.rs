//! The tokio runtime of a command.

use std::future::Future;
use std::pin::pin;

use lake::Stop;
use tokio::runtime::{Builder, Runtime};

use crate::error::{CliError, Result};
use crate::serve::{Signals, exit_at_second_signal};

/// The stack of a thread, in bytes. `lake` plans filters on stacks of this size. On a thread with a smaller one, it would
/// make a new stack at each step of this work. Untouched pages of a stack take no memory.
const STACK_BYTES: usize = lake::STACK_BYTES;

/// Returns a runtime with `threads` threads, or with a thread for each core. A single thread is the caller's own, so
/// that no work passes from thread to thread.
pub fn runtime(threads: Option<usize>) -> Result<Runtime> {
    let mut builder = match threads {
        Some(1) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let Some(threads) = threads {
        builder.worker_threads(threads.max(1));
    }
    let started = builder.thread_stack_size(STACK_BYTES).enable_all().build();
    started.map_err(|error| CliError::os("the runtime can't start", &error, ""))
}

/// Runs one command's work.
pub fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime(None)?;
    let done = runtime.block_on(work);
    // Tasks that are left, such as a table's prefetches, are no longer needed.
    runtime.shutdown_background();
    done
}

/// Runs one command's work, but drops it at SIGINT or SIGTERM, which removes its unfinished files.
pub fn run_unless_stopped<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    run(async {
        let mut signals = Signals::listen()?;
        signals.unless_stopped(work).await
    })
}

/// Runs `work` on a thread that may block. If the returned future is dropped, the thread goes on.
pub async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    // The only error is a panic, because nothing cancels the work.
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Awaits `work`, which ends early when it sees that `stop` was pulled. The first SIGINT or SIGTERM pulls `stop`; a
/// second signal ends the process without waiting for the clean-up.
pub async fn stoppable<T>(stop: &Stop, work: impl Future<Output = T>) -> Result<T> {
    let mut signals = Signals::listen()?;
    let mut work = pin!(work);
    tokio::select! {
        done = &mut work => return Ok(done),
        _ = signals.next() => stop.pull(),
    }
    tokio::spawn(exit_at_second_signal(signals));
    Ok(work.await)
}
