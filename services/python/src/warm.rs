//! A Warm under way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::query::WarmProgress;
use futures::StreamExt;
use futures::stream::BoxStream;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use wire::{Fault, Reason};

use crate::background::Background;
use crate::call::Call;
use crate::time_limit::within;

type Steps = BoxStream<'static, Result<WarmProgress, Fault>>;

/// The progress of a Warm, step by step. The Warm ends on the server when this object is closed.
#[pyclass(frozen)]
pub struct Warm {
    /// `None` while a call waits for the next step, and after the end.
    steps: Arc<Mutex<Option<Steps>>>,
    background: &'static Background,
    limit: Option<Duration>,
}

impl Warm {
    /// Wraps the steps of a Warm. Each of them may take `limit`; the node ends the whole Warm after that time.
    pub fn new(steps: Steps, background: &'static Background, limit: Option<Duration>) -> Self {
        Self { steps: Arc::new(Mutex::new(Some(steps))), background, limit }
    }
}

#[pymethods]
impl Warm {
    /// Returns the next step's counters and last error, or None after the last step.
    fn next(&self) -> Call {
        let steps = Arc::clone(&self.steps);
        let next = async move {
            let Some(mut taken) = lock(&steps).take() else {
                return Err(Fault::new(Reason::Cancelled, "the warm has ended; begin another"));
            };
            let step = taken.next().await.transpose()?;
            if step.is_some() {
                *lock(&steps) = Some(taken);
            }
            Ok(step)
        };
        let convert = |py: Python<'_>, step: Option<WarmProgress>| {
            let Some(step) = step else { return Ok(py.None()) };
            let WarmProgress {
                extents_total,
                extents_done,
                extents_found,
                extents_failed,
                bytes_written,
                last_error,
            } = step;
            let counts = (
                extents_total,
                extents_done,
                extents_found,
                extents_failed,
                bytes_written,
                last_error,
            );
            let counts: Bound<'_, PyTuple> = counts.into_pyobject(py)?;
            Ok(counts.into_any().unbind())
        };
        Call::new(self.background, within(self.limit, next), convert)
    }

    /// Ends the Warm, also on the server. A call that waits for a step has to be cancelled too.
    fn close(&self) {
        drop(lock(&self.steps).take());
    }
}

fn lock(steps: &Mutex<Option<Steps>>) -> std::sync::MutexGuard<'_, Option<Steps>> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}
