//! RAM tier: sectors that were read lately, each core its own.
//!
//! Keyed by extent, not by place on the drive, so that a reused place can't bring back old bytes.
//! Sectors are admitted after their checksum was found right. Moka's cache is shared by no other
//! core: its locks are never contended.

use std::sync::Arc;

use address::{ExtentKey, SECTOR_BYTES};
use moka::sync::Cache;

/// What a cached sector costs beside its bytes: key, entry, counters.
const ENTRY_BYTES: usize = 160;

/// A sector of an extent.
type Key = (ExtentKey, u32);

/// One core's sectors in RAM.
pub struct RamTier(Option<Cache<Key, Arc<[u8]>>>);

impl RamTier {
    /// A tier of `bytes`; none at all for 0.
    pub fn new(bytes: u64) -> Self {
        Self((bytes > 0).then(|| {
            Cache::builder()
                .max_capacity(bytes)
                .weigher(|_, _| (SECTOR_BYTES + ENTRY_BYTES) as u32)
                .build()
        }))
    }

    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A sector, if it is here.
    pub fn get(&self, extent: ExtentKey, sector: u32) -> Option<Arc<[u8]>> {
        self.0.as_ref()?.get(&(extent, sector))
    }

    /// Admits a sector that was checked.
    pub fn admit(&self, extent: ExtentKey, sector: u32, bytes: &[u8]) {
        if let Some(cache) = &self.0 {
            cache.insert((extent, sector), Arc::from(bytes));
        }
    }
}
