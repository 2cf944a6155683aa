//! Counters of the requests to object stores.

use std::sync::atomic::{AtomicU64, Ordering};

use object_store::path::Path;
use stores::price_usd;
use tables::StoreUse;

use super::checked::{DELETIONS, VERSIONS};

/// Counters over all stores of a [`Lake`](crate::Lake) since its start.
#[derive(Debug, Default)]
pub struct StoreUsage {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub failed: AtomicU64,
    pub refused: AtomicU64,
    pub hedged: AtomicU64,
    pub hedges_won: AtomicU64,
    pub under_way: AtomicU64,
    pub open_breakers: AtomicU64,
    pub reads_avoided: AtomicU64,
    pub bytes_avoided: AtomicU64,
    pub cache_failures: AtomicU64,
    pub versions_opened: AtomicU64,
    pub version_reads: AtomicU64,
}

impl StoreUsage {
    /// The counters now, and the cost of the requests.
    pub fn now(&self) -> StoreUse {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, writes) = (now(&self.reads), now(&self.writes));
        let reads_avoided = now(&self.reads_avoided);
        StoreUse {
            reads,
            writes,
            bytes_read: now(&self.bytes_read),
            bytes_written: now(&self.bytes_written),
            failed: now(&self.failed),
            refused: now(&self.refused),
            hedged: now(&self.hedged),
            hedges_won: now(&self.hedges_won),
            under_way: now(&self.under_way),
            breakers_open: now(&self.open_breakers),
            cost_usd: price_usd(reads, writes),
            reads_avoided,
            bytes_avoided: now(&self.bytes_avoided),
            saved_usd: price_usd(reads_avoided, 0),
            cache_failures: now(&self.cache_failures),
            versions_opened: now(&self.versions_opened),
            version_reads: now(&self.version_reads),
        }
    }
}

/// Returns whether a file is of one version of a table: a manifest, a transaction or deletions. Each version that
/// changes such a file writes it under a new name.
pub fn is_of_version(file: &Path) -> bool {
    let folder = file.as_ref().rsplit('/').nth(1);
    folder.is_some_and(|it| [VERSIONS, "_transactions", DELETIONS].contains(&it))
}

/// Adds `more` to a counter.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
