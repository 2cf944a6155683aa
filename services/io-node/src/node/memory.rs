//! Divides a node's memory: one bound, and the part of it that each consumer may use.
//!
//! ```text
//! memory = base + rings + traffic + buffer pools + fills + writes + lake cache + RAM tier + directory
//! ```
//!
//! The settings and the constants below determine all parts but two. Traffic gets `traffic_memory`, or by default half
//! of what is left after the other parts and the size that the directory should have, within bounds per core. The
//! directory gets the rest. When it is full, segments are reclaimed although the drives have room.

use bytesize::ByteSize;

use crate::cache::TRANSFERS_BYTES_MAX;
use crate::config::IoConfig;
use crate::error::NodeError;

/// Bytes for the program, its threads, and the memory that the allocator retains.
const BASE_BYTES: u64 = 192 << 20;

/// Bytes of the buffers of sent replies that a core keeps for reuse (`wire::BufferPool`): the maximum of the pool.
const SPARE_BYTES: u64 = 32 << 20;

/// The number of copies of its chunk that a fill holds: its batches and the joined columns, and then these columns and
/// the extent. A scan of several chunks takes no more: at most half a segment of batches (`SCAN_PART`), one chunk's
/// joined columns, and a segment of extents. Not included is the batch with which a read exceeds its limit
/// (`batch_rows` in `lake/src/read/chunk.rs`), and what Lance holds of the files' bytes.
const COPIES_A_FILL: u64 = 2;

/// The number of segments for which reclaiming needs memory: the extents to keep are read into memory before they are
/// written again, and they may make up a whole segment.
const RECLAIMED: u64 = 1;

/// The default of `memory`, in percent of the memory that this process may use. The rest is for the kernel and for
/// other processes.
const DEFAULT_PERCENT: u64 = 80;

/// The memory that the directory should have, in thousandths of the drives' capacity: three times what extents with
/// rows of 4 KiB need.
const DIRECTORY_THOUSANDTHS: u64 = 3;

/// The cache of tables' indexes and metadata may have `memory` divided by this, but at most [`LAKE_CACHE_MAX`] bytes.
const LAKE_CACHE_PART: u64 = 8;

/// The maximum size of the cache of tables' indexes and metadata, in bytes.
const LAKE_CACHE_MAX: u64 = 256 << 20;

/// The maximum of each core's traffic memory if `traffic_memory` is not configured, in bytes. It has room for more than
/// 200 replies of the usual 1 to 2 MB.
const TRAFFIC_MAX: u64 = 512 << 20;

/// The minimum of each core's traffic memory if `traffic_memory` is not configured, in bytes. It has room for 16
/// replies of the usual 1 to 2 MB.
const TRAFFIC_MIN: u64 = 32 << 20;

/// The sizes, in bytes, of the parts that are computed from the sizes of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Memory for connections, requests and replies, over all cores: `traffic_memory`, if it is configured.
    pub traffic: u64,
    /// Memory for the directory: the rest.
    pub directory: u64,
}

impl MemoryPlan {
    /// Divides the memory of a node with `cores` cores and drives of `capacity` bytes, on a machine or in a control
    /// group with `available` bytes, if that is known.
    ///
    /// # Errors
    /// [`NodeError::Config`] if a configured bound leaves nothing for the directory.
    pub fn new(
        config: &IoConfig,
        cores: usize,
        capacity: u64,
        available: Option<u64>,
    ) -> Result<Self, NodeError> {
        let cores = cores as u64;
        let bound = bound(config, available);
        let segments = config.fills as u64 * COPIES_A_FILL + RECLAIMED;
        let drives = config.drives.len() as u64;
        let mut parts = vec![
            ("the program itself", BASE_BYTES),
            ("buffers of `slots`", cores * u64::from(config.slots) * config.read_max.as_u64()),
            ("replies' buffers", cores * SPARE_BYTES),
            ("`drives`' writes", drives * TRANSFERS_BYTES_MAX as u64),
            ("`segment`s that are filled or reclaimed", segments * config.segment.as_u64()),
            ("tables' metadata", lake_cache(bound)),
            ("`ram_tier`", config.ram_tier.as_u64()),
        ];
        let sum = |parts: &[(&str, u64)]| parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let wanted = capacity / 1000 * DIRECTORY_THOUSANDTHS;
        let traffic = match config.traffic_memory.as_u64() {
            0 => (bound.saturating_sub(sum(&parts) + wanted) / 2)
                .clamp(cores * TRAFFIC_MIN, cores * TRAFFIC_MAX),
            configured => configured,
        };
        parts.push(("clients", traffic));
        let others = sum(&parts);
        let directory = bound.saturating_sub(others);
        if directory >= wanted {
            return Ok(Self { traffic, directory });
        }
        let is_configured = config.memory.as_u64() > 0;
        if is_configured && directory == 0 {
            let parts = parts.iter().map(|(name, bytes)| format!("{name} {}", ByteSize::b(*bytes)));
            let problem = format!(
                "is {}, but the other parts need {} ({}): lower them, or give at least {}",
                config.memory,
                ByteSize::b(others),
                parts.collect::<Vec<_>>().join(", "),
                ByteSize::b(others + wanted + (LAKE_CACHE_MAX - lake_cache(bound))),
            );
            return Err(NodeError::Config { field: "memory", problem });
        }
        // If the operator has configured no bound, the node starts even on a machine with too little memory.
        let directory = if is_configured { directory } else { directory.max(wanted) };
        tracing::warn!(
            memory = %ByteSize::b(bound),
            other_parts = %ByteSize::b(others),
            directory = %ByteSize::b(directory),
            wanted = %ByteSize::b(wanted),
            "memory is short: the directory may not have room for all that the drives can hold"
        );
        Ok(Self { traffic, directory })
    }
}

/// Returns the memory that the node may use in total, on a machine or in a control group with `available` bytes.
fn bound(config: &IoConfig, available: Option<u64>) -> u64 {
    match (config.memory.as_u64(), available) {
        (0, None) => u64::MAX,
        (0, Some(available)) => available / 100 * DEFAULT_PERCENT,
        (bound, _) => bound,
    }
}

fn lake_cache(bound: u64) -> u64 {
    (bound / LAKE_CACHE_PART).min(LAKE_CACHE_MAX)
}

impl IoConfig {
    /// Returns the bytes of the cache of tables' indexes and metadata.
    pub fn lake_cache_bytes(&self) -> usize {
        lake_cache(bound(self, process::memory_bytes())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DriveConfig;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn plan(memory: u64, capacity: u64, available: Option<u64>) -> Result<MemoryPlan, NodeError> {
        let drive = DriveConfig { path: "drive".into(), size: None };
        let memory = ByteSize::b(memory);
        let config = IoConfig { memory, drives: vec![drive], ..IoConfig::default() };
        MemoryPlan::new(&config, 2, capacity, available)
    }

    /// 192 MiB + 2 × 256 × 32 KiB + 2 × 32 MiB + (2 × 2 + 1) × 64 MiB + 256 MiB + 256 MiB, and the writes of one drive.
    const FIXED: u64 = 1104 * MIB + TRANSFERS_BYTES_MAX as u64;

    #[test]
    fn the_directory_gets_what_the_other_parts_leave() {
        let large = plan(8 * GIB, 100 * GIB, None).unwrap();
        assert_eq!(large, MemoryPlan { traffic: GIB, directory: 7 * GIB - FIXED });
        let available = plan(0, 100 * GIB, Some(10 * GIB)).unwrap();
        assert_eq!(available.directory, 10 * GIB / 100 * 80 - GIB - FIXED);
        let unknown = plan(0, 100 * GIB, None).unwrap();
        assert_eq!(unknown.traffic, GIB);
        assert!(unknown.directory > u64::MAX / 2);
    }

    #[test]
    fn a_bound_below_the_sum_of_the_parts_is_refused_with_a_list_of_them() {
        let error = plan(GIB, 100 * GIB, None).unwrap_err().to_string();
        assert!(error.contains("clients 64.0 MiB"), "{error}");
        assert!(error.contains("tables' metadata 128.0 MiB"), "{error}");
        assert!(error.contains("give at least 1.4 GiB"), "{error}");
    }

    #[test]
    fn a_small_machine_has_less_traffic_and_starts() {
        // Half of what is left after the other parts and 0.3 % of the drive for the directory.
        let small = plan(0, GIB, Some(3 * GIB)).unwrap();
        assert_eq!(small.traffic, (3 * GIB / 100 * 80 - FIXED - GIB / 1000 * 3) / 2);
        let wanted = 100 * GIB / 1000 * 3;
        let tiny = plan(0, 100 * GIB, Some(GIB)).unwrap();
        assert_eq!(tiny, MemoryPlan { traffic: 64 * MIB, directory: wanted });
        // A configured bound is not exceeded.
        let bound = FIXED + 64 * MIB + 1000;
        let short = plan(bound, 100 * GIB, None).unwrap();
        let directory = 1000 + 256 * MIB - bound / 8;
        assert_eq!(short, MemoryPlan { traffic: 64 * MIB, directory });
    }
}
