//! Counters of the requests to object stores.

use std::sync::atomic::{AtomicU64, Ordering};

use stores::StorePrices;
use tables::StoreUse;

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
}

impl StoreUsage {
    /// The counters now, and the cost of the requests.
    pub fn at(&self, prices: &StorePrices) -> StoreUse {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, writes) = (now(&self.reads), now(&self.writes));
        let bytes_read = now(&self.bytes_read);
        let cost_usd = reads as f64 * prices.million_reads / 1e6
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
            breakers_open: now(&self.open_breakers),
            cost_usd,
        }
    }
}

/// Adds `more` to a counter.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_list_prices() {
        let usage = StoreUsage::default();
        count(&usage.reads, 30_000_000);
        count(&usage.writes, 1000);
        count(&usage.bytes_read, 5_000_000_000);
        assert!((usage.at(&StorePrices::default()).cost_usd - 12.005).abs() < 1e-9);
        let prices = StorePrices { gigabyte_read: 0.09, ..StorePrices::default() };
        assert!((usage.at(&prices).cost_usd - 12.455).abs() < 1e-9);
    }
}
