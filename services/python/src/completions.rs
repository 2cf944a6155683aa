//! Hands finished calls to an event loop.
//!
//! The thread that drives the runtime puts an answer into a list and wakes the event loop through a socket; the loop's
//! own thread turns all answers in the list into results of their futures. So the driving thread never waits for
//! Python's lock here, and answers that arrive together wake the loop once.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

use crate::answer::{Outcome, answer};

/// The finished calls of one event loop, which calls `take()` whenever `fileno()` is readable.
#[pyclass(frozen)]
pub struct Completions {
    finished: Mutex<Vec<(Py<PyAny>, Outcome)>>,
    waker: UnixStream,
    woken: UnixStream,
}

impl Completions {
    /// Adds a finished call.
    pub fn push(&self, future: Py<PyAny>, outcome: Outcome) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = finished.is_empty();
        finished.push((future, outcome));
        drop(finished);
        if is_first {
            // If the socket is full, the loop has not yet read an earlier byte, and will see this call too.
            let _ = (&self.waker).write(&[1]);
        }
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self { finished: Mutex::default(), waker, woken })
    }

    /// Returns the file descriptor that is readable while there are finished calls.
    fn fileno(&self) -> i32 {
        self.woken.as_raw_fd()
    }

    /// Gives each finished call's answer to its future, unless the future was cancelled.
    fn take(&self, py: Python<'_>) -> PyResult<()> {
        // The byte is read before the list, so that a call that is added later wakes the loop again.
        let _ = (&self.woken).read(&mut [0; 64]);
        // The lock is not held while Python code runs, which may release Python's lock: the driving thread would wait.
        let finished =
            std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner));
        for (future, outcome) in finished {
            let future = future.bind(py);
            if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                continue;
            }
            match answer(py, outcome) {
                Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
                Err(error) => {
                    future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?
                }
            };
        }
        Ok(())
    }
}
