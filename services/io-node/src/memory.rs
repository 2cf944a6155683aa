//! Where a node's memory goes: one bound, and what each part may take of it.
//!
//! ```text
//! memory = base + rings + traffic + buffer pools + fills + writes + lake_cache + RAM tier + directory
//! ```
//!
//! All but the directory have sizes of their own; the directory may have what they leave. When that is full,
//! segments are reclaimed though drives have room.

use bytesize::ByteSize;

use crate::config::IoConfig;
use crate::error::NodeError;
use crate::fill::TRANSFERS_BYTES_MAX;

/// The program, its threads, and what allocators keep.
const BASE_BYTES: u64 = 192 << 20;

/// Buffers of replies that a core keeps for the next ones (`wire::BufferPool`).
const SPARE_BYTES: u64 = 32 << 20;

/// A fill has its chunk twice: as the table's columns, and encoded.
const COPIES_A_FILL: u64 = 2;

/// What is kept of a segment that is reclaimed is read before it is written, and may be all of it.
const RECLAIMED: u64 = 1;

/// Of what this process may use, in percent, where nothing is configured.
const DEFAULT_PERCENT: u64 = 80;

/// Of the bytes that drives hold, in thousandths, for the directory: what rows of 4 KiB take, thrice.
const DIRECTORY_THOUSANDTHS: u64 = 3;

/// The most and the least that traffic gets where nothing is configured, a core.
const TRAFFIC_DEFAULT_MAX: u64 = 512 << 20;
const TRAFFIC_DEFAULT_MIN: u64 = 32 << 20;

/// The least that a core can serve with: some connections and streams, and batches.
const TRAFFIC_MIN: u64 = 4 << 20;

/// What the parts may take that have no fixed size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What clients can make the node hold, over all cores.
    pub traffic: u64,
    /// The directory.
    pub directory: u64,
}

impl MemoryPlan {
    /// Divides memory: of `cores` cores, with drives of `capacity` bytes, on a machine (or in a control group)
    /// of `available` bytes, if it tells.
    ///
    /// # Errors
    /// [`NodeError::Config`] when a configured bound is less than the parts come to.
    pub fn new(
        config: &IoConfig,
        cores: usize,
        capacity: u64,
        available: Option<u64>,
    ) -> Result<Self, NodeError> {
        let cores = cores as u64;
        let bound = match (config.memory.as_u64(), available) {
            (0, None) => u64::MAX,
            (0, Some(available)) => available / 100 * DEFAULT_PERCENT,
            (bound, _) => bound,
        };
        let segments = config.fills as u64 * COPIES_A_FILL + RECLAIMED;
        let drives = config.drives.len() as u64;
        let mut parts = vec![
            ("the program itself", BASE_BYTES),
            ("`slots` of `read_max`", cores * u64::from(config.slots) * config.read_max.as_u64()),
            ("replies' buffers", cores * SPARE_BYTES),
            ("`drives`' writes", drives * TRANSFERS_BYTES_MAX as u64),
            ("`fills` of a `segment`, and one reclaimed", segments * config.segment.as_u64()),
            ("`lake_cache`", config.lake_cache.as_u64()),
            ("`ram_tier`", config.ram_tier.as_u64()),
        ];
        let sum = |parts: &[(&str, u64)]| parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let wanted = capacity / 1000 * DIRECTORY_THOUSANDTHS;
        let traffic = match config.traffic_memory.as_u64() {
            0 => (bound.saturating_sub(sum(&parts) + wanted) / 2)
                .clamp(cores * TRAFFIC_DEFAULT_MIN, cores * TRAFFIC_DEFAULT_MAX),
            configured => configured,
        };
        if traffic < cores * TRAFFIC_MIN {
            let least = ByteSize::b(cores * TRAFFIC_MIN);
            let problem = format!("must be at least {least} for {cores} cores");
            return Err(NodeError::Config { field: "traffic_memory", problem });
        }
        parts.push(("`traffic_memory`", traffic));
        let rest = sum(&parts);
        let directory = bound.saturating_sub(rest);
        if directory >= wanted {
            return Ok(Self { traffic, directory });
        }
        let is_configured = config.memory.as_u64() > 0;
        if is_configured && directory == 0 {
            let parts = parts.iter().map(|(name, bytes)| format!("{name} {}", ByteSize::b(*bytes)));
            let problem = format!(
                "is {}, and the other parts take {} already ({}): lower them, or give at least {}",
                config.memory,
                ByteSize::b(rest),
                parts.collect::<Vec<_>>().join(", "),
                ByteSize::b(rest + wanted),
            );
            return Err(NodeError::Config { field: "memory", problem });
        }
        // Without a bound of the operator's own a small machine is no reason not to start.
        let directory = if is_configured { directory } else { directory.max(wanted) };
        tracing::warn!(
            memory = %ByteSize::b(bound),
            rest = %ByteSize::b(rest),
            directory = %ByteSize::b(directory),
            wanted = %ByteSize::b(wanted),
            "memory is short: the directory may not have room for all that the drives can hold"
        );
        Ok(Self { traffic, directory })
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

    /// 192 MiB + 2 × 256 × 32 KiB + 2 × 32 MiB + (2 × 2 + 1) × 64 MiB + 256 MiB + 256 MiB, and a drive's writes.
    const FIXED: u64 = 1104 * MIB + TRANSFERS_BYTES_MAX as u64;

    #[test]
    fn the_directory_has_what_the_others_leave() {
        let large = plan(8 * GIB, 100 * GIB, None).unwrap();
        assert_eq!(large, MemoryPlan { traffic: GIB, directory: 7 * GIB - FIXED });
        let available = plan(0, 100 * GIB, Some(10 * GIB)).unwrap();
        assert_eq!(available.directory, 10 * GIB / 100 * 80 - GIB - FIXED);
        let unknown = plan(0, 100 * GIB, None).unwrap();
        assert_eq!(unknown.traffic, GIB);
        assert!(unknown.directory > u64::MAX / 2);
    }

    #[test]
    fn a_bound_below_the_parts_is_refused_with_what_they_are() {
        let error = plan(GIB, 100 * GIB, None).unwrap_err().to_string();
        assert!(error.contains("`traffic_memory` 64.0 MiB"), "{error}");
        assert!(error.contains("`lake_cache` 256.0 MiB"), "{error}");
        assert!(error.contains("give at least 1.4 GiB"), "{error}");
    }

    #[test]
    fn a_small_machine_has_less_traffic_and_starts() {
        // Half of what the rest leaves.
        let small = plan(0, GIB, Some(2 * GIB)).unwrap();
        assert_eq!(small.traffic / MIB, (2 * 1024 * 80 / 100 - FIXED.div_ceil(MIB) - 3) / 2);
        let wanted = 100 * GIB / 1000 * 3;
        let tiny = plan(0, 100 * GIB, Some(GIB)).unwrap();
        assert_eq!(tiny, MemoryPlan { traffic: 64 * MIB, directory: wanted });
        // A bound is a bound.
        let short = plan(FIXED + 64 * MIB + 1000, 100 * GIB, None).unwrap();
        assert_eq!(short, MemoryPlan { traffic: 64 * MIB, directory: 1000 });
    }
}
