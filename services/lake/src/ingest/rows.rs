//! The rows of one file, for commands that do not write a table.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::counter::BytesRead;
use super::file::Batches;
use super::source::Source;
use crate::error::Result;

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
    let (schema, read) = (source.schema()?, BytesRead::default());
    let batches = source.batches(&schema, &read)?;
    Ok(FileRows { schema, bytes: source.bytes, batches, read })
}

impl FileRows {
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
