//! The thread that serves all connections of a process.
//!
//! One thread does all network work and decoding, so that a call passes from thread to thread only twice: when it is
//! sent and when it is answered. The thread never takes Python's global lock, so it does not wait for Python code.

use std::future::pending;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};
use wire::{Fault, Reason};

/// The thread's runtime, and the process that started it: a fork does not inherit threads.
static RUNTIME: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// Returns the runtime of this process's thread. Starts the thread first if there is none.
///
/// # Errors
/// `INTERNAL` if the system refuses a thread or a file descriptor.
pub fn runtime() -> Result<Handle, Fault> {
    let mut running = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((of, handle)) = &*running
        && *of == process
    {
        return Ok(handle.clone());
    }
    let refused =
        |error| Fault::new(Reason::Internal, format!("no thread can be started: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(refused)?;
    let handle = runtime.handle().clone();
    let serve = move || runtime.block_on(pending::<()>());
    thread::Builder::new().name("bireme".into()).spawn(serve).map_err(refused)?;
    *running = Some((process, handle.clone()));
    Ok(handle)
}
