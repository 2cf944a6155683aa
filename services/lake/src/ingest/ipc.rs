//! Arrow IPC, with a footer (file) and without (stream).

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use wire::memory_of;

use super::batch_rows;
use super::counter::{BytesRead, Counter};
use super::file::{Batches, bad_file, open_file};
use crate::error::Result;

type Counted = BufReader<Counter<File>>;

pub(crate) fn file_schema(path: &Path) -> Result<SchemaRef> {
    Ok(file_reader(path, &BytesRead::default())?.schema())
}

pub(crate) fn stream_schema(path: &Path) -> Result<SchemaRef> {
    Ok(stream_reader(path, &BytesRead::default())?.schema())
}

pub(crate) fn file_batches(path: &Path, read: &BytesRead) -> Result<Batches> {
    Ok(sliced(path, file_reader(path, read)?))
}

pub(crate) fn stream_batches(path: &Path, read: &BytesRead) -> Result<Batches> {
    Ok(sliced(path, stream_reader(path, read)?))
}

fn counted(path: &Path, read: &BytesRead) -> Result<Counted> {
    Ok(BufReader::new(Counter::new(open_file(path)?, read.clone())))
}

fn file_reader(path: &Path, read: &BytesRead) -> Result<FileReader<Counted>> {
    FileReader::try_new(counted(path, read)?, None)
        .map_err(|error| bad_file(path, error.to_string()))
}

fn stream_reader(path: &Path, read: &BytesRead) -> Result<StreamReader<Counted>> {
    StreamReader::try_new(counted(path, read)?, None)
        .map_err(|error| bad_file(path, error.to_string()))
}

/// Slices the batches of a file. A writer may have put everything into one batch, which can only be read whole.
fn sliced<I>(path: &Path, reader: I) -> Batches
where
    I: Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send + 'static,
{
    let path = path.to_owned();
    let mut number = 0_u64;
    Box::new(reader.flat_map(move |batch| {
        number += 1;
        let pieces: Vec<Result<RecordBatch>> = match batch {
            Err(error) => vec![Err(bad_file(&path, format!("in batch {number}: {error}")))],
            Ok(batch) => {
                let rows = batch.num_rows();
                let step = batch_rows(memory_of(batch.columns()) as u64 / (rows as u64).max(1));
                (0..rows).step_by(step).map(|at| Ok(batch.slice(at, step.min(rows - at)))).collect()
            }
        };
        pieces
    }))
}
