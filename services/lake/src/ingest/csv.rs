//! CSV and TSV with a header line. Lists, and so vectors, are possible in the other formats only.
//!
//! Types are inferred from the first [`ROWS_SAMPLED`] rows, unless the rows are added to a table that exists: whole
//! numbers, floats, booleans, dates, timestamps, and text for everything else. Empty fields are nulls. A later value
//! that doesn't fit the column's type is an error that names the line.

mod fault;
mod overflow;

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format as CsvFormat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use self::fault::csv_fault;
use self::overflow::Overflow;
use super::batch_rows;
use super::counter::{BytesRead, Counter};
use super::file::{Batches, bad_file, open_file};
use crate::error::Result;

/// The maximum number of rows from which types are inferred. It is large, because a value of another type in a later
/// row fails the command. The rows are not kept in memory.
const ROWS_SAMPLED: usize = 10_000;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(crate) fn infer_schema(path: &Path, delimiter: u8) -> Result<SchemaRef> {
    let names = header(path, delimiter)?;
    let format = CsvFormat::default().with_header(true).with_delimiter(delimiter);
    let (schema, _) = format
        .infer_schema(text(path)?, Some(ROWS_SAMPLED))
        .map_err(|error| csv_fault(path, &names, &error))?;
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Null => Field::new(field.name(), DataType::Utf8, true),
        other => Field::new(field.name(), other.clone(), true),
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Reads the names in the first line. Errors: `BadFile` if one is empty or a duplicate.
pub(crate) fn header(path: &Path, delimiter: u8) -> Result<Vec<String>> {
    let format = CsvFormat::default().with_header(true).with_delimiter(delimiter);
    let (schema, _) =
        format.infer_schema(text(path)?, Some(0)).map_err(|error| csv_fault(path, &[], &error))?;
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
    for (at, name) in names.iter().enumerate() {
        if name.trim().is_empty() {
            return Err(bad_file(path, format!("line 1: column {} has no name", at + 1)));
        }
        if names[..at].contains(name) {
            return Err(bad_file(path, format!("line 1: column {name:?} occurs twice")));
        }
    }
    Ok(names)
}

/// Reads batches. Their columns have the types of `target` and the order of the file's header.
pub(crate) fn batches(
    path: &Path,
    delimiter: u8,
    target: &SchemaRef,
    read: &BytesRead,
) -> Result<Batches> {
    let names = header(path, delimiter)?;
    let mut fields = Vec::with_capacity(names.len());
    for name in &names {
        let data_type =
            target.field_with_name(name).map_or(DataType::Utf8, |field| field.data_type().clone());
        if data_type.is_nested() {
            return Err(bad_file(
                path,
                format!(
                    "column {name:?} is {data_type}, which CSV can't hold; use Parquet, JSON lines \
                     or Arrow IPC"
                ),
            ));
        }
        fields.push(Field::new(name, data_type, true));
    }
    let mut file = open_file(path)?;
    let rows = batch_rows(mean_line_bytes(path)?);
    skip_mark(&mut file, path)?;
    let reader = ReaderBuilder::new(Arc::new(Schema::new(fields)))
        .with_header(true)
        .with_delimiter(delimiter)
        .with_batch_size(rows)
        .build(Counter::new(file, read.clone()))
        .map_err(|error| csv_fault(path, &names, &error))?;
    let path = path.to_owned();
    let mut overflow = Overflow::new(&path, delimiter, &names, rows);
    Ok(Box::new(reader.map(move |batch| {
        let batch = batch.map_err(|error| csv_fault(&path, &names, &error))?;
        overflow.check(&batch)?;
        Ok(batch)
    })))
}

fn text(path: &Path) -> Result<File> {
    let mut file = open_file(path)?;
    skip_mark(&mut file, path)?;
    Ok(file)
}

fn skip_mark(file: &mut File, path: &Path) -> Result<()> {
    let mut skip = || -> std::io::Result<()> {
        let marked = BufReader::new(&mut *file).fill_buf()?.starts_with(BYTE_ORDER_MARK);
        let start = if marked { BYTE_ORDER_MARK.len() as u64 } else { 0 };
        file.seek(SeekFrom::Start(start)).map(drop)
    };
    skip().map_err(|error| bad_file(path, error.to_string()))
}

/// Returns the mean length of the first lines, in bytes.
fn mean_line_bytes(path: &Path) -> Result<u64> {
    const LINES: usize = 100;
    let mut reader = BufReader::new(text(path)?);
    let (mut lines, mut bytes) = (0, 0);
    let mut line = Vec::new();
    while lines < LINES {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(error) => return Err(bad_file(path, error.to_string())),
        }
        lines += 1;
    }
    Ok((bytes / lines.max(1)) as u64)
}
