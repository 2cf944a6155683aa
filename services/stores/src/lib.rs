//! Object stores as a node uses them: the settings and prices, and the metrics and the message of their use and of the
//! caches in front of them.
//!
//! Both tiers have these. `lake` enforces the limits and counts the requests; this crate depends
//! on no client of a store.

mod limits;
mod message;
mod metrics;

pub use limits::{StoreLimits, StorePrices};
pub use message::store_use_message;
pub use metrics::{STORE_METRICS, cache_samples, store_samples};
