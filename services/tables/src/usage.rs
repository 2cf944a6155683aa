//! The use of object stores and caches that a source of tables reports.

/// The use of object stores since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreUse {
    /// Reads of objects and their metadata, including hedged reads.
    pub reads: u64,
    /// Writes, copies and listings.
    pub writes: u64,
    /// Bytes of objects read.
    pub bytes_read: u64,
    /// Bytes of objects written.
    pub bytes_written: u64,
    /// Requests that failed after the store client's retries, and those that their callers dropped after a wait of 5 s
    /// or more.
    pub failed: u64,
    /// Requests that were not sent, because the store's circuit breaker was open.
    pub refused: u64,
    /// Reads that were sent a second time, because they took longer than 99 % of the reads before.
    pub hedged: u64,
    /// The hedged reads whose second request was answered first.
    pub hedges_won: u64,
    /// Reads and listings in progress.
    pub under_way: u64,
    /// Stores whose circuit breaker is open now.
    pub breakers_open: u64,
    /// The cost of the requests at the list prices of S3, in dollars.
    pub cost_usd: f64,
    /// Reads of index and deletion files that I/O nodes answered instead of a store, from their drives or RAM. A read
    /// of more than 4 MiB counts once for each of its pieces of this size.
    pub reads_avoided: u64,
    /// Bytes of the reads in `reads_avoided`.
    pub bytes_avoided: u64,
    /// The price that the reads in `reads_avoided` would have had at a store, at the list prices of S3, in dollars.
    pub saved_usd: f64,
    /// Reads of index and deletion files that I/O nodes did not answer, or not in time, so that the store was asked.
    pub cache_failures: u64,
    /// Versions of tables in object stores that were opened.
    pub versions_opened: u64,
    /// Reads of files that only the opening of a version needs: its manifest, its transaction and deletions.
    pub version_reads: u64,
}

/// The use of one of the caches of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// The cache's name: `index`, `metadata` or `filter`.
    pub name: &'static str,
    /// The memory of its entries, in bytes.
    pub bytes: u64,
    /// The maximum memory, in bytes.
    pub bytes_max: u64,
    /// Requested entries that were in the cache.
    pub hits: u64,
    /// Requested entries that were not in the cache.
    pub misses: u64,
}
