//! Finds the line at which a batch failed, since Arrow's reader doesn't name it. For this the file is read a second
//! time, but only after a failure.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;
use serde_json::Value;

use super::lines::Lines;
use crate::error::{LakeError, Result};
use crate::ingest::file::bad_file;
use crate::ingest::finite::NotFinite;

/// Returns the fault for `error`, which occurred after the first `rows_before` rows. The fault names the first line
/// after these rows that, read by itself, does not fit `schema`.
pub(super) fn line_fault(
    path: &Path,
    schema: &SchemaRef,
    rows_before: u64,
    error: &ArrowError,
) -> LakeError {
    match unreadable(path, schema, rows_before) {
        Ok(Some((number, error))) => {
            let hint = "types come from the table or from the first rows";
            bad_file(path, format!("line {number}: {} ({hint})", describe(&error)))
        }
        // An object spans several lines, or the file has changed meanwhile.
        Ok(None) => bad_file(path, format!("from row {} on: {}", rows_before + 1, describe(error))),
        Err(error) => error,
    }
}

/// The fault for a number that isn't finite, in a batch after the first `rows_before` rows.
pub(super) fn number_fault(
    path: &Path,
    batch: &RecordBatch,
    rows_before: u64,
    found: NotFinite,
) -> LakeError {
    let schema = batch.schema();
    let field = schema.field(found.column);
    let row = rows_before + found.row as u64;
    let (line, value) = match row_of(path, row) {
        Ok(Some((number, row))) => (format!("line {number}"), row.get(field.name()).cloned()),
        _ => (format!("row {}", row + 1), None),
    };
    let value = match found.element {
        Some(element) => value.and_then(|vector| vector.get(element).cloned()),
        // In a list or an object, the number's position is unknown.
        None => value.filter(|value| !value.is_array() && !value.is_object()),
    };
    let value = value.map_or("a number".to_owned(), |value| value.to_string());
    let (what, data_type, mend) = match (found.element, field.data_type()) {
        (Some(element), DataType::FixedSizeList(item, _)) => (
            format!("number {} of the vector, {value},", element + 1),
            item.data_type(),
            "mend it, or write null for the whole vector",
        ),
        (_, data_type) => (value, data_type, "mend it, or write null"),
    };
    let column = field.name();
    bad_file(
        path,
        format!("{line}: column {column:?}: {what} is not finite as {data_type}; {mend}"),
    )
}

/// Returns a message for users about an error of Arrow's JSON reader. It names the column if Arrow does.
pub(super) fn describe(error: &ArrowError) -> String {
    let message = match error {
        ArrowError::JsonError(message) => message.clone(),
        other => other.to_string(),
    };
    if let Some(column) = message.strip_prefix("column '").and_then(|it| it.split('\'').next()) {
        return format!(
            "column {column:?} is not among the columns of the table or the first rows"
        );
    }
    let mut path = Vec::new();
    let mut rest = message.as_str();
    while let Some(inner) = rest.strip_prefix("whilst decoding field '") {
        let Some((field, inner)) = inner.split_once("': ") else { break };
        path.push(field);
        rest = inner;
    }
    let what = match rest.strip_prefix("failed to parse ") {
        Some(value) => format!("can't read {value}"),
        None => rest.to_owned(),
    };
    if path.is_empty() { what } else { format!("column {:?}: {what}", path.join(".")) }
}

/// Finds the first line after `rows_before` rows that can't be read.
fn unreadable(
    path: &Path,
    schema: &SchemaRef,
    rows_before: u64,
) -> Result<Option<(u64, ArrowError)>> {
    let mut decoder = ReaderBuilder::new(schema.clone())
        .with_batch_size(1)
        .with_strict_mode(true)
        .build_decoder()
        .map_err(|error| bad_file(path, error.to_string()))?;
    let mut lines = Lines::open(path)?;
    let mut rows = 0;
    while let Some((number, line)) = lines.next()? {
        if rows >= rows_before
            && let Err(error) = decode(&mut decoder, line)
        {
            return Ok(Some((number, error)));
        }
        rows += 1;
    }
    Ok(None)
}

fn decode(decoder: &mut Decoder, line: &str) -> std::result::Result<(), ArrowError> {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let read = decoder.decode(rest)?;
        rest = &rest[read..];
        decoder.flush()?;
    }
    Ok(())
}

/// Reads the object of row number `row`, counted from 0. Returns the number of its line and the object.
fn row_of(path: &Path, row: u64) -> Result<Option<(u64, Value)>> {
    let mut lines = Lines::open(path)?;
    let mut rows = 0;
    while let Some((number, line)) = lines.next()? {
        if rows == row {
            // If a number in the object is too large even for JSON's parser, null stands for the object.
            return Ok(Some((number, serde_json::from_str(line).unwrap_or_default())));
        }
        rows += 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_messages_are_converted() {
        let describe = |text: &str| describe(&ArrowError::JsonError(text.to_owned()));
        assert_eq!(
            describe("whilst decoding field 'a': failed to parse \"x\" as Int64"),
            r#"column "a": can't read "x" as Int64"#
        );
        assert_eq!(
            describe(
                "whilst decoding field 'a': whilst decoding field 'b': expected boolean got 1"
            ),
            r#"column "a.b": expected boolean got 1"#
        );
        assert_eq!(
            describe("column 'b' missing from schema"),
            r#"column "b" is not among the columns of the table or the first rows"#
        );
    }
}
