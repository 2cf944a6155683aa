//! The message about the use of object stores, which both tiers send.

/// Converts the use of object stores to its message.
pub fn store_use_message(used: tables::StoreUse) -> wire::fetch::StoreUse {
    let tables::StoreUse {
        reads,
        writes,
        bytes_read,
        bytes_written,
        failed,
        refused,
        hedged,
        hedges_won,
        under_way,
        breakers_open,
        cost_usd,
        reads_avoided,
        bytes_avoided,
        saved_usd,
        cache_failures,
        // Only the metrics report these two.
        versions_opened: _,
        version_reads: _,
    } = used;
    wire::fetch::StoreUse {
        reads,
        writes,
        bytes_read,
        bytes_written,
        failed,
        refused,
        hedged,
        hedges_won,
        under_way,
        cost_usd,
        breakers_open,
        reads_avoided,
        bytes_avoided,
        saved_usd,
        cache_failures,
    }
}
