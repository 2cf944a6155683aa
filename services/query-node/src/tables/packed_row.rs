//! Estimates the size of a row in the pack that most columns share. Pure.

use arrow_schema::Schema;

use super::projection::{ROW_BYTES_LIKELY, bytes_of};

/// Returns the approximate size of a row's columns at the positions `shared` of a wire schema, in bytes. Those without
/// a fixed size count as what all columns with a fixed size leave of `row_bytes`, a row's share of the table's data
/// files. They count as [`ROW_BYTES_LIKELY`] if that is more, or if columns outside of `shared` have no fixed size
/// either.
pub fn packed_row_bytes(schema: &Schema, shared: &[usize], row_bytes: u64) -> usize {
    let (mut of_shared, mut of_all) = (0_usize, 0_usize);
    let (mut is_fixed, mut has_blobs) = (true, false);
    for (at, field) in schema.fields().iter().enumerate() {
        let is_shared = shared.contains(&at);
        match bytes_of(field.data_type()) {
            Some(bytes) => {
                of_all = of_all.saturating_add(bytes);
                of_shared = of_shared.saturating_add(if is_shared { bytes } else { 0 });
            }
            None if is_shared => is_fixed = false,
            None => has_blobs = true,
        }
    }
    if is_fixed {
        return of_shared;
    }
    // The files do not say how much of them are blobs.
    let others = match has_blobs {
        true => 0,
        false => usize::try_from(row_bytes).unwrap_or(usize::MAX).saturating_sub(of_all),
    };
    of_shared.saturating_add(others.max(ROW_BYTES_LIKELY))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn texts_take_what_other_columns_leave_of_the_files() {
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let vector = DataType::FixedSizeList(item, 768);
        let field = |name: &str, of: &DataType| Field::new(name, of.clone(), true);
        let (number, text) = (DataType::Int64, DataType::Utf8);
        let fixed = Schema::new(vec![field("id", &number), field("v", &vector)]);
        assert_eq!(packed_row_bytes(&fixed, &[0], 1 << 20), 8);
        let texts =
            Schema::new(vec![field("id", &number), field("body", &text), field("v", &vector)]);
        assert_eq!(packed_row_bytes(&texts, &[0, 1], 8 + 3_072 + 40_000), 8 + 40_000);
        // Nothing is known of the files, or they are compressed.
        assert_eq!(packed_row_bytes(&texts, &[0, 1], 0), 8 + 64);
        assert_eq!(packed_row_bytes(&texts, &[0], 1 << 20), 8);
        // One more column without a fixed size, in a pack of its own.
        let blobs = Schema::new(vec![field("body", &text), field("blob", &DataType::LargeBinary)]);
        assert_eq!(packed_row_bytes(&blobs, &[0], 1 << 20), 64);
    }
}
