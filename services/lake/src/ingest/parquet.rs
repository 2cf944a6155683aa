//! Parquet files.

use std::path::Path;

use arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::batch_rows;
use super::counter::BytesRead;
use super::file::{Batches, bad_file, open_file};
use crate::error::Result;

/// Reads the schema. If the writer embedded an Arrow schema, its types are used, so that fixed-size lists, time zones
/// and dictionaries are restored.
pub(crate) fn schema(path: &Path) -> Result<SchemaRef> {
    Ok(builder(path)?.schema().clone())
}

/// Reads batches page by page; a row group is never in memory as a whole.
pub(crate) fn batches(path: &Path, file_bytes: u64, read: &BytesRead) -> Result<Batches> {
    let builder = builder(path)?;
    let groups = builder.metadata().row_groups();
    let rows: u64 = groups.iter().map(|group| group.num_rows().max(0) as u64).sum();
    let bytes: u64 = groups.iter().map(|group| group.total_byte_size().max(0) as u64).sum();
    let reader = builder.with_batch_size(batch_rows(bytes / rows.max(1))).build();
    let reader = reader.map_err(|error| bad_file(path, error.to_string()))?;
    let (path, read) = (path.to_owned(), read.clone());
    let mut rows_read = 0;
    Ok(Box::new(reader.map(move |batch| {
        let batch = batch
            .map_err(|error| bad_file(&path, format!("from row {} on: {error}", rows_read + 1)))?;
        rows_read += batch.num_rows() as u64;
        let part = u128::from(file_bytes) * u128::from(rows_read) / u128::from(rows.max(1));
        read.set(part as u64);
        Ok(batch)
    })))
}

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<std::fs::File>> {
    ParquetRecordBatchReaderBuilder::try_new(open_file(path)?)
        .map_err(|error| bad_file(path, error.to_string()))
}
