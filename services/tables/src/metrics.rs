//! What object stores are asked for, as metrics.

use telemetry::Samples;
use wire::fetch::StoreUse;

telemetry::metrics! {
    pub static STORE_METRICS;
    REQUESTS = Counter "bireme.store.requests" "{request}" ["kind"] "Requests to object stores, `read` or `write`";
    BYTES = Counter "bireme.store.transferred" "By" ["kind"] "Bytes of objects, by `read` or `write`";
    FAILED = Counter "bireme.store.failures" "{request}" [] "Requests that a store failed, after its client's own retries";
    REFUSED = Counter "bireme.store.refused" "{request}" [] "Requests not sent, because the store had failed too often and was let be";
    HEDGED = Counter "bireme.store.hedged" "{request}" [] "Reads asked for a second time, because they took longer than nearly all before";
    UNDER_WAY = Gauge "bireme.store.under_way" "{request}" [] "Requests under way";
    COST = Counter "bireme.store.cost" "{USD}" [] "What the requests cost at the configured prices, in dollars";
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
    samples.add(&UNDER_WAY, &[], of.under_way);
    samples.add(&COST, &[], of.cost_usd);
}
