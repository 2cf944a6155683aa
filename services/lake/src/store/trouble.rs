//! What the guard itself says of a store, in place of an answer.

use std::error::Error as StdError;
use std::time::Duration;

use object_store::Error as StoreError;

use super::breaker::LetBe;

/// Why a request was not sent: those before it hang, or nobody reads what they bring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all {places} places for requests to {store} stay taken: none was given back for {waited:?}; see whether the \
     store hangs, or raise store.requests_max or store.wait_max"
)]
pub struct NoPlace {
    pub store: String,
    pub places: usize,
    pub waited: Duration,
}

/// Why no more of a body is waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{store} has sent nothing more of {path} for {waited:?}, after {received} of {expected} bytes; see whether the \
     store or the network to it hangs, or raise store.stall_max"
)]
pub struct Stalled {
    pub store: String,
    pub path: String,
    pub received: u64,
    pub expected: u64,
    pub waited: Duration,
}

/// What the guard said, if `error` is its own.
pub fn trouble(error: &(dyn StdError + 'static)) -> Option<String> {
    let let_be = error.downcast_ref::<LetBe>().map(ToString::to_string);
    let no_place = || error.downcast_ref::<NoPlace>().map(ToString::to_string);
    let stalled = || error.downcast_ref::<Stalled>().map(ToString::to_string);
    let_be.or_else(no_place).or_else(stalled)
}

/// Whether a request failed without having been sent.
pub fn is_not_sent(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { source, .. } if source.is::<LetBe>() || source.is::<NoPlace>())
}
