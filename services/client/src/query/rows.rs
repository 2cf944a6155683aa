//! Decodes rows from Arrow IPC streams.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use wire::{Fault, Reason, RowStream};

/// Returns the rows of one Arrow IPC stream as one record batch.
///
/// # Errors
/// `INTERNAL` if the bytes are not such a stream.
pub fn read_rows(bytes: &Bytes) -> Result<RecordBatch, Fault> {
    let mut stream = RowStream::default();
    let mut batches = stream.push(bytes.clone()).map_err(damaged)?;
    let schema = stream.finish().map_err(damaged)?;
    match batches.len() {
        1 => Ok(batches.remove(0)),
        _ => concat_batches(&schema, &batches).map_err(damaged),
    }
}

/// Returns the schema of an Arrow IPC stream without batches.
pub(super) fn read_schema(bytes: &Bytes) -> Result<SchemaRef, Fault> {
    let mut stream = RowStream::default();
    stream.push(bytes.clone()).map_err(damaged)?;
    stream.finish().map_err(damaged)
}

pub(super) fn damaged(error: ArrowError) -> Fault {
    Fault::new(Reason::Internal, format!("the rows of the answer can't be read: {error}"))
}
