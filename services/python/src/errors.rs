//! Converts faults to Python exceptions.

use arrow_schema::ArrowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use wire::{Fault, Reason};

/// Returns the exception for a fault: the class of `bireme` that fits its reason, with the fault's own sentence.
pub fn exception(py: Python<'_>, fault: Fault) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = MAKE.import(py, "bireme._errors", "_error").and_then(|make| {
        let Fault { reason, message, metadata } = fault;
        make.call1((reason.as_str(), message, metadata))
    });
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// Returns the exception for an argument from which no request can be made.
pub fn bad_argument(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, Fault::new(Reason::BadArgument, message))
}

/// Returns the fault for an answer that contradicts itself.
pub fn damaged(why: &str) -> Fault {
    Fault::new(Reason::Internal, format!("the query node's answer is damaged: {why}"))
}

/// Converts an error of Arrow, which only an answer that contradicts itself causes.
pub fn internal(error: ArrowError) -> Fault {
    damaged(&error.to_string())
}
