//! Keys that are UUIDs. Arrow stores them as 16 bytes (its extension type `arrow.uuid`); a key column of text has their
//! text, as Python's `str` writes it.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use crate::rows::Rows;

/// The key of a field's metadata that names its extension type.
const EXTENSION: &str = "ARROW:extension:name";

/// The length of a UUID's text.
const TEXT_BYTES: usize = 36;

/// Returns whether a column has UUIDs.
pub fn is_uuid(field: &Field) -> bool {
    field.metadata().get(EXTENSION).is_some_and(|name| name == "arrow.uuid")
}

/// Returns UUIDs in the form that a key column of type `column` has: as text if it is of text, else as bytes.
pub fn uuid_keys(uuids: &ArrayRef, column: Option<&DataType>) -> ArrayRef {
    let is_text = matches!(column, Some(DataType::Utf8 | DataType::LargeUtf8));
    let Some(bytes) = uuids.as_fixed_size_binary_opt().filter(|_| is_text) else {
        return Arc::clone(uuids);
    };
    let mut texts = StringBuilder::with_capacity(bytes.len(), bytes.len() * TEXT_BYTES);
    for uuid in bytes {
        if let Some(uuid) = uuid {
            for (at, byte) in uuid.iter().enumerate() {
                let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                // Writing to the builder's buffer can't fail.
                let _ = write!(texts, "{hyphen}{byte:02x}");
            }
            texts.append_value("");
        } else {
            texts.append_null();
        }
    }
    Arc::new(texts.finish())
}

/// Returns `rows` with a first column `name`: the UUIDs of the column at `at`, as [`uuid_keys`] returns them.
pub fn with_uuid_keys(
    rows: Rows,
    at: usize,
    name: &str,
    column: Option<&DataType>,
) -> Result<Rows, ArrowError> {
    let of_none = uuid_keys(&new_empty_array(rows.schema.field(at).data_type()), column);
    let first = Arc::new(Field::new(name, of_none.data_type().clone(), true));
    let fields: Vec<_> =
        std::iter::once(first).chain(rows.schema.fields().iter().cloned()).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, rows.schema.metadata().clone()));
    let batch = |batch: RecordBatch| {
        let first = uuid_keys(batch.column(at), column);
        let columns = std::iter::once(first).chain(batch.columns().iter().cloned()).collect();
        RecordBatch::try_new(Arc::clone(&schema), columns)
    };
    let batches = rows.batches.into_iter().map(batch).collect::<Result<_, _>>()?;
    Ok(Rows { schema, batches })
}
