//! The use of object stores by a node: the settings, the prices, and the metrics and the message that report it. The
//! metrics also report the caches in front of the stores.
//!
//! Both tiers use this crate. `lake` enforces the limits and counts the requests; this crate depends on no client of a
//! store.

mod limits;
mod message;
mod metrics;
mod prices;

pub use limits::StoreLimits;
pub use message::store_use_message;
pub use metrics::{STORE_METRICS, cache_samples, store_samples};
pub use prices::price_usd;
