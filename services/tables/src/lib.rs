//! What an I/O node needs of tables, however they are stored.
//!
//! `lake` has them in object stores, by way of Lance; a simulation makes them up. Nothing here knows of either,
//! so that an I/O node is built, and tested, without Lance.
//!
//! A [`Table`] is one version and never changes: whatever is asked of it twice is answered alike, or not at all.

mod deleted;
mod fragment;
mod limits;
mod metrics;
mod positions;
mod table;
mod uri;

pub use deleted::DeletedRows;
pub use fragment::FragmentInfo;
pub use limits::{StoreLimits, StorePrices};
pub use metrics::{CacheUse, STORE_METRICS, cache_samples, store_samples};
pub use positions::{FragmentRows, RANGES_MAX, rows_of};
pub use table::{Table, Tables};
pub use uri::{BadUri, TableUri, UriPrefix, shown};
