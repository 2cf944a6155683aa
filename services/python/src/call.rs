//! A call. Its request is built at once, but sent only when somebody waits for the answer.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use wire::{Fault, Reason};

use crate::answer::{Answer, Outcome, answer};
use crate::background::Background;
use crate::completions::Completions;
use crate::errors::exception;

/// The interval at which a waiting thread checks for signals, such as that of Ctrl-C. People do not notice a delay of
/// this length. Each check takes Python's lock, so the interval is not shorter.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// A call that can be made once.
#[pyclass(frozen)]
pub struct Call {
    state: Mutex<State>,
    background: &'static Background,
}

enum State {
    /// Nobody waits for the answer yet.
    Made(BoxFuture<'static, Outcome>),
    /// The call was sent, and an event loop awaits it.
    Sent(AbortHandle),
    /// A thread waits for the call, or it was cancelled.
    Taken,
}

impl Call {
    /// Makes a call of `work`, whose value `convert` turns into a Python object. If `work` panics, the call fails with
    /// `INTERNAL`, so that whoever waits for it is answered.
    pub fn new<T: Send + 'static>(
        background: &'static Background,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work = async move {
            let caught = AssertUnwindSafe(work).catch_unwind().await;
            let value = caught.unwrap_or_else(|_| Err(panicked()))?;
            Ok(Box::new(move |py: Python<'_>| convert(py, value)) as Answer)
        };
        Self { state: Mutex::new(State::Made(work.boxed())), background }
    }

    /// Takes the work out of the call. Only the first caller gets it; later ones get `BAD_ARGUMENT`.
    fn take(&self, py: Python<'_>) -> PyResult<BoxFuture<'static, Outcome>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Made(work) => Ok(work),
            other => {
                *state = other;
                let message = "the call was made already; make another";
                Err(exception(py, Fault::new(Reason::BadArgument, message)))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn panicked() -> Fault {
    Fault::new(Reason::Internal, "the client failed by a defect of its own; please report it")
}

#[pymethods]
impl Call {
    /// Sends the call and blocks until it is answered. If a signal arrives and its handler raises, the call is
    /// cancelled.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut work = self.take(py)?;
        loop {
            // `timeout` is called inside the runtime, whose clock it needs.
            let waited = async { timeout(SIGNAL_INTERVAL, &mut work).await };
            match py.detach(|| self.background.wait(waited)) {
                Ok(outcome) => return answer(py, outcome),
                // An error drops the work, which cancels the call.
                Err(_) => py.check_signals()?,
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
        let work = self.take(py)?;
        let task = async move { completions.get().push(future, work.await) };
        *self.state() = State::Sent(self.background.spawn(task));
        Ok(())
    }

    /// Cancels the call, also on the server. Does nothing if it has ended.
    fn cancel(&self) {
        if let State::Sent(sent) = std::mem::replace(&mut *self.state(), State::Taken) {
            sent.abort();
        }
    }
}
