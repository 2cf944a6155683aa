//! The time limit of a call.

use std::time::Duration;

use pyo3::prelude::*;
use wire::{Fault, Reason};

use crate::errors::bad_argument;

/// Returns `seconds` as a time limit; `None` is no limit.
///
/// # Errors
/// `BAD_ARGUMENT` if `seconds` is not a positive number that a [`Duration`] can represent.
pub fn time_limit(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) if !limit.is_zero() => Ok(Some(limit)),
        _ => Err(bad_argument(
            py,
            format!(
                "timeout={seconds} is no time limit; give seconds above 0, or None for no limit"
            ),
        )),
    }
}

/// Awaits `work` for at most `limit`. This limits a whole call, which may consist of several requests, and whose answer
/// may arrive in parts.
pub async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let Some(limit) = limit else { return work.await };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let message = format!("no answer within {limit:?}; allow more time");
        Err(Fault::new(Reason::DeadlineExceeded, message))
    })
}
