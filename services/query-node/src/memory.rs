//! Divides a query node's memory among its parts.
//!
//! ```text
//! memory = base + index_cache + key_index + metadata cache + buffer pools + traffic + searches' working memory
//! ```
//!
//! Traffic is what callers can make the node hold: connections, requests as they arrive, rows as they are fetched, and
//! replies until they are sent. Each core has a minimum of traffic memory. The memory that remains after this minimum
//! and the first five parts is halved: one half is added to the traffic memory, up to a maximum for each core, and the
//! rest is for searches.

use bytesize::ByteSize;

use crate::config::QueryConfig;
use crate::error::{QueryError, Result};

/// Memory of the program, its threads, free memory that the allocator keeps, and at most 16 MiB of manifests that were
/// read in place of HEAD (`lake/src/store/manifest_reads.rs`).
const BASE_BYTES: u64 = 192 << 20;

/// Maximum memory of the row buffers that a core keeps for reuse (`wire::BufferPool`): the maximum of the pool.
const SPARE_BYTES: u64 = 32 << 20;

/// Default of `memory`, in percent of the memory that this process may use. The rest is for the kernel and for other
/// processes.
const DEFAULT_PERCENT: u64 = 80;

/// The cache of manifests and file footers gets `memory` divided by this, but at most [`METADATA_CACHE_MAX`].
const METADATA_CACHE_PART: u64 = 8;

/// Maximum size of the cache of manifests and file footers, in bytes.
const METADATA_CACHE_MAX: u64 = 256 << 20;

/// Maximum traffic memory of a core: enough for thousands of replies.
const TRAFFIC_MAX: u64 = 512 << 20;

/// Minimum traffic memory of a core: enough for the largest Take and concurrent searches.
const TRAFFIC_MIN: u64 = 32 << 20;

/// Returns the traffic memory of each of `cores` cores, in bytes. `available` is the memory of the machine or control
/// group in bytes, if known.
///
/// # Errors
/// [`QueryError::Config`] if `memory` is configured and less than the minimum that its parts need.
pub fn core_traffic(config: &QueryConfig, cores: usize, available: Option<u64>) -> Result<u64> {
    let cores = cores as u64;
    let bound = bound(config, available);
    let parts = [
        ("the program itself", BASE_BYTES),
        ("`index_cache`", config.index_cache.as_u64()),
        ("`key_index`", config.key_index.as_u64()),
        ("tables' metadata", metadata_cache(bound)),
        ("rows' buffers", cores.saturating_mul(SPARE_BYTES)),
        ("callers", cores.saturating_mul(TRAFFIC_MIN)),
    ];
    let least = parts.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if bound < least && config.memory.as_u64() > 0 {
        let parts = parts.iter().map(|(name, bytes)| format!("{name} {}", ByteSize::b(*bytes)));
        let problem = format!(
            "is {}, and its parts take {} ({}): lower `cores`, `index_cache` or `key_index`, or give at least {}",
            config.memory,
            ByteSize::b(least),
            parts.collect::<Vec<_>>().join(", "),
            ByteSize::b(least + (METADATA_CACHE_MAX - metadata_cache(bound))),
        );
        return Err(QueryError::Config { field: "memory".into(), problem });
    }
    if bound < least {
        // Start on a small machine if the operator has configured no `memory`.
        tracing::warn!(
            memory = %ByteSize::b(bound),
            parts = %ByteSize::b(least),
            "memory is short: lower `cores`, `index_cache` or `key_index`"
        );
    }
    let left = bound.saturating_sub(least) / 2 / cores.max(1);
    Ok((TRAFFIC_MIN + left).min(TRAFFIC_MAX))
}

/// Returns the bytes of the cache of manifests and file footers, over all tables.
pub fn metadata_cache_bytes(config: &QueryConfig) -> u64 {
    metadata_cache(bound(config, process::memory_bytes()))
}

fn metadata_cache(bound: u64) -> u64 {
    (bound / METADATA_CACHE_PART).min(METADATA_CACHE_MAX)
}

/// Returns the memory that the node may use in total.
fn bound(config: &QueryConfig, available: Option<u64>) -> u64 {
    match (config.memory.as_u64(), available) {
        (0, None) => u64::MAX,
        (0, Some(available)) => available / 100 * DEFAULT_PERCENT,
        (bound, _) => bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn traffic(memory: u64, available: Option<u64>) -> Result<u64> {
        let (memory, key_index) = (ByteSize::mib(memory), ByteSize::mib(224));
        let config = QueryConfig { memory, key_index, ..QueryConfig::default() };
        core_traffic(&config, 2, available)
    }

    /// The smallest accepted `memory` in MiB: 192 + 1024 + 224 + 224 (an eighth of 1792) + 2 * 32 + 2 * 32.
    const LEAST: u64 = 1792;

    #[test]
    fn traffic_gets_half_of_what_the_other_parts_leave() {
        assert_eq!(traffic(LEAST, None).unwrap(), 32 * MIB);
        assert_eq!(traffic(2048, None).unwrap(), 88 * MIB);
        assert_eq!(traffic(1 << 20, None).unwrap(), 512 * MIB);
        assert_eq!(traffic(0, None).unwrap(), 512 * MIB);
        assert_eq!(traffic(0, Some(2500 * MIB)).unwrap(), 155 * MIB / 2);
    }

    #[test]
    fn a_bound_below_the_parts_is_refused_and_a_small_machine_is_not() {
        let error = traffic(LEAST - 1, None).unwrap_err().to_string();
        assert!(error.contains("`memory` is 1.7 GiB, and its parts take 1.7 GiB"), "{error}");
        assert!(error.contains("`index_cache` 1.0 GiB"), "{error}");
        assert_eq!(traffic(0, Some(512 * MIB)).unwrap(), 32 * MIB);
    }
}
