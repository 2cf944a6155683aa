//! A source file, read batch by batch.

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;

use super::counter::BytesRead;
use super::file::{Batches, bad_file};
use super::format::Format;
use super::{csv, ipc, json, parquet};
use crate::error::Result;

/// A file whose contents match its name.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub path: PathBuf,
    pub format: Format,
    /// Size of the file.
    pub bytes: u64,
}

impl Source {
    /// Checks the format of the file at `path`. Errors: `BadFile`.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let format = Format::detect(path)?;
        let bytes =
            std::fs::metadata(path).map_err(|error| bad_file(path, error.to_string()))?.len();
        Ok(Self { path: path.to_owned(), format, bytes })
    }

    /// The file's columns: recorded in it, or inferred from its first rows. Errors: `BadFile`.
    pub(crate) fn schema(&self) -> Result<SchemaRef> {
        match self.format {
            Format::Parquet => parquet::schema(&self.path),
            Format::Csv { delimiter } => csv::infer_schema(&self.path, delimiter),
            Format::Json => json::infer_schema(&self.path),
            Format::ArrowFile => ipc::file_schema(&self.path),
            Format::ArrowStream => ipc::stream_schema(&self.path),
        }
    }

    /// Returns whether the types are only inferred, so that the types of another file or of the table may be used to
    /// read this one.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.format, Format::Csv { .. } | Format::Json)
    }

    /// The columns in the header of a CSV or TSV file; `None` for other formats.
    pub(crate) fn header(&self) -> Result<Option<Vec<String>>> {
        match self.format {
            Format::Csv { delimiter } => csv::header(&self.path, delimiter).map(Some),
            _ => Ok(None),
        }
    }

    /// Opens the file. Text is read as the types of `target`. `read` counts the bytes. Errors: `BadFile`, here and for
    /// each batch.
    pub(crate) fn batches(&self, target: &SchemaRef, read: &BytesRead) -> Result<Batches> {
        match self.format {
            Format::Parquet => parquet::batches(&self.path, self.bytes, read),
            Format::Csv { delimiter } => csv::batches(&self.path, delimiter, target, read),
            Format::Json => json::batches(&self.path, target, read),
            Format::ArrowFile => ipc::file_batches(&self.path, read),
            Format::ArrowStream => ipc::stream_batches(&self.path, read),
        }
    }
}
