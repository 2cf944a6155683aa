//! What object stores are asked for, as metrics.

use telemetry::Samples;
use wire::fetch::StoreUse;

telemetry::metrics! {
    pub static STORE_METRICS;
    REQUESTS = Counter "bireme.store.requests" "{request}" ["kind"] "Requests to object stores, `read` or `write`";
    BYTES = Counter "bireme.store.transferred" "By" ["kind"] "Bytes of objects, by `read` or `write`";
    FAILED = Counter "bireme.store.failures" "{request}" [] "Requests that a store failed, after its client's own retries";
    REFUSED = Counter "bireme.store.refused" "{request}" [] "Requests not sent, because the store had failed too often and was let be, or hung with all places taken";
    HEDGED = Counter "bireme.store.hedged" "{request}" [] "Reads asked for a second time, because they took longer than nearly all before";
    LET_BE = Gauge "bireme.store.let_be" "{store}" [] "Stores that are let be now, because they had failed too often: rows that no drive has end in STORE_UNREACHABLE";
    UNDER_WAY = Gauge "bireme.store.under_way" "{request}" [] "Requests under way";
    COST = Counter "bireme.store.cost" "{USD}" [] "What the requests cost at the configured prices, in dollars";
    CACHE_USAGE = Gauge "bireme.lake.cache.usage" "By" ["cache"] "Memory that what is known of tables takes: `index` has their indexes, `metadata` manifests, footers and deletions";
    CACHE_LIMIT = Gauge "bireme.lake.cache.limit" "By" ["cache"] "What it may come to";
    CACHE_HITS = Counter "bireme.lake.cache.hits" "{entry}" ["cache"] "Entries that were asked for and there";
    CACHE_MISSES = Counter "bireme.lake.cache.misses" "{entry}" ["cache"] "Entries that were asked for and not there: each is read from the store";
}

/// Adds what was asked for so far.
pub fn store_samples(samples: &mut Samples, of: &StoreUse) {
    samples.add(&REQUESTS, &[&"read"], of.reads);
    samples.add(&REQUESTS, &[&"write"], of.writes);
    samples.add(&BYTES, &[&"read"], of.bytes_read);
    samples.add(&BYTES, &[&"write"], of.bytes_written);
    samples.add(&FAILED, &[], of.failed);
    samples.add(&REFUSED, &[], of.refused);
    samples.add(&HEDGED, &[], of.hedged);
    samples.add(&LET_BE, &[], of.breakers_open);
    samples.add(&UNDER_WAY, &[], of.under_way);
    samples.add(&COST, &[], of.cost_usd);
}

/// One of the caches of what is known of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Its name: `index` or `metadata`.
    pub name: &'static str,
    /// Memory that its entries take.
    pub bytes: u64,
    /// What it may come to.
    pub bytes_max: u64,
    /// Entries that were asked for and there.
    pub hits: u64,
    /// Entries that were asked for and not there.
    pub misses: u64,
}

/// Adds how the caches are used.
pub fn cache_samples(samples: &mut Samples, caches: &[CacheUse]) {
    for cache in caches {
        samples.add(&CACHE_USAGE, &[&cache.name], cache.bytes);
        samples.add(&CACHE_LIMIT, &[&cache.name], cache.bytes_max);
        samples.add(&CACHE_HITS, &[&cache.name], cache.hits);
        samples.add(&CACHE_MISSES, &[&cache.name], cache.misses);
    }
}
