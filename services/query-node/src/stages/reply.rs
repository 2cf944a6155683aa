//! Reply: rows as bytes.

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use arrow_schema::Schema;
use bytes::Bytes;
use wire::MESSAGE_BYTES_MAX;

use crate::error::{QueryError, Result};

/// What a message holds beside its rows, at most.
const MARGIN_BYTES: usize = 1 << 20;

/// An Arrow IPC stream of one batch.
///
/// # Errors
/// [`QueryError::TooLarge`].
pub fn ipc_stream(batch: &RecordBatch) -> Result<Bytes> {
    let mut writer = IpcWriter::new(batch.schema_ref())?;
    writer.write(batch)?;
    fits(writer.finish()?)
}

/// JSON, a line a row; nulls are written.
///
/// # Errors
/// [`QueryError::TooLarge`], [`QueryError::Json`] for types that have no JSON.
pub fn json_lines(batch: &RecordBatch) -> Result<Bytes> {
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, LineDelimited>(Vec::new());
    writer.write(batch).map_err(QueryError::Json)?;
    writer.finish().map_err(QueryError::Json)?;
    fits(writer.into_inner())
}

fn fits(bytes: Vec<u8>) -> Result<Bytes> {
    match bytes.len() {
        len if len > MESSAGE_BYTES_MAX - MARGIN_BYTES => Err(QueryError::TooLarge { bytes: len }),
        _ => Ok(bytes.into()),
    }
}

/// An Arrow IPC stream, piece by piece.
pub struct IpcWriter {
    writer: StreamWriter<Vec<u8>>,
}

impl IpcWriter {
    /// Begins with the schema.
    pub fn new(schema: &Schema) -> Result<Self> {
        Ok(Self { writer: StreamWriter::try_new(Vec::new(), schema)? })
    }

    /// Adds a batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    /// What was written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.get_mut())
    }

    /// Ends the stream; what was written since the last time.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.writer.finish()?;
        Ok(self.take())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array};

    use super::*;

    #[test]
    fn pieces_make_one_stream_and_nulls_are_written() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
        let mut writer = IpcWriter::new(batch.schema_ref()).unwrap();
        let mut bytes = writer.take();
        writer.write(&batch).unwrap();
        bytes.extend(writer.take());
        bytes.extend(writer.finish().unwrap());
        assert_eq!(client::query::read_rows(&bytes.clone().into()).unwrap(), batch);
        assert_eq!(bytes, ipc_stream(&batch).unwrap());
        assert_eq!(json_lines(&batch).unwrap(), "{\"x\":1}\n{\"x\":null}\n");
    }
}
