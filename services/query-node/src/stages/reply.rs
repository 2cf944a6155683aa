//! Reply: encodes rows.

use arrow_array::RecordBatch;
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use bytes::Bytes;
use wire::MESSAGE_BYTES_MAX;

use crate::error::{QueryError, Result};
use crate::ipc::IpcHead;

/// Maximum size in bytes of a message's fields other than the rows.
const MARGIN_BYTES: usize = 1 << 20;

/// Encodes one batch as an Arrow IPC stream. `head` must be made from its schema.
///
/// # Errors
/// [`QueryError::TooLarge`].
pub fn ipc_stream(head: &IpcHead, batch: &RecordBatch) -> Result<Bytes> {
    let mut writer = head.writer();
    writer.write(batch)?;
    writer.finish();
    fits(writer.take())
}

/// Encodes rows as JSON, one line per row. Nulls are written.
///
/// # Errors
/// [`QueryError::TooLarge`]; [`QueryError::Json`] for types that have no JSON form.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array};

    use super::*;

    #[test]
    fn written_rows_are_read_back_and_json_has_nulls() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
        let stream = ipc_stream(&IpcHead::of(batch.schema_ref()).unwrap(), &batch).unwrap();
        assert_eq!(client::query::read_rows(&stream).unwrap(), batch);
        assert_eq!(json_lines(&batch).unwrap(), "{\"x\":1}\n{\"x\":null}\n");
    }
}
