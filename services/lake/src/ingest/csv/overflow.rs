//! Finds numbers that are too large for their column: Arrow reads them as infinities. Infinities that the file spells
//! out are accepted.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::csv::{Reader, ReaderBuilder};
use arrow::datatypes::{DataType, Field, Schema};

use super::fault::csv_fault;
use super::text;
use crate::error::{LakeError, Result};
use crate::ingest::file::bad_file;
use crate::ingest::finite::infinite_rows;

/// Checks the batches of one file in order.
pub(super) struct Overflow {
    path: PathBuf,
    delimiter: u8,
    names: Vec<String>,
    batch_rows: usize,
    /// Batches checked so far.
    batches: usize,
    rows: usize,
    /// A second reader of the file, which reads all columns as text, and the number of batches that it has read. It is
    /// opened when the first infinity is found, and kept, so that a file with many infinities is read twice in all, not
    /// once more for each infinity.
    written: Option<(Reader<File>, usize)>,
}

impl Overflow {
    pub(super) fn new(path: &Path, delimiter: u8, names: &[String], batch_rows: usize) -> Self {
        Self {
            path: path.to_owned(),
            delimiter,
            names: names.to_vec(),
            batch_rows,
            batches: 0,
            rows: 0,
            written: None,
        }
    }

    /// Checks the next batch. Errors: `BadFile`.
    pub(super) fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter().enumerate();
        let infinite: Vec<_> = columns
            .flat_map(|(column, values)| {
                infinite_rows(values).into_iter().map(move |it| (column, it))
            })
            .collect();
        if !infinite.is_empty() {
            let written = self.written()?;
            let text = |(column, row)| written.column(column).as_string::<i32>().value(row);
            if let Some(&at) = infinite.iter().find(|at| !is_infinity(text(**at))) {
                let data_type = batch.column(at.0).data_type();
                return Err(self.too_large(at, text(at), data_type));
            }
        }
        self.batches += 1;
        self.rows += batch.num_rows();
        Ok(())
    }

    fn too_large(&self, (column, row): (usize, usize), text: &str, wanted: &DataType) -> LakeError {
        let (line, name) = (self.rows + row + 2, &self.names[column]);
        let mend = "mend it, or write inf if it is meant to be infinite";
        let why = format!("line {line}: column {name:?}: {text} is too large for {wanted}; {mend}");
        bad_file(&self.path, why)
    }

    /// Reads, as text, the batch that is being checked.
    fn written(&mut self) -> Result<RecordBatch> {
        let (mut reader, read) = match self.written.take() {
            Some(opened) => opened,
            None => (self.open()?, 0),
        };
        let batch = reader.nth(self.batches - read);
        let batch = batch.ok_or_else(|| bad_file(&self.path, "it changed while it was read"))?;
        self.written = Some((reader, self.batches + 1));
        batch.map_err(|error| csv_fault(&self.path, &self.names, &error))
    }

    fn open(&self) -> Result<Reader<File>> {
        let fields = self.names.iter().map(|name| Field::new(name, DataType::Utf8, true));
        ReaderBuilder::new(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
            .with_header(true)
            .with_delimiter(self.delimiter)
            .with_batch_size(self.batch_rows)
            .build(text(&self.path)?)
            .map_err(|error| csv_fault(&self.path, &self.names, &error))
    }
}

fn is_infinity(text: &str) -> bool {
    let unsigned = text.trim().trim_start_matches(['+', '-']).to_ascii_lowercase();
    matches!(unsigned.as_str(), "inf" | "infinity")
}
