//! The Arrow schema with which a table is served, and the conversion of batches to it.
//!
//! The schema is that of Lance's own `take`, with two differences: a blob column is `LargeBinary` with its contents,
//! not a descriptor (position and size), and its field always has `lance-encoding:blob = true`, however the table
//! stores it (v1: metadata on a binary column; v2: an extension type on a struct). Everything else stays, including
//! field metadata (`ARROW:extension:name` of bfloat16 or JSON).

pub(crate) mod json;
pub(crate) mod text_type;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    RecordBatch, RecordBatchOptions, StructArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use lance::dataset::Dataset;
use lance_arrow::json::convert_lance_json_to_arrow;
use lance_arrow::{ARROW_EXT_NAME_KEY, BLOB_META_KEY, BLOB_V2_EXT_NAME};
use lance_core::datatypes::{BlobHandling, Schema as LanceSchema};

use crate::error::LakeError;

/// The maximum fixed width of a value of one column, in bytes; the widest are vectors. A column of nulls takes no space
/// in its file but its full width in memory, so without this bound a schema alone could request any amount of memory
/// for one column.
const FIXED_ROW_BYTES_MAX: u64 = 16 << 20;

/// Checks the width of the columns. Errors: `UnsupportedType`, naming the first column that is too wide.
pub(crate) fn check_width(schema: &ArrowSchema) -> Result<(), LakeError> {
    let wide = |field: &&FieldRef| fixed_bytes(field.data_type()) > FIXED_ROW_BYTES_MAX;
    match schema.fields().iter().find(wide) {
        None => Ok(()),
        Some(field) => Err(LakeError::UnsupportedType {
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
            why: format!(
                "a value takes {} bytes, and at most {FIXED_ROW_BYTES_MAX} are served",
                fixed_bytes(field.data_type())
            ),
        }),
    }
}

fn fixed_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeList(item, size) => {
            fixed_bytes(item.data_type()).saturating_mul((*size).max(0) as u64)
        }
        DataType::FixedSizeBinary(size) => (*size).max(0) as u64,
        DataType::Struct(fields) => {
            fields.iter().map(|field| fixed_bytes(field.data_type())).fold(0, u64::saturating_add)
        }
        // Offsets, views and keys take at most 16 bytes.
        other => other.primitive_width().unwrap_or(16) as u64,
    }
}

/// Converts a schema to Arrow's types. JSON, which Lance stores as binary, becomes text.
pub(crate) fn arrow_schema(schema: &LanceSchema) -> Result<SchemaRef, ArrowError> {
    let stored = RecordBatch::new_empty(Arc::new(ArrowSchema::from(schema)));
    Ok(convert_lance_json_to_arrow(&stored)?.schema())
}

/// The served schema of all columns of `dataset`.
pub(crate) fn served_schema(dataset: &Arc<Dataset>) -> Result<SchemaRef, ArrowError> {
    let bare = arrow_schema(&stored_view(dataset, dataset.schema()))?;
    let fields: Vec<_> = bare.fields().iter().map(served_field).collect();
    Ok(Arc::new(ArrowSchema::new_with_metadata(fields, dataset.schema().metadata.clone())))
}

/// Returns `columns` in the form that Lance's readers take: blobs as contents, not as descriptors.
pub(crate) fn stored_view(dataset: &Arc<Dataset>, columns: &LanceSchema) -> LanceSchema {
    view(dataset, columns, BlobHandling::AllBinary)
}

/// Returns `columns` in the form that Lance's readers take, with descriptors of blobs.
pub(crate) fn described_view(dataset: &Arc<Dataset>, columns: &LanceSchema) -> LanceSchema {
    view(dataset, columns, BlobHandling::BlobsDescriptions)
}

fn view(dataset: &Arc<Dataset>, columns: &LanceSchema, blobs: BlobHandling) -> LanceSchema {
    dataset.empty_projection().union_schema(columns).with_blob_handling(blobs).to_bare_schema()
}

/// Returns whether a served field has blobs.
pub(crate) fn is_blob(field: &Field) -> bool {
    field.metadata().contains_key(BLOB_META_KEY)
}

fn served_field(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(served_field).collect::<Fields>())
        }
        DataType::List(item) => DataType::List(served_field(item)),
        DataType::LargeList(item) => DataType::LargeList(served_field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(served_field(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(served_field(entries), *sorted),
        other => other.clone(),
    };
    let metadata = served_metadata(field.metadata());
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_metadata(metadata))
}

fn served_metadata(metadata: &HashMap<String, String>) -> HashMap<String, String> {
    let mut metadata = metadata.clone();
    if metadata.get(ARROW_EXT_NAME_KEY).is_some_and(|name| name == BLOB_V2_EXT_NAME) {
        metadata.remove(ARROW_EXT_NAME_KEY);
        metadata.insert(BLOB_META_KEY.to_owned(), "true".to_owned());
    }
    metadata
}

/// Selects the columns of `served` by name from what a reader returned, and converts them to exactly the served types.
/// Fails if a column is missing or its values don't fit.
pub(crate) fn conform(batch: &RecordBatch, served: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let batch = convert_lance_json_to_arrow(batch)?;
    let mut columns = Vec::with_capacity(served.fields().len());
    for field in served.fields() {
        let column = batch.column_by_name(field.name()).ok_or_else(|| {
            ArrowError::SchemaError(format!(
                "column {:?} is missing from what Lance read",
                field.name()
            ))
        })?;
        columns.push(conform_array(column, field)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(served.clone(), columns, &options)
}

/// Converts `array` to exactly the type of `field`, including nested names and metadata. Fails if a value doesn't fit.
pub(crate) fn conform_array(array: &ArrayRef, field: &FieldRef) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == field.data_type() {
        return Ok(array.clone());
    }
    match (array.data_type(), field.data_type()) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let old = array.as_struct();
            let columns = fields
                .iter()
                .map(|field| {
                    let column = old.column_by_name(field.name()).ok_or_else(|| {
                        ArrowError::SchemaError(format!(
                            "field {:?} is missing from what Lance read",
                            field.name()
                        ))
                    })?;
                    conform_array(column, field)
                })
                .collect::<Result<Vec<_>, _>>()?;
            let new = StructArray::try_new_with_length(
                fields.clone(),
                columns,
                old.nulls().cloned(),
                old.len(),
            )?;
            Ok(Arc::new(new))
        }
        (DataType::List(_), DataType::List(item)) => conform_list::<i32>(array, item),
        (DataType::LargeList(_), DataType::LargeList(item)) => conform_list::<i64>(array, item),
        (DataType::FixedSizeList(_, had), DataType::FixedSizeList(item, size)) if had == size => {
            let old = array.as_fixed_size_list();
            let values = conform_array(old.values(), item)?;
            let new = FixedSizeListArray::try_new_with_length(
                item.clone(),
                *size,
                values,
                old.nulls().cloned(),
                old.len(),
            )?;
            Ok(Arc::new(new))
        }
        (DataType::Map(_, _), DataType::Map(entries, sorted)) => {
            let old = array.as_map();
            let inner: ArrayRef = Arc::new(old.entries().clone());
            let inner = conform_array(&inner, entries)?.as_struct().clone();
            let new = MapArray::try_new(
                entries.clone(),
                old.offsets().clone(),
                inner,
                old.nulls().cloned(),
                *sorted,
            )?;
            Ok(Arc::new(new))
        }
        // Not `safe`: a value that doesn't fit is an error, never a null.
        _ => cast_with_options(
            array,
            field.data_type(),
            &CastOptions { safe: false, ..Default::default() },
        ),
    }
}

fn conform_list<O: OffsetSizeTrait>(
    array: &ArrayRef,
    item: &FieldRef,
) -> Result<ArrayRef, ArrowError> {
    let old = array.as_list::<O>();
    let values = conform_array(old.values(), item)?;
    let new = GenericListArray::<O>::try_new(
        item.clone(),
        old.offsets().clone(),
        values,
        old.nulls().cloned(),
    )?;
    Ok(Arc::new(new))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, ListArray};
    use arrow::buffer::OffsetBuffer;

    use super::*;

    #[test]
    fn nested_fields_get_the_served_metadata() {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let marked =
            Arc::new(item.as_ref().clone().with_metadata([("a".into(), "b".into())].into()));
        let values = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let list = ListArray::new(item, OffsetBuffer::from_lengths([1, 2]), values, None);
        let batch = RecordBatch::try_from_iter([("x", Arc::new(list) as ArrayRef)]).unwrap();
        let served =
            Arc::new(ArrowSchema::new(vec![Field::new("x", DataType::List(marked.clone()), true)]));
        let new = conform(&batch, &served).unwrap();
        assert_eq!(new.schema(), served);
        assert_eq!(new.column(0).as_list::<i32>().value(1).len(), 2);
        let absent = Arc::new(ArrowSchema::new(vec![Field::new("y", DataType::Int32, true)]));
        assert!(conform(&batch, &absent).is_err());
    }

    #[test]
    fn the_width_of_a_row_is_bounded() {
        let schema = |data_type| ArrowSchema::new(vec![Field::new("x", data_type, true)]);
        let vectors = |dimension| DataType::new_fixed_size_list(DataType::Float32, dimension, true);
        for fine in [DataType::Utf8, vectors(4 << 20), DataType::FixedSizeBinary(16 << 20)] {
            assert!(check_width(&schema(fine)).is_ok());
        }
        let nested = DataType::new_fixed_size_list(vectors(i32::MAX), i32::MAX, true);
        let wide = Field::new("inner", vectors(i32::MAX), true);
        for bad in [vectors((4 << 20) + 1), nested, DataType::Struct(vec![wide].into())] {
            let error = check_width(&schema(bad)).unwrap_err();
            assert!(matches!(&error, LakeError::UnsupportedType { column, .. } if column == "x"));
        }
    }

    #[test]
    fn both_kinds_of_blob_are_marked_alike() {
        let v2 = [(ARROW_EXT_NAME_KEY.to_owned(), BLOB_V2_EXT_NAME.to_owned())].into();
        let field = Arc::new(Field::new("b", DataType::LargeBinary, true).with_metadata(v2));
        let served = served_field(&field);
        assert!(is_blob(&served));
        assert!(!served.metadata().contains_key(ARROW_EXT_NAME_KEY));
    }
}
