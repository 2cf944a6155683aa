//! The message about the use of object stores.

/// Converts the use of object stores to its message.
pub fn store_use(used: tables::StoreUse) -> wire::fetch::StoreUse {
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
    }
}
