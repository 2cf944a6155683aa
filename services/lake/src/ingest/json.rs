//! JSON lines: one object per line.
//!
//! Types are inferred from the first rows ([`Sample`]), unless the rows are added to a table that exists. Columns have
//! the order in which the file first names them. Keys that a row omits are nulls; keys that are not among the columns
//! of the table or of the sampled rows are an error, so that no data is lost silently. Whole numbers are `int64`, or
//! `uint64` if a sampled number exceeds `int64`; a number below 0 in the same column is then an error. Numbers beyond
//! both types are floats, as with other readers of JSON. JSON has no fixed-size lists, so lists of floats that have the
//! same length, at least [`VECTOR_DIMENSION_MIN`], in all sampled rows become vectors (`float32`).

mod fault;
mod key_order;
mod lines;
mod sample;

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema_from_iterator;

use self::lines::skip_mark;
use self::sample::Sample;
use super::counter::{BytesRead, Counter};
use super::file::{Batches, bad_file, open_file};
use super::{batch_rows, finite};
use crate::error::Result;

/// The shortest list of floats that is read as a vector.
const VECTOR_DIMENSION_MIN: usize = 8;

pub(crate) fn infer_schema(path: &Path) -> Result<SchemaRef> {
    let sample = Sample::read(path)?;
    let values = sample.rows.iter().map(Ok::<_, ArrowError>);
    let inferred = infer_json_schema_from_iterator(values)
        .map_err(|error| bad_file(path, fault::describe(&error)))?;
    let lengths = sample.list_lengths();
    let whole = sample.whole_numbers().map_err(|why| bad_file(path, why))?;
    let in_order = sample.order.sorted(inferred.fields());
    let fields = in_order.iter().map(|field| {
        let data_type = match (field.data_type(), lengths.get(field.name().as_str())) {
            (DataType::Float64, _) if whole.contains(field.name().as_str()) => DataType::UInt64,
            (DataType::List(item), Some(Some(length)))
                if item.data_type().is_floating() && *length >= VECTOR_DIMENSION_MIN =>
            {
                DataType::new_fixed_size_list(DataType::Float32, *length as i32, true)
            }
            (other, _) => typed(other),
        };
        Field::new(field.name(), data_type, true)
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Reads batches with the types of `target`.
pub(crate) fn batches(path: &Path, target: &SchemaRef, read: &BytesRead) -> Result<Batches> {
    let row_bytes = Sample::read(path)?.row_bytes();
    let nullable = target.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
    let mut reader = BufReader::new(Counter::new(open_file(path)?, read.clone()));
    skip_mark(&mut reader, path)?;
    let reader = ReaderBuilder::new(schema.clone())
        .with_batch_size(batch_rows(row_bytes))
        .with_strict_mode(true)
        .build(reader)
        .map_err(|error| bad_file(path, error.to_string()))?;
    let path = path.to_owned();
    let mut rows_before = 0;
    Ok(Box::new(reader.map(move |batch| {
        let batch =
            batch.map_err(|error| fault::line_fault(&path, &schema, rows_before, &error))?;
        check_finite(&path, &batch, rows_before)?;
        rows_before += batch.num_rows() as u64;
        Ok(batch)
    })))
}

fn check_finite(path: &Path, batch: &RecordBatch, rows_before: u64) -> Result<()> {
    match finite::find(batch) {
        None => Ok(()),
        Some(found) => Err(fault::number_fault(path, batch, rows_before, found)),
    }
}

/// Returns `inferred`, but with text as the type of each column, field and list item that was null in all sampled rows.
fn typed(inferred: &DataType) -> DataType {
    match inferred {
        DataType::Null => DataType::Utf8,
        DataType::List(item) => {
            let data_type = typed(item.data_type());
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(data_type)))
        }
        DataType::Struct(fields) => {
            let typed_field = |field: &Arc<Field>| {
                field.as_ref().clone().with_data_type(typed(field.data_type()))
            };
            DataType::Struct(fields.iter().map(typed_field).collect())
        }
        other => other.clone(),
    }
}
