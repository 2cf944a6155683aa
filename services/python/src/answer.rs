//! The outcome of a call, on its way to Python.

use pyo3::prelude::*;
use wire::Fault;

use crate::errors::exception;

/// Converts an answer to a Python object.
pub type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The outcome of a call.
pub type Outcome = Result<Answer, Fault>;

/// Converts an outcome to a Python object or an exception.
pub fn answer(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Ok(answer) => answer(py),
        Err(fault) => Err(exception(py, fault)),
    }
}
