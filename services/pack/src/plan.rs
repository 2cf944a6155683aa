//! Groups columns into packs.
//!
//! Reading a row costs one read for each pack that has a requested column. Narrow columns are usually requested
//! together, so they share a pack. A wide vector or a blob would make reads of the other columns longer, so each wide
//! vector and each blob is a pack of its own.

use arrow_schema::{DataType, Field, Schema};

/// The minimum width in bytes of a fixed-width column that is a pack of its own. A pack of its own costs one more read
/// when the column is requested with others. In the shared pack, a value of this width takes a sixteenth of the sector
/// that is read for the other columns of its row. The minimum was not chosen by measurement.
pub const WIDE_BYTES_MIN: usize = 256;

/// The columns of one pack, as indices of the schema's top-level fields, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackFields(pub Vec<usize>);

/// Groups a schema's columns into packs. The first pack has all columns that are neither wide nor blobs, if there are
/// any. Each wide fixed-width column and each blob column follows as a pack of its own, in the schema's order. The
/// result depends on the schema alone, so every node computes the same packs.
pub fn plan_packs(schema: &Schema) -> Vec<PackFields> {
    let (alone, together): (Vec<usize>, Vec<usize>) = (0..schema.fields().len())
        .partition(|&i| is_wide(schema.field(i).data_type()) || is_blob(schema.field(i)));
    let together = Some(PackFields(together)).filter(|pack| !pack.0.is_empty());
    together.into_iter().chain(alone.into_iter().map(|i| PackFields(vec![i]))).collect()
}

fn is_wide(data_type: &DataType) -> bool {
    plain_width(data_type).is_some_and(|width| width >= WIDE_BYTES_MIN)
}

fn is_blob(field: &Field) -> bool {
    let metadata = field.metadata();
    metadata.get("lance-encoding:blob").is_some_and(|value| value == "true")
        || metadata.get("ARROW:extension:name").is_some_and(|name| name == "lance.blob.v2")
}

/// Returns the width in bytes of a value without nulls, for primitive types, booleans (one byte), fixed-size binary,
/// and dictionaries and fixed-size lists of these. Returns `None` for all other types, structs included.
pub(crate) fn plain_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        DataType::FixedSizeList(item, len) => {
            plain_width(item.data_type())?.checked_mul(usize::try_from(*len).ok()?)
        }
        DataType::Dictionary(_, value) => plain_width(value),
        other => other.primitive_width(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn vector(name: &str, item: DataType, len: i32) -> Field {
        let item = Arc::new(Field::new("item", item, true));
        Field::new(name, DataType::FixedSizeList(item, len), true)
    }

    #[test]
    fn wide_and_blob_columns_are_packs_of_their_own_after_the_shared_one() {
        let mark = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let schema = Schema::new(vec![
            vector("f32x64", DataType::Float32, 64),
            Field::new("id", DataType::Int64, false),
            vector("f32x63", DataType::Float32, 63),
            Field::new("hash", DataType::FixedSizeBinary(256), false),
            Field::new("blob", DataType::LargeBinary, true)
                .with_metadata(mark("lance-encoding:blob", "true")),
            Field::new("not blob", DataType::LargeBinary, true)
                .with_metadata(mark("lance-encoding:blob", "false")),
            Field::new("blob2", DataType::Struct(arrow_schema::Fields::empty()), true)
                .with_metadata(mark("ARROW:extension:name", "lance.blob.v2")),
            vector("texts", DataType::Utf8, 1000),
        ]);
        let packs: Vec<Vec<usize>> = plan_packs(&schema).into_iter().map(|p| p.0).collect();
        assert_eq!(packs, [vec![1, 2, 5, 7], vec![0], vec![3], vec![4], vec![6]]);
        assert_eq!(plan_packs(&Schema::empty()), []);
        let only = Schema::new(vec![vector("v", DataType::Float16, 128)]);
        assert_eq!(plan_packs(&only), [PackFields(vec![0])]);
    }
}
