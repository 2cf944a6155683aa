//! Wire types: the types in which an I/O node sends columns.
//!
//! They are the table's types, except that dictionaries and views are converted to plain values. A reply has rows of
//! many extents, whose dictionaries and view buffers differ. [`crate::restore`] converts back.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema};

/// Returns the field with its wire type: a dictionary becomes its value type, `Utf8View` becomes `Utf8`, and
/// `BinaryView` becomes `Binary`, at every depth. Name, nullability and metadata stay the same.
pub fn wire_field(field: &Field) -> Field {
    field.clone().with_data_type(wire_type(field.data_type()))
}

/// Applies [`wire_field`] to every field of a schema. The schema's metadata stays the same.
pub fn wire_schema(schema: &Schema) -> Schema {
    let fields: Vec<Field> = schema.fields().iter().map(|field| wire_field(field)).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// Returns the wire type of a data type (see [`wire_field`]).
pub fn wire_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => wire_type(value),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => map_children(other, wire_type),
    }
}

/// Returns the type to which a column is cast before it is encoded: the wire type, but with 64-bit offsets for values
/// of dictionaries and views, because a chunk of them may exceed 2 GiB when it is decoded. The encoded bytes do not
/// depend on the width of offsets.
pub(crate) fn encoded_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => match encoded_type(value) {
            DataType::Utf8 => DataType::LargeUtf8,
            DataType::Binary => DataType::LargeBinary,
            other => other,
        },
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        other => map_children(other, encoded_type),
    }
}

/// Applies `map` to the types of the direct children of `data_type`.
pub(crate) fn map_children(data_type: &DataType, map: fn(&DataType) -> DataType) -> DataType {
    let child = |field: &FieldRef| -> FieldRef {
        Arc::new(field.as_ref().clone().with_data_type(map(field.data_type())))
    };
    match data_type {
        DataType::List(item) => DataType::List(child(item)),
        DataType::LargeList(item) => DataType::LargeList(child(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(child(item), *len),
        DataType::Map(entries, sorted) => DataType::Map(child(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(child).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_and_views_are_converted_at_every_depth_and_metadata_stays() {
        let dictionary = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8View.into());
        let item = Field::new("item", dictionary, true)
            .with_metadata([("unit".to_owned(), "m".to_owned())].into());
        let list = Field::new("l", DataType::List(Arc::new(item)), false);
        let wire = wire_field(&list);
        let DataType::List(item) = wire.data_type() else { panic!("{wire}") };
        assert_eq!(item.data_type(), &DataType::Utf8);
        assert_eq!(item.metadata()["unit"], "m");
        assert!(!wire.is_nullable());
        let schema =
            Schema::new_with_metadata(vec![list], [("k".to_owned(), "v".to_owned())].into());
        assert_eq!(wire_schema(&schema).metadata()["k"], "v");
        assert_eq!(wire_schema(&schema).field(0), &wire);
    }
}
