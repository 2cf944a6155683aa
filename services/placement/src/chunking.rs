//! How many rows make a chunk.

use address::ChunkRows;

/// What a chunk's rows should come to in the table's own files, in bytes: large enough for a fill to
/// be worth its request to the object store, small enough to evict one without regret.
pub const CHUNK_BYTES_TARGET: u64 = 4 << 20;

/// The most rows in a chunk: a chunk of narrow rows is still filled in one short scan.
const ROWS_MAX: u64 = 16_384;

/// Rows a chunk of a fragment whose file sizes are unknown (old writers did not record
/// them).
const ROWS_WHEN_UNKNOWN: u64 = 1_024;

/// How many rows each chunk of a fragment has: the power of two that comes nearest to
/// [`CHUNK_BYTES_TARGET`] from below.
///
/// `physical_rows` counts deleted rows too; `first_file_bytes` is the size of the fragment's first
/// data file, which columns that are added later do not change.
pub fn chunk_rows(physical_rows: u32, first_file_bytes: Option<u64>) -> ChunkRows {
    let rows = match first_file_bytes {
        Some(bytes) => {
            let row_bytes = (bytes / u64::from(physical_rows.max(1))).max(1);
            let rows = (CHUNK_BYTES_TARGET / row_bytes).clamp(1, ROWS_MAX);
            1 << rows.ilog2()
        }
        None => ROWS_WHEN_UNKNOWN,
    };
    // At most ROWS_MAX and at least 1, by the clamp.
    ChunkRows::new(rows as u32).unwrap_or(const { ChunkRows::new(1).unwrap() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_a_power_of_two_near_four_mebibytes() {
        let rows = |physical, bytes| chunk_rows(physical, bytes).get();
        assert_eq!(rows(1_000_000, Some(3_072_000_000)), 1024);
        assert_eq!(rows(1_000_000, Some(4_096_000_000)), 1024);
        assert_eq!(rows(1_000_000, Some(4_097_000_000)), 512);
        assert_eq!(rows(1_000_000, Some(8_000_000)), 16_384);
        assert_eq!(rows(10, Some(1 << 40)), 1);
        assert_eq!(rows(0, Some(0)), 16_384);
        assert_eq!(rows(u32::MAX, None), 1024);
    }
}
