//! Limits for the use of object stores.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings for the use of each object store.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreLimits {
    /// The maximum number of reads and listings in progress to one store. Further ones wait.
    pub requests_max: usize,

    // The fields below are not settings: their values are the same for all users. Tests choose others.
    /// Whether a read that takes longer than 99 % of the previous reads is sent a second time; the response that
    /// arrives first is used. On average, at most one read in twenty is sent a second time.
    #[serde(skip)]
    pub hedge: bool,
    /// The maximum time without a byte of a response's body while its reader waits for one.
    #[serde(skip)]
    pub stall_max: Duration,
    /// The number of failures in a row after which a store's circuit breaker opens. While it is open, reads and
    /// listings are refused, except for a probe from time to time.
    #[serde(skip)]
    pub breaker_failures: u32,
    /// The time from the opening of the breaker, or from a failed probe, to the next probe. It varies at random by up
    /// to half.
    #[serde(skip)]
    pub breaker_pause: Duration,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            requests_max: 128,
            // Less than the time that opening a table may take, so that there is time for another try.
            stall_max: Duration::from_secs(10),
            hedge: true,
            breaker_failures: 8,
            breaker_pause: Duration::from_secs(1),
        }
    }
}

impl StoreLimits {
    /// Returns the first invalid field, and what is wrong with it.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        (self.requests_max == 0).then(|| ("store.requests_max", "must be at least 1".into()))
    }
}
