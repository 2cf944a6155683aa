//! How a node uses object stores: the settings and prices, and the metrics of their use and of the caches in front of
//! them.
//!
//! Both tiers have these settings and metrics. `lake` enforces the limits and counts the requests; this crate depends
//! on no client of a store.

mod limits;
mod metrics;

pub use limits::{StoreLimits, StorePrices};
pub use metrics::{STORE_METRICS, cache_samples, store_samples};
