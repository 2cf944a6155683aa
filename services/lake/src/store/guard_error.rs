//! Errors that the guard returns in place of a store's answer.

use std::error::Error as StdError;
use std::time::Duration;

use super::breaker::BreakerOpen;
use super::mark::{Mark, unmarked};

/// The body of an answer made no progress for `stall_max`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}{store} has sent nothing more of {path} for {waited:?}, after {received} of {expected} bytes; check whether \
     the store or the network to it hangs",
    Mark::Unanswered
)]
pub struct Stalled {
    pub store: String,
    pub path: String,
    pub received: u64,
    pub expected: u64,
    pub waited: Duration,
}

/// Iterates over an error and its causes.
pub fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause| (*cause).source())
}

/// The message of `error`, without its mark, if it is one of the guard's own.
pub fn guard_message(error: &(dyn StdError + 'static)) -> Option<String> {
    let breaker_open = error.downcast_ref::<BreakerOpen>().map(ToString::to_string);
    let stalled = || error.downcast_ref::<Stalled>().map(ToString::to_string);
    breaker_open.or_else(stalled).map(|text| unmarked(&text))
}
