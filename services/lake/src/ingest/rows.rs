//! The rows of one file, for commands that do not write a table.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::scalar::ScalarValue;

use super::counter::BytesRead;
use super::file::{Batches, bad_file};
use super::format::Format;
use super::source::Source;
use crate::error::Result;
use crate::key::parse_key;

/// The rows of one file, batch by batch. Reading blocks.
pub struct FileRows {
    /// The file's columns: recorded in it, or inferred from its first rows.
    pub schema: SchemaRef,
    /// Size of the file.
    pub bytes: u64,
    batches: Batches,
    read: BytesRead,
}

/// Opens a file of one of the formats that [`ingest`](super::ingest) reads.
///
/// Errors: `BadFile`, here and for each batch.
pub fn read_file(path: &Path) -> Result<FileRows> {
    let source = Source::new(path)?;
    let schema = source.schema()?;
    FileRows::open(&source, schema)
}

/// Opens a file like [`read_file`]. In CSV, TSV and JSON, the column `column`, if there is one, has keys that are
/// looked up in a column of type `key`: they are read as this type, not as the one that the first rows suggest. Dates,
/// timestamps, decimals and binary are written as in a look-up of single keys.
///
/// Errors: `BadFile`, here and for each batch.
pub fn read_keys(path: &Path, column: &str, key: &DataType) -> Result<FileRows> {
    let source = Source::new(path)?;
    let inferred = source.schema()?;
    let Some((at, field)) = inferred.column_with_name(column).filter(|_| source.is_text()) else {
        return FileRows::open(&source, inferred);
    };
    let (read_as, is_parsed) = type_of_keys(source.format, field.data_type(), key);
    let typed = |data_type: &DataType| {
        let mut fields = inferred.fields().to_vec();
        fields[at] = Arc::new(Field::new(column, data_type.clone(), true));
        Arc::new(Schema::new(fields))
    };
    let mut rows = FileRows::open(&source, typed(&read_as))?;
    if is_parsed {
        let (path, schema, key) = (path.to_owned(), typed(key), key.clone());
        rows.schema = Arc::clone(&schema);
        let mut before = 0;
        rows.batches = Box::new(rows.batches.map(move |batch| {
            let batch = batch?;
            let mut columns = batch.columns().to_vec();
            let bad = |why: String| bad_file(&path, why);
            columns[at] = parsed(&columns[at], &key, before).map_err(|(row, why)| {
                bad(format!("row {row}: column {:?}: {why}", schema.field(at).name()))
            })?;
            before += batch.num_rows();
            RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|it| bad(it.to_string()))
        }));
    }
    Ok(rows)
}

/// Returns the type as which a column of keys of type `key` is read, and whether each value is then parsed.
fn type_of_keys(format: Format, inferred: &DataType, key: &DataType) -> (DataType, bool) {
    use DataType::{
        Binary, Date32, Date64, Decimal128, Decimal256, FixedSizeBinary, Int64, LargeBinary,
        LargeUtf8, Timestamp, UInt64, Utf8,
    };
    let is_json = format == Format::Json;
    match key {
        // JSON marks text, so a number is not a key of text.
        Utf8 | LargeUtf8 if !is_json => (Utf8, false),
        // A value beyond the range of a smaller type is the key of no row; it does not end the command.
        UInt64 => (UInt64, false),
        it if it.is_integer() => (Int64, false),
        Decimal128(..) | Decimal256(..) if is_json && inferred.is_numeric() => (key.clone(), false),
        Date32 | Date64 | Timestamp(..) | Decimal128(..) | Decimal256(..) | Binary
        | LargeBinary | FixedSizeBinary(_)
            if !is_json || *inferred == Utf8 =>
        {
            (Utf8, true)
        }
        _ => (inferred.clone(), false),
    }
}

/// Parses text as values of type `key`. Errors: the number of the row and a sentence. `before` is the number of earlier
/// rows.
fn parsed(
    texts: &ArrayRef,
    key: &DataType,
    before: usize,
) -> std::result::Result<ArrayRef, (usize, String)> {
    let null = ScalarValue::try_from(key).map_err(|error| (before + 1, error.to_string()))?;
    let values = texts.as_string::<i32>().iter().enumerate().map(|(at, text)| match text {
        Some(text) => parse_key(text, key).map_err(|why| (before + at + 1, why)),
        None => Ok(null.clone()),
    });
    let values = values.collect::<std::result::Result<Vec<_>, _>>()?;
    ScalarValue::iter_to_array(values).map_err(|error| (before + 1, error.to_string()))
}

impl FileRows {
    fn open(source: &Source, schema: SchemaRef) -> Result<Self> {
        let read = BytesRead::default();
        let batches = source.batches(&schema, &read)?;
        Ok(Self { schema, bytes: source.bytes, batches, read })
    }

    /// Returns how much of the file has been read, in bytes.
    pub fn bytes_read(&self) -> u64 {
        self.read.get()
    }
}

impl Iterator for FileRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use arrow::datatypes::TimeUnit;
    use arrow::util::display::{ArrayFormatter, FormatOptions};

    use super::*;

    fn keys(name: &str, lines: &str, key: &DataType) -> Result<(DataType, Vec<String>)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, lines).unwrap();
        let mut values = Vec::new();
        let mut data_type = DataType::Null;
        for batch in read_keys(&path, "k", key)? {
            let batch = batch?;
            data_type = batch["k"].data_type().clone();
            let options = FormatOptions::new().with_null("-");
            let shown = ArrayFormatter::try_new(&batch["k"], &options).unwrap();
            values.extend((0..batch["k"].len()).map(|row| shown.value(row).to_string()));
        }
        Ok((data_type, values))
    }

    #[test]
    fn keys_of_text_files_have_the_type_of_the_key_column() {
        let zoned = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
        let decimal = DataType::Decimal128(9, 2);
        for (name, lines, key, expected) in [
            ("a.csv", "n,k\n1,00123\n2,\n", DataType::Utf8, &["00123", "-"][..]),
            (
                "a.tsv",
                "k\tn\n18446744073709551615\t1\n",
                DataType::UInt64,
                &["18446744073709551615"],
            ),
            ("a.csv", "n,k\n1,1.50\n2,\n3,7\n", decimal.clone(), &["1.50", "-", "7.00"]),
            ("a.csv", "n,k\n1,0aff\n2,\n", DataType::Binary, &["0aff", "-"]),
            ("a.csv", "n,k\n1,2026-11-25T08:30:00Z\n", zoned, &["2026-11-25T08:30:00Z"]),
            ("a.csv", "n,k\n1,2026-11-25\n", DataType::Date32, &["2026-11-25"]),
            (
                "a.jsonl",
                "{\"k\":\"0aff\"}\n{\"k\":null}\n",
                DataType::FixedSizeBinary(2),
                &["0aff", "-"],
            ),
            ("a.jsonl", "{\"k\":1.5}\n", decimal, &["1.50"]),
        ] {
            let (data_type, values) = keys(name, lines, &key).unwrap();
            assert_eq!(
                (data_type, values.as_slice()),
                (key, expected.iter().map(|&it| it.to_owned()).collect::<Vec<_>>().as_slice())
            );
        }
    }

    #[test]
    fn a_value_that_is_no_key_is_named_with_its_row() {
        for (lines, key, says) in [
            (
                "k,n\nab,1\nxy,2\n",
                DataType::Binary,
                "row 2: column \"k\": binary keys are written in pairs",
            ),
            (
                "k,n\n1.234,1\n",
                DataType::Decimal128(9, 2),
                "row 1: column \"k\": the column holds numbers",
            ),
            ("k,n\nx,1\n", DataType::Int64, "line 2"),
        ] {
            let error = keys("a.csv", lines, &key).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // JSON marks text: the node says that integers are not the keys of a column of text.
        assert_eq!(keys("a.jsonl", "{\"k\":5}\n", &DataType::Utf8).unwrap().0, DataType::Int64);
    }
}
