//! Metrics of the use of object stores, and of the caches of tables.

use tables::{CacheUse, StoreUse};
use telemetry::Samples;

telemetry::metrics! {
    pub static STORE_METRICS;
    REQUESTS = Counter "bireme.store.requests" "{request}" ["kind"] "Requests to object stores: `read`, or `write`, which includes copies and listings";
    BYTES = Counter "bireme.store.transferred" "By" ["kind"] "Bytes of objects, by `read` or `write`";
    FAILED = Counter "bireme.store.failures" "{request}" [] "Requests that failed after the store client's retries, and those that their callers dropped after a wait of 5 s or more";
    REFUSED = Counter "bireme.store.refused" "{request}" [] "Requests not sent, because the store's circuit breaker was open";
    HEDGED = Counter "bireme.store.hedged" "{request}" [] "Reads sent a second time, because they took longer than 99 % of the reads before";
    BREAKERS_OPEN = Gauge "bireme.store.breakers_open" "{store}" [] "Stores whose circuit breaker is open now, because they failed too often: requests for rows that are on no drive fail with STORE_UNREACHABLE";
    UNDER_WAY = Gauge "bireme.store.under_way" "{request}" [] "Requests in progress";
    COST = Counter "bireme.store.cost" "{USD}" [] "Cost of the requests at the list prices of S3, in dollars";
    AVOIDED = Counter "bireme.store.avoided" "{request}" [] "Reads of index and deletion files that I/O nodes answered from drives or RAM, instead of a store; a long read counts once for each 4 MiB";
    BYTES_AVOIDED = Counter "bireme.store.spared" "By" [] "Bytes of the reads in `bireme.store.avoided`";
    CACHE_FAILURES = Counter "bireme.store.cache_failures" "{request}" [] "Reads of index and deletion files that I/O nodes did not answer, or not in time, so that the store was asked";
    SAVED = Counter "bireme.store.saved" "{USD}" [] "The price of the reads in `bireme.store.avoided` at the list prices of S3, had a store answered them, in dollars";
    VERSIONS = Counter "bireme.store.versions" "{version}" [] "Versions of tables in object stores that were opened: those that the node switched to, and those that requests asked for";
    VERSION_READS = Counter "bireme.store.version_reads" "{request}" [] "Reads of the files that belong to a version: its manifest, its transaction and deletions. A deletion file is read when it is first needed, and again only if no open version has loaded it and the metadata cache has evicted it. The index files of a new version are not counted: those that I/O nodes have cost no request";
    CACHE_USAGE = Gauge "bireme.lake.cache.usage" "By" ["cache"] "Memory of the caches of tables: `index` holds their indexes, `metadata` their manifests, footers and deletions, `filter` the rows that pass filters";
    CACHE_LIMIT = Gauge "bireme.lake.cache.limit" "By" ["cache"] "Maximum memory of the cache";
    CACHE_HITS = Counter "bireme.lake.cache.hits" "{entry}" ["cache"] "Requested entries that were in the cache";
    CACHE_MISSES = Counter "bireme.lake.cache.misses" "{entry}" ["cache"] "Requested entries that were not in the cache: each is read from the store, or found by indexes or a scan";
}

/// Adds the metrics of the use of object stores.
pub fn store_samples(samples: &mut Samples, store: &StoreUse) {
    samples.add(&REQUESTS, &[&"read"], store.reads);
    samples.add(&REQUESTS, &[&"write"], store.writes);
    samples.add(&BYTES, &[&"read"], store.bytes_read);
    samples.add(&BYTES, &[&"write"], store.bytes_written);
    samples.add(&FAILED, &[], store.failed);
    samples.add(&REFUSED, &[], store.refused);
    samples.add(&HEDGED, &[], store.hedged);
    samples.add(&BREAKERS_OPEN, &[], store.breakers_open);
    samples.add(&UNDER_WAY, &[], store.under_way);
    samples.add(&COST, &[], store.cost_usd);
    samples.add(&AVOIDED, &[], store.reads_avoided);
    samples.add(&BYTES_AVOIDED, &[], store.bytes_avoided);
    samples.add(&SAVED, &[], store.saved_usd);
    samples.add(&CACHE_FAILURES, &[], store.cache_failures);
    samples.add(&VERSIONS, &[], store.versions_opened);
    samples.add(&VERSION_READS, &[], store.version_reads);
}

/// Adds the metrics of the caches.
pub fn cache_samples(samples: &mut Samples, caches: &[CacheUse]) {
    for cache in caches {
        samples.add(&CACHE_USAGE, &[&cache.name], cache.bytes);
        samples.add(&CACHE_LIMIT, &[&cache.name], cache.bytes_max);
        samples.add(&CACHE_HITS, &[&cache.name], cache.hits);
        samples.add(&CACHE_MISSES, &[&cache.name], cache.misses);
    }
}
