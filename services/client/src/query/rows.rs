//! Rows out of Arrow IPC streams.

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use wire::{Fault, Reason};

/// The rows of one Arrow IPC stream, as one record batch.
///
/// # Errors
/// `INTERNAL` when the bytes are no such stream.
pub fn read_rows(bytes: &[u8]) -> Result<RecordBatch, Fault> {
    let reader = StreamReader::try_new(bytes, None).map_err(damaged)?;
    let schema = reader.schema();
    let mut batches = reader.collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    match batches.len() {
        1 => Ok(batches.remove(0)),
        _ => concat_batches(&schema, &batches).map_err(damaged),
    }
}

/// The schema of an Arrow IPC stream without batches.
pub(super) fn read_schema(bytes: &[u8]) -> Result<SchemaRef, Fault> {
    Ok(StreamReader::try_new(bytes, None).map_err(damaged)?.schema())
}

pub(super) fn damaged(error: ArrowError) -> Fault {
    Fault::new(Reason::Internal, format!("the rows of the answer can't be read: {error}"))
}
