//! How large a cache `bireme up` makes where it isn't told.

use arrow_schema::{DataType, SchemaRef};
use bytesize::ByteSize;
use lake::Table;

/// No cache is smaller: tables grow, and so little is missed by nobody.
const CACHE_BYTES_MIN: u64 = 256 << 20;

/// A laptop's disk is not for more unless it is asked for.
const CACHE_BYTES_MAX: u64 = 4 << 30;

/// Sizes are whole segments.
const UNIT_BYTES: u64 = 64 << 20;

/// Room for all of `tables` and for as much again: rows lie on the drive decoded and in whole
/// sectors.
pub fn cache_size_for<'a>(tables: impl IntoIterator<Item = &'a Table>) -> ByteSize {
    let tables: Option<Vec<u64>> = tables.into_iter().map(table_bytes).collect();
    ByteSize::b(tables.map_or(CACHE_BYTES_MAX, |tables| fitting(tables.into_iter().sum())))
}

fn fitting(table_bytes: u64) -> u64 {
    let wanted = table_bytes.saturating_mul(2).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX);
    wanted.next_multiple_of(UNIT_BYTES)
}

/// The columns of constant width by their rows, and all others by the files that they came with.
/// `None` where the table doesn't tell.
fn table_bytes(table: &Table) -> Option<u64> {
    let row_bytes = fixed_bytes(table.schema());
    let fragments = table.fragments().iter();
    fragments.map(|it| Some(it.first_file_bytes? + u64::from(it.physical_rows) * row_bytes)).sum()
}

/// Bytes of a row's columns of constant width: columns that were added to a table later are in files
/// of their own, and these are mostly vectors.
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
    fn a_cache_is_no_larger_than_is_of_use() {
        assert_eq!(fitting(0), 256 * MIB);
        assert_eq!(fitting(128 * MIB + 1), 320 * MIB);
        assert_eq!(fitting(500 * MIB), 1024 * MIB);
        assert_eq!(fitting(u64::MAX), 4096 * MIB);
    }

    #[test]
    fn columns_of_constant_width_count_for_what_they_are() {
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
