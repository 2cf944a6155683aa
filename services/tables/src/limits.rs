//! How an object store is used, and what it takes for that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How each object store is used.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreLimits {
    /// Requests under way at most, to one store; more wait.
    pub requests_max: usize,
    /// For how long they wait while all places are taken and none is given back.
    #[serde(with = "humantime_serde")]
    pub wait_max: Duration,
    /// For how long the body of an answer may bring no byte while its reader waits for one.
    #[serde(with = "humantime_serde")]
    pub stall_max: Duration,
    /// Whether a read that takes longer than 99 % of the last ones is asked for once more, and the first
    /// answer taken. At most one read in twenty is.
    pub hedge: bool,
    /// Failures in a row after which a store is let be.
    pub breaker_failures: u32,
    /// For how long it then is, and again after each probe that fails; by chance up to half of it less or more.
    #[serde(with = "humantime_serde")]
    pub breaker_pause: Duration,
    /// What it takes for requests.
    pub prices: StorePrices,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            requests_max: 128,
            // Longer than clients let a request take, so that it is they who tell the breaker.
            wait_max: Duration::from_secs(60),
            // Less than opening a table may take, so that there is time to ask again.
            stall_max: Duration::from_secs(10),
            hedge: true,
            breaker_failures: 8,
            breaker_pause: Duration::from_secs(1),
            prices: StorePrices::default(),
        }
    }
}

/// What a store takes, in dollars. The default is the list price of S3 Standard in us-east-1, read within its
/// region (aws.amazon.com/s3/pricing, November 2026).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorePrices {
    /// For a million reads.
    pub million_reads: f64,
    /// For a million writes, copies and listings.
    pub million_writes: f64,
    /// For a GB (10^9 bytes) that leaves it.
    pub gigabyte_read: f64,
}

impl Default for StorePrices {
    fn default() -> Self {
        Self { million_reads: 0.4, million_writes: 5.0, gigabyte_read: 0.0 }
    }
}

impl StoreLimits {
    /// The first field that is wrong, and why.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let price_is_bad = |price: f64| !(price.is_finite() && price >= 0.0);
        let StorePrices { million_reads, million_writes, gigabyte_read } = self.prices;
        if self.requests_max == 0 {
            return Some(("store.requests_max", "must be at least 1".into()));
        }
        if self.wait_max < Duration::from_millis(1) {
            return Some(("store.wait_max", "must be at least 1ms".into()));
        }
        if self.stall_max < Duration::from_millis(1) {
            return Some(("store.stall_max", "must be at least 1ms".into()));
        }
        if self.breaker_failures == 0 {
            return Some(("store.breaker_failures", "must be at least 1".into()));
        }
        if self.breaker_pause < Duration::from_millis(1) {
            return Some(("store.breaker_pause", "must be at least 1ms".into()));
        }
        if [million_reads, million_writes, gigabyte_read].into_iter().any(price_is_bad) {
            return Some(("store.prices", "must be finite and not below 0".into()));
        }
        None
    }
}
