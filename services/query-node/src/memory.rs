//! Where a query node's memory goes: one bound, and what each part may take of it.
//!
//! ```text
//! memory = base + index_cache + metadata_cache + buffer pools + traffic + what searches compute with
//! ```
//!
//! Traffic is what callers can make the node hold: connections, requests as they arrive, rows as they come, and
//! replies until they have left. It has half of what the others leave; searches have the other half.

use bytesize::ByteSize;

use crate::config::QueryConfig;
use crate::error::{QueryError, Result};

/// The program, its threads, and what allocators keep.
const BASE_BYTES: u64 = 192 << 20;

/// Buffers of rows that a core keeps for the next ones (`wire::BufferPool`).
const SPARE_BYTES: u64 = 32 << 20;

/// Of what this process may use, in percent, where nothing is configured.
const DEFAULT_PERCENT: u64 = 80;

/// The most that traffic gets, a core: thousands of replies.
const TRAFFIC_MAX: u64 = 512 << 20;

/// The least, a core: the largest Take, and searches beside it.
const TRAFFIC_MIN: u64 = 32 << 20;

/// What callers of one of `cores` cores may hold, in bytes, on a machine (or in a control group) of `available` bytes,
/// if it tells.
///
/// # Errors
/// [`QueryError::Config`] when the configured bound is less than the parts come to.
pub fn core_traffic(config: &QueryConfig, cores: usize, available: Option<u64>) -> Result<u64> {
    let cores = cores as u64;
    let parts = [
        ("the program itself", BASE_BYTES),
        ("`index_cache`", config.index_cache.as_u64()),
        ("`metadata_cache`", config.metadata_cache.as_u64()),
        ("rows' buffers", cores.saturating_mul(SPARE_BYTES)),
        ("callers", cores.saturating_mul(TRAFFIC_MIN)),
    ];
    let least = parts.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let bound = match (config.memory.as_u64(), available) {
        (0, None) => u64::MAX,
        (0, Some(available)) => available / 100 * DEFAULT_PERCENT,
        (bound, _) => bound,
    };
    if bound < least && config.memory.as_u64() > 0 {
        let parts = parts.iter().map(|(name, bytes)| format!("{name} {}", ByteSize::b(*bytes)));
        let problem = format!(
            "is {}, and its parts take {} ({}): lower `index_cache` or `metadata_cache`, or give at least that",
            config.memory,
            ByteSize::b(least),
            parts.collect::<Vec<_>>().join(", "),
        );
        return Err(QueryError::Config { field: "memory".into(), problem });
    }
    if bound < least {
        // Without a bound of the operator's own a small machine is no reason not to start.
        tracing::warn!(
            memory = %ByteSize::b(bound),
            parts = %ByteSize::b(least),
            "memory is short: lower `index_cache` or `metadata_cache`"
        );
    }
    let left = bound.saturating_sub(least) / 2 / cores.max(1);
    Ok((TRAFFIC_MIN + left).min(TRAFFIC_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(memory: u64, available: Option<u64>) -> Result<u64> {
        let config = QueryConfig { memory: ByteSize::mib(memory), ..QueryConfig::default() };
        core_traffic(&config, 2, available)
    }

    /// 192 + 1024 + 256 + 2 * 32 + 2 * 32.
    const LEAST: u64 = 1600;

    #[test]
    fn traffic_has_half_of_what_the_others_leave() {
        assert_eq!(of(LEAST, None).unwrap(), 32 * MIB);
        assert_eq!(of(LEAST + 400, None).unwrap(), 132 * MIB);
        assert_eq!(of(1 << 20, None).unwrap(), 512 * MIB);
        assert_eq!(of(0, None).unwrap(), 512 * MIB);
        assert_eq!(of(0, Some(2500 * MIB)).unwrap(), 132 * MIB);
    }

    #[test]
    fn a_bound_below_the_parts_is_refused_and_a_small_machine_is_not() {
        let error = of(LEAST - 1, None).unwrap_err().to_string();
        assert!(error.contains("`memory` is 1.6 GiB, and its parts take 1.6 GiB"), "{error}");
        assert!(error.contains("`index_cache` 1.0 GiB"), "{error}");
        assert_eq!(of(0, Some(512 * MIB)).unwrap(), 32 * MIB);
    }
}
