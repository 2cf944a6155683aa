//! A call: the request is made, but not sent before somebody waits for the answer.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use wire::{Fault, Reason};

use crate::completions::Completions;
use crate::errors::exception;

/// The interval in which a waiting thread looks for signals, such as that of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Converts an answer to a Python object.
pub type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What became of a call.
pub type Outcome = Result<Answer, Fault>;

/// A call that can be made once.
#[pyclass(frozen)]
pub struct Call {
    state: Mutex<State>,
    runtime: Handle,
}

enum State {
    /// Nobody waits for the answer yet.
    Made(BoxFuture<'static, Outcome>),
    /// The call was sent.
    Sent(AbortHandle),
}

impl Call {
    /// Makes a call of `work`, whose value `convert` turns into a Python object.
    pub fn new<T: Send + 'static>(
        runtime: Handle,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work = async move {
            let value = work.await?;
            Ok(Box::new(move |py: Python<'_>| convert(py, value)) as Answer)
        };
        Self { state: Mutex::new(State::Made(work.boxed())), runtime }
    }

    /// Sends the call. `done` gets its outcome on the background thread.
    fn send(
        &self,
        py: Python<'_>,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) -> PyResult<AbortHandle> {
        // The state is held by no thread that waits for Python's lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Made(work) = &mut *state else {
            let message = "the call was made already; make another";
            return Err(exception(py, Fault::new(Reason::BadArgument, message)));
        };
        let work = std::mem::replace(work, futures::future::pending().boxed());
        let sent = self.runtime.spawn(async move { done(work.await) }).abort_handle();
        *state = State::Sent(sent.clone());
        Ok(sent)
    }
}

#[pymethods]
impl Call {
    /// Sends the call and blocks until it is answered. A signal whose handler raises cancels it.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (sender, mut outcomes) = sync_channel(1);
        let sent = self.send(py, move |outcome| drop(sender.send(outcome)))?;
        loop {
            let received;
            (outcomes, received) = py.detach(move || {
                let received = outcomes.recv_timeout(SIGNAL_INTERVAL);
                (outcomes, received)
            });
            match received {
                Ok(outcome) => return answer(py, outcome),
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals().inspect_err(|_| sent.abort())?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let message = "the call was cancelled; make another";
                    return Err(exception(py, Fault::new(Reason::Cancelled, message)));
                }
            }
        }
    }

    /// Sends the call. Its answer becomes the result of `future` once the event loop of `completions` takes it.
    fn complete(
        &self,
        py: Python<'_>,
        completions: Py<Completions>,
        future: Py<PyAny>,
    ) -> PyResult<()> {
        self.send(py, move |outcome| completions.get().push(future, outcome)).map(drop)
    }

    /// Cancels the call, also on the server. Does nothing if it has ended.
    fn cancel(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Made(work) => *work = futures::future::pending().boxed(),
            State::Sent(sent) => sent.abort(),
        }
    }
}

/// Converts an outcome to a Python object or an exception.
pub fn answer(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Ok(answer) => answer(py),
        Err(fault) => Err(exception(py, fault)),
    }
}
