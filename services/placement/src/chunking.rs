//! The number of rows in a chunk.

use address::ChunkRows;

/// Target size of a chunk, in bytes of the table's own files. A chunk should be large enough to be worth a request to
/// the object store, and small enough that little is lost when it is evicted.
pub const CHUNK_BYTES_TARGET: u64 = 4 << 20;

/// Maximum number of rows in a chunk, so that a chunk of narrow rows is still filled by one short scan.
const ROWS_MAX: u64 = 16_384;

/// Rows per chunk of a fragment whose file sizes are unknown, because an old writer did not record them. With rows of 4
/// KiB, such a chunk has the target size.
const ROWS_WHEN_UNKNOWN: u64 = 1_024;

/// Returns the number of rows in each chunk of a fragment: the largest power of two, up to 16,384, for which a chunk of
/// rows of average size takes at most about [`CHUNK_BYTES_TARGET`]. It is 1 if a single row takes more, and 1,024 if
/// the size of the file is unknown.
///
/// `physical_rows` includes deleted rows. `first_file_bytes` is the size of the fragment's first data file,
/// which does not change when columns are added later.
pub fn chunk_rows(physical_rows: u32, first_file_bytes: Option<u64>) -> ChunkRows {
    let rows = match first_file_bytes {
        Some(bytes) => {
            let row_bytes = (bytes / u64::from(physical_rows.max(1))).max(1);
            let rows = (CHUNK_BYTES_TARGET / row_bytes).clamp(1, ROWS_MAX);
            1 << rows.ilog2()
        }
        None => ROWS_WHEN_UNKNOWN,
    };
    // `rows` is from 1 to ROWS_MAX, whether the size is known or not, so `new` never returns `None`.
    ChunkRows::new(rows as u32).unwrap_or(const { ChunkRows::new(1).unwrap() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_the_largest_power_of_two_within_four_mebibytes() {
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
