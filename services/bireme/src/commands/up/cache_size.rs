//! The default size of the cache of `bireme up`.

use arrow_schema::{DataType, SchemaRef};
use bytesize::ByteSize;
use lake::Table;

/// The smallest default, in bytes. Tables grow, and a disk can usually spare this much.
const CACHE_BYTES_MIN: u64 = 256 << 20;

/// The largest default, in bytes. More of a laptop's disk is used only on request.
const CACHE_BYTES_MAX: u64 = 4 << 30;

/// Sizes are multiples of this, in bytes: the maximum size of a segment.
const UNIT_BYTES: u64 = 64 << 20;

/// Returns twice the size of `tables`, within the limits, or the maximum if a size is not known. Rows take more space
/// on the drive than in the table, because they are decoded and fill whole sectors.
pub fn cache_size_for<'a>(tables: impl IntoIterator<Item = &'a Table>) -> ByteSize {
    let tables: Option<Vec<u64>> = tables.into_iter().map(table_bytes).collect();
    ByteSize::b(tables.map_or(CACHE_BYTES_MAX, |tables| default_bytes(tables.into_iter().sum())))
}

/// Returns the largest default.
pub fn cache_size_max() -> ByteSize {
    ByteSize::b(CACHE_BYTES_MAX)
}

fn default_bytes(table_bytes: u64) -> u64 {
    let wanted = table_bytes.saturating_mul(2).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX);
    wanted.next_multiple_of(UNIT_BYTES)
}

/// Estimates a table's size: the bytes of each fragment's first file, plus those of its fixed-width columns, which
/// count twice if they are in the first file. `None` if the size of a file is not known.
fn table_bytes(table: &Table) -> Option<u64> {
    let row_bytes = fixed_bytes(table.schema());
    let fragments = table.fragments().iter();
    fragments.map(|it| Some(it.first_file_bytes? + u64::from(it.physical_rows) * row_bytes)).sum()
}

/// Returns the bytes of a row's fixed-width columns. They are counted separately, because columns that were added later
/// are not in a fragment's first file, and most columns that are added later are vectors.
fn fixed_bytes(schema: &SchemaRef) -> u64 {
    schema.fields().iter().map(|field| width(field.data_type())).sum()
}

fn width(data_type: &DataType) -> u64 {
    let unsigned = |width: i32| u64::try_from(width).unwrap_or(0);
    match data_type {
        DataType::FixedSizeList(item, len) => width(item.data_type()) * unsigned(*len),
        DataType::FixedSizeBinary(width) => unsigned(*width),
        other => other.primitive_width().unwrap_or(0) as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, Schema};

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_default_is_twice_the_tables_within_limits() {
        assert_eq!(default_bytes(0), 256 * MIB);
        assert_eq!(default_bytes(128 * MIB + 1), 320 * MIB);
        assert_eq!(default_bytes(500 * MIB), 1024 * MIB);
        assert_eq!(default_bytes(u64::MAX), 4096 * MIB);
    }

    #[test]
    fn fixed_width_columns_are_counted() {
        let vector = DataType::new_fixed_size_list(DataType::Float32, 384, true);
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("text", DataType::Utf8, true),
            Field::new("hash", DataType::FixedSizeBinary(16), true),
            Field::new("vector", vector, true),
        ]);
        assert_eq!(fixed_bytes(&Arc::new(schema)), 8 + 16 + 1536);
    }
}
