//! The columns of the table to write, and the conversion of batches to them.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use lance_core::datatypes::{Field as LanceField, LANCE_UNENFORCED_PRIMARY_KEY};
use lance_core::is_system_column;

use super::file::bad_file;
use super::finite::find_in_vectors;
use super::options::IngestOptions;
use super::source::Source;
use crate::error::{LakeError, Result};
use crate::key::{can_be_key, check_key_type};
use crate::schema::conform_array;
use crate::table::Table;

/// The schema to which all batches are converted before they are written.
pub(crate) struct Target {
    schema: SchemaRef,
    key: Option<String>,
    /// Whether files may omit nullable columns. They may if rows are added to an existing table.
    may_lack: bool,
}

impl Target {
    /// The target for a new table, or for new contents of a table: the columns of the first file. `key` is the key
    /// column of the old contents. It stays the key column if the options name none, and the file has a column of that
    /// name whose type is allowed for keys.
    ///
    /// Errors: `BadFile`, `ColumnNotFound` (key, vectors), `ReservedColumn`, `UnsupportedType`.
    pub(crate) fn of_file(
        first: &Source,
        options: &IngestOptions,
        key: Option<&str>,
    ) -> Result<Self> {
        let native = first.schema()?;
        let again = |key: &&str| {
            native.field_with_name(key).is_ok_and(|field| can_be_key(field.data_type()))
        };
        let key = options.key.clone().or_else(|| key.filter(again).map(str::to_owned));
        let named = options.vectors.iter().map(|(column, _)| column).chain(&options.key);
        if let Some(column) =
            named.into_iter().find(|column| native.field_with_name(column).is_err())
        {
            let available = native.fields().iter().map(|field| field.name().clone()).collect();
            return Err(LakeError::ColumnNotFound { column: column.clone(), available });
        }
        let mut fields = Vec::with_capacity(native.fields().len());
        for field in native.fields() {
            if is_system_column(field.name()) {
                return Err(LakeError::ReservedColumn { column: field.name().clone() });
            }
            let mut new = plain_field(field).as_ref().clone();
            let data_type = vector_type(&new, options)?;
            new = new.with_data_type(data_type);
            if key.as_ref() == Some(field.name()) {
                check_key_type(new.name(), new.data_type())?;
                let mut metadata = new.metadata().clone();
                metadata.insert(LANCE_UNENFORCED_PRIMARY_KEY.to_owned(), "true".to_owned());
                new = new.with_nullable(false).with_metadata(metadata);
            }
            LanceField::try_from(&new).map_err(|_| LakeError::UnsupportedType {
                column: new.name().clone(),
                data_type: new.data_type().to_string(),
                why: "Lance has no such type; convert the column first".to_owned(),
            })?;
            fields.push(new);
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, native.metadata().clone()));
        Ok(Self { schema, key, may_lack: false })
    }

    /// The target for rows that are added to `table`: its columns. Errors: `ColumnNotFound` (key), `CompositeKey`,
    /// `AnotherKey`.
    pub(crate) fn of_table(table: &Table, options: &IngestOptions) -> Result<Self> {
        let schema = Arc::new(Schema::from(table.dataset().schema()));
        let key = options.key.clone().or_else(|| table.key_column().map(str::to_owned));
        if let Some(key) = &key {
            table.check_key(key, false)?;
        }
        Ok(Self { schema, key, may_lack: true })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Checks that `source` has the target's columns, before anything is written. The columns of JSON lines are checked
    /// only when their rows are read. Errors: `BadFile`, `SchemaMismatch`.
    pub(crate) fn check(&self, source: &Source) -> Result<()> {
        let mismatch = |column: &str, why: String| LakeError::SchemaMismatch {
            path: source.path.clone(),
            column: column.to_owned(),
            why,
        };
        let fields: Vec<(String, Option<DataType>)> = match (source.is_text(), source.header()?) {
            // JSON lines: each row names its own keys. Unknown keys are reported when the rows are read.
            (true, None) => return Ok(()),
            (true, Some(names)) => names.into_iter().map(|name| (name, None)).collect(),
            (false, _) => {
                let native = source.schema()?;
                native
                    .fields()
                    .iter()
                    .map(|it| (it.name().clone(), Some(plain_type(it.data_type()))))
                    .collect()
            }
        };
        for (name, data_type) in &fields {
            let Ok(wanted) = self.schema.field_with_name(name) else {
                return Err(mismatch(
                    name,
                    "is not among the columns of the table or the first file".to_owned(),
                ));
            };
            if let Some(has) = data_type.as_ref().filter(|has| !becomes(has, wanted.data_type())) {
                let wanted = wanted.data_type();
                return Err(mismatch(
                    name,
                    format!("is {has}, but {wanted} in the table or the first file"),
                ));
            }
        }
        for field in self.schema.fields() {
            let there = fields.iter().any(|(name, _)| name == field.name());
            if !(there || self.may_lack && field.is_nullable()) {
                return Err(mismatch(
                    field.name(),
                    "is missing, but the table or the first file has it".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Converts a batch to exactly the target's columns. `row` is the number of rows before the batch in the file, for
    /// messages. Errors: `BadFile`.
    pub(crate) fn conform(
        &self,
        batch: &RecordBatch,
        path: &Path,
        row: u64,
    ) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let place = |column: &str| format!("{}: column {column:?}", row_numbers(row, rows as u64));
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let name = field.name();
            let column = match batch.column_by_name(name) {
                Some(column) => conform_array(column, field)
                    .map_err(|error| bad_file(path, format!("{}: {error}", place(name))))?,
                None => new_null_array(field.data_type(), rows),
            };
            if self.key.as_ref() == Some(name) && column.null_count() > 0 {
                let at = (0..rows).find(|at| column.is_null(*at)).unwrap_or_default() as u64;
                return Err(bad_file(
                    path,
                    format!("row {}: the key column {name:?} is null", row + at + 1),
                ));
            }
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(bad_file(
                    path,
                    format!("{} has nulls, which the table forbids", place(name)),
                ));
            }
            if let Some((at, element)) = find_in_vectors(&column) {
                let (row, number) = (row + at as u64 + 1, element + 1);
                return Err(bad_file(
                    path,
                    format!(
                        "row {row}: column {name:?}: number {number} of the vector is not finite, so the vector has no \
                         distance to others; mend it, or write null for the whole vector"
                    ),
                ));
            }
            columns.push(column);
        }
        RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| bad_file(path, error.to_string()))
    }
}

/// Formats the numbers of the `rows` rows that follow the first `before` rows: `row 1` or `rows 1 to 7`.
fn row_numbers(before: u64, rows: u64) -> String {
    match rows {
        1 => format!("row {}", before + 1),
        _ => format!("rows {} to {}", before + 1, before + rows),
    }
}

/// The column's type, or a vector type if the options say that it has vectors.
fn vector_type(field: &Field, options: &IngestOptions) -> Result<DataType> {
    let Some((column, dimension)) =
        options.vectors.iter().find(|(column, _)| column == field.name())
    else {
        return Ok(field.data_type().clone());
    };
    let wrong = |why: &str| LakeError::UnsupportedType {
        column: column.clone(),
        data_type: field.data_type().to_string(),
        why: why.to_owned(),
    };
    let item = match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => item,
        _ => return Err(wrong("it can't become vectors; they are made of lists of floats")),
    };
    if !item.data_type().is_numeric() {
        return Err(wrong("it can't become vectors; they are made of lists of floats"));
    }
    match i32::try_from(*dimension) {
        Ok(dimension) if dimension > 0 => {
            Ok(DataType::new_fixed_size_list(DataType::Float32, dimension, true))
        }
        _ => Err(wrong("the dimension must be at least 1")),
    }
}

/// Returns the type that Lance stores in place of `data_type`: plain strings, binaries and lists instead of views, and
/// the type of the values instead of runs. Other types stay.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) | DataType::ListView(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(plain_field(item))
        }
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(plain_field(item), *size),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(plain_field).collect::<Fields>())
        }
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        other => other.clone(),
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| !key.starts_with("PARQUET:"));
    Arc::new(
        field
            .as_ref()
            .clone()
            .with_data_type(plain_type(field.data_type()))
            .with_metadata(metadata),
    )
}

/// Returns whether values of type `has` can be written as `wanted`. They can if both are the same type, or if lists of
/// numbers become vectors. Nullability, the names of list items and map entries, and the order of a struct's fields do
/// not matter.
fn becomes(has: &DataType, wanted: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    match (has, wanted) {
        (List(a), List(b)) | (LargeList(a), LargeList(b)) => becomes(a.data_type(), b.data_type()),
        (FixedSizeList(a, m), FixedSizeList(b, n)) => {
            m == n && becomes(a.data_type(), b.data_type())
        }
        (List(a) | LargeList(a), FixedSizeList(b, _)) => {
            a.data_type().is_numeric() && b.data_type().is_floating()
        }
        (Map(a, _), Map(b, _)) => becomes(a.data_type(), b.data_type()),
        (Struct(a), Struct(b)) => {
            a.len() == b.len()
                && b.iter().all(|want| {
                    a.iter().any(|it| {
                        it.name() == want.name() && becomes(it.data_type(), want.data_type())
                    })
                })
        }
        _ => has == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_and_runs_become_plain() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true)));
        assert_eq!(plain_type(&list), DataType::new_list(DataType::Utf8, true));
        let runs = DataType::RunEndEncoded(
            Arc::new(Field::new("run_ends", DataType::Int32, false)),
            Arc::new(Field::new("values", DataType::BinaryView, true)),
        );
        assert_eq!(plain_type(&runs), DataType::Binary);
    }

    #[test]
    fn types_agree_regardless_of_nested_names() {
        let a = DataType::List(Arc::new(Field::new("element", DataType::Float32, false)));
        assert!(becomes(&a, &DataType::new_list(DataType::Float32, true)));
        assert!(becomes(&a, &DataType::new_fixed_size_list(DataType::Float32, 4, true)));
        assert!(!becomes(&a, &DataType::new_list(DataType::Float64, true)));
        assert!(!becomes(&DataType::Int64, &DataType::Int32));
    }
}
