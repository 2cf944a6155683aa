//! CSV and TSV with a header line.
//!
//! Types are inferred from the first [`ROWS_SAMPLED`] rows: whole numbers, decimals, booleans,
//! dates, timestamps, and text for everything else. Empty fields are nulls. A later value that
//! doesn't fit the inferred type is an error that names the line.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format as CsvFormat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use super::batch_rows;
use super::counter::{BytesRead, Counter};
use super::source::{Batches, bad_file, open_file};
use crate::error::{LakeError, Result};

/// Rows that the types are inferred from.
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

/// The names in the first line. Errors: `BadFile` if one is empty or there twice.
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
            return Err(bad_file(path, format!("line 1: column {name:?} is there twice")));
        }
    }
    Ok(names)
}

/// Read with the types of `target`, in the order of the file's own header.
pub(crate) fn batches(
    path: &Path,
    delimiter: u8,
    target: &SchemaRef,
    read: &BytesRead,
) -> Result<Batches> {
    let names = header(path, delimiter)?;
    let fields = names.iter().map(|name| {
        let data_type =
            target.field_with_name(name).map_or(DataType::Utf8, |field| field.data_type().clone());
        Field::new(name, data_type, true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut file = open_file(path)?;
    let row_bytes = mean_line_bytes(path)?;
    skip_mark(&mut file, path)?;
    let reader = ReaderBuilder::new(schema)
        .with_header(true)
        .with_delimiter(delimiter)
        .with_batch_size(batch_rows(row_bytes))
        .build(Counter::new(file, read.clone()))
        .map_err(|error| csv_fault(path, &names, &error))?;
    let path = path.to_owned();
    Ok(Box::new(reader.map(move |batch| batch.map_err(|error| csv_fault(&path, &names, &error)))))
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

/// Of the first lines.
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

/// Arrow's CSV errors, in words for a user.
fn csv_fault(path: &Path, names: &[String], error: &ArrowError) -> LakeError {
    let said = match error {
        ArrowError::CsvError(said) | ArrowError::ParseError(said) => said.clone(),
        other => other.to_string(),
    };
    // "incorrect number of fields for line 3, expected 2 got 1", or, while inferring,
    // "Encountered unequal lengths between records on CSV file. Expected 2 records, found 1
    // records at line 3"
    if let Some(rest) = said.split("incorrect number of fields for line ").nth(1) {
        let (line, rest) = rest.split_once(", expected ").unwrap_or((rest, ""));
        let (expected, got) = rest.split_once(" got ").unwrap_or((rest, "other"));
        return bad_file(path, ragged(line, expected, got));
    }
    if let Some(rest) = said.split("Expected ").nth(1).filter(|_| said.contains("unequal lengths"))
    {
        let numbers: Vec<_> =
            rest.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
        if let [expected, got, line] = numbers[..] {
            return bad_file(path, ragged(line, expected, got));
        }
    }
    // "Error while parsing value 'x' as type 'Int64' for column 0 at line 7. Row data: '[...]'"
    if let Some(rest) = said.strip_prefix("Error while parsing value ") {
        let rest = rest.split(". Row data").next().unwrap_or(rest);
        let (what, line) = rest.rsplit_once(" at line ").unwrap_or((rest, "?"));
        // Here Arrow counts without the header.
        let line =
            line.parse::<u64>().map_or_else(|_| line.to_owned(), |line| (line + 1).to_string());
        let (value, column) = what.rsplit_once(" for column ").unwrap_or((what, "?"));
        let name = column
            .parse::<usize>()
            .ok()
            .and_then(|at| names.get(at))
            .map_or(column, String::as_str);
        let hint = "the column's type comes from the table or from the first rows";
        return bad_file(
            path,
            format!("line {line}: column {name:?}: can't read {value} ({hint})"),
        );
    }
    bad_file(path, said)
}

fn ragged(line: &str, expected: &str, got: &str) -> String {
    format!("line {line} has {got} fields, the header has {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_words_become_ours() {
        let path = Path::new("a.csv");
        let names = ["id".to_owned(), "n".to_owned()];
        let said = |error| csv_fault(path, &names, &error).to_string();
        let error =
            ArrowError::CsvError("incorrect number of fields for line 3, expected 2 got 1".into());
        assert_eq!(said(error), "a.csv: line 3 has 1 fields, the header has 2");
        let error = ArrowError::ParseError(
            "Error while parsing value 'x' as type 'Int64' for column 1 at line 7. Row data: '[a,x]'".into(),
        );
        assert!(
            said(error)
                .starts_with(r#"a.csv: line 8: column "n": can't read 'x' as type 'Int64' ("#)
        );
    }
}
