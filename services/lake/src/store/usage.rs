//! What object stores were asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use super::limits::StorePrices;

/// Counters of all stores of a [`Lake`](crate::Lake), since its start.
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
}

/// What object stores were asked for since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreUse {
    /// Reads of objects and of their metadata, hedges among them.
    pub reads: u64,
    /// Writes, copies and listings, which cost the same; deletions, which cost nothing, are not counted.
    pub writes: u64,
    /// Bytes of objects read.
    pub bytes_read: u64,
    /// Bytes of objects written.
    pub bytes_written: u64,
    /// Requests that the store failed, after its client's own retries.
    pub failed: u64,
    /// Requests that were not sent because the store was let be.
    pub refused: u64,
    /// Reads that were asked for a second time.
    pub hedged: u64,
    /// Of those, the ones whose second answer came first.
    pub hedges_won: u64,
    /// Requests under way now.
    pub under_way: u64,
    /// What the requests cost at the configured prices, in dollars.
    pub cost: f64,
}

impl From<StoreUse> for wire::fetch::StoreUse {
    fn from(store: StoreUse) -> Self {
        Self {
            reads: store.reads,
            writes: store.writes,
            bytes_read: store.bytes_read,
            bytes_written: store.bytes_written,
            failed: store.failed,
            refused: store.refused,
            hedged: store.hedged,
            hedges_won: store.hedges_won,
            under_way: store.under_way,
            cost_usd: store.cost,
        }
    }
}

impl StoreUsage {
    /// The counters now.
    pub fn at(&self, prices: &StorePrices) -> StoreUse {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, writes) = (now(&self.reads), now(&self.writes));
        let bytes_read = now(&self.bytes_read);
        let cost = reads as f64 * prices.million_reads / 1e6
            + writes as f64 * prices.million_writes / 1e6
            + bytes_read as f64 * prices.gigabyte_read / 1e9;
        StoreUse {
            reads,
            writes,
            bytes_read,
            bytes_written: now(&self.bytes_written),
            failed: now(&self.failed),
            refused: now(&self.refused),
            hedged: now(&self.hedged),
            hedges_won: now(&self.hedges_won),
            under_way: now(&self.under_way),
            cost,
        }
    }
}

/// Counts one more.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_what_the_list_says() {
        let usage = StoreUsage::default();
        count(&usage.reads, 30_000_000);
        count(&usage.writes, 1000);
        count(&usage.bytes_read, 5_000_000_000);
        assert!((usage.at(&StorePrices::default()).cost - 12.005).abs() < 1e-9);
        let prices = StorePrices { gigabyte_read: 0.09, ..StorePrices::default() };
        assert!((usage.at(&prices).cost - 12.455).abs() < 1e-9);
    }
}
