//! JSON lines: one object a line.
//!
//! Types are inferred from the first [`ROWS_SAMPLED`] rows. Keys that a row leaves out are nulls;
//! keys that no sampled row has are an error, so that nothing is lost in silence. JSON doesn't
//! know fixed-size lists: lists of numbers with decimals that have the same length of at least
//! [`VECTOR_DIMENSION_MIN`] in all sampled rows become vectors (`float32`).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema_from_iterator;
use serde_json::Value;

use super::batch_rows;
use super::counter::{BytesRead, Counter};
use super::source::{Batches, bad_file, open_file};
use crate::error::Result;

/// Rows that the types are inferred from, as long as they have at most [`BYTES_SAMPLED`].
const ROWS_SAMPLED: usize = 1_000;

/// Bytes that the types are inferred from.
const BYTES_SAMPLED: u64 = 64 << 20;

/// Shortest list of floats that is taken for a vector.
const VECTOR_DIMENSION_MIN: usize = 8;

pub(crate) fn infer_schema(path: &Path) -> Result<SchemaRef> {
    let rows = sample(path)?;
    let inferred =
        infer_json_schema_from_iterator(rows.iter().map(|row| Ok::<_, ArrowError>(&row.value)));
    let inferred = inferred.map_err(|error| bad_file(path, error.to_string()))?;
    let lengths = list_lengths(&rows);
    let fields = inferred.fields().iter().map(|field| {
        let data_type = match (field.data_type(), lengths.get(field.name())) {
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

/// Read with the types of `target`.
pub(crate) fn batches(path: &Path, target: &SchemaRef, read: &BytesRead) -> Result<Batches> {
    let rows = sample(path)?;
    let row_bytes = rows.iter().map(|row| row.bytes).sum::<u64>() / (rows.len() as u64).max(1);
    let nullable = target.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
    let mut reader = BufReader::new(Counter::new(open_file(path)?, read.clone()));
    skip_mark(&mut reader, path)?;
    let reader = ReaderBuilder::new(schema)
        .with_batch_size(batch_rows(row_bytes))
        .with_strict_mode(true)
        .build(reader)
        .map_err(|error| bad_file(path, error.to_string()))?;
    let path = path.to_owned();
    let mut rows_read = 0;
    Ok(Box::new(reader.map(move |batch| match batch {
        Ok(batch) => {
            rows_read += batch.num_rows();
            Ok(batch)
        }
        Err(error) => {
            let hint = "types come from the table or from the first rows";
            Err(bad_file(&path, format!("after row {rows_read}: {error} ({hint})")))
        }
    })))
}

struct Row {
    value: Value,
    bytes: u64,
}

fn sample(path: &Path) -> Result<Vec<Row>> {
    let mut reader = BufReader::new(open_file(path)?.take(BYTES_SAMPLED));
    skip_mark(&mut reader, path)?;
    let mut rows = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let bytes = reader
            .read_line(&mut line)
            .map_err(|error| bad_file(path, format!("line {number}: {error}")))?;
        let cut_off = reader.get_ref().limit() == 0 && !line.ends_with('\n') && !rows.is_empty();
        if bytes == 0 || cut_off || rows.len() == ROWS_SAMPLED {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(&line).map_err(|error| {
            bad_file(path, format!("line {number} isn't a JSON object: {error}"))
        })?;
        rows.push(Row { value, bytes: bytes as u64 });
    }
    if rows.is_empty() {
        return Err(bad_file(path, "no rows"));
    }
    Ok(rows)
}

fn skip_mark(reader: &mut impl BufRead, path: &Path) -> Result<()> {
    let head = reader.fill_buf().map_err(|error| bad_file(path, error.to_string()))?;
    if head.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    Ok(())
}

/// For each key with lists: their length, `None` if it isn't the same in all rows.
fn list_lengths(rows: &[Row]) -> HashMap<String, Option<usize>> {
    let mut lengths: HashMap<String, Option<usize>> = HashMap::new();
    for (key, value) in rows.iter().filter_map(|row| row.value.as_object()).flatten() {
        if let Some(list) = value.as_array() {
            let same = lengths.entry(key.clone()).or_insert(Some(list.len()));
            *same = same.filter(|length| *length == list.len());
        }
    }
    lengths
}

/// What was null in all sampled rows is taken for text.
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
