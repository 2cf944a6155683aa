//! Reply: encodes rows.

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_data::ArrayData;
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use arrow_select::take::take;
use bytes::Bytes;
use wire::{ArrowBatch, BatchError, MESSAGE_BYTES_MAX};

use crate::error::{QueryError, Result};
use crate::ipc::{IpcHead, IpcWriter};

/// Maximum size in bytes of a message's fields other than the rows.
const MARGIN_BYTES: usize = 1 << 20;

/// Encodes one batch as an Arrow IPC stream. `head` must be made from its schema.
///
/// # Errors
/// [`QueryError::TooLarge`].
pub fn ipc_stream(head: &IpcHead, batch: &RecordBatch) -> Result<Bytes> {
    let mut reply = StreamReply::of(head);
    reply.append(batch)?;
    Ok(reply.finish()?.0)
}

/// Encodes batches, at least one, as an Arrow IPC stream that fits into a message.
#[derive(Default)]
pub struct StreamReply {
    writer: Option<IpcWriter>,
    rows: usize,
}

impl StreamReply {
    /// Begins a stream whose batches have the schema that `head` is made from.
    pub fn of(head: &IpcHead) -> Self {
        Self { writer: Some(head.writer()), rows: 0 }
    }

    /// Adds a batch. All batches have one schema. Unless the stream began with a head, the first batch makes it.
    ///
    /// # Errors
    /// [`QueryError::TooLarge`].
    pub fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(IpcHead::of(batch.schema_ref())?.writer()),
        };
        writer.write(batch)?;
        self.rows += batch.num_rows();
        check_size(writer.bytes())
    }

    /// Returns the number of bytes that were written.
    pub fn bytes(&self) -> usize {
        self.writer.as_ref().map_or(0, IpcWriter::bytes)
    }

    /// Ends the stream. Returns it, and the number of its rows.
    ///
    /// # Errors
    /// [`QueryError::TooLarge`].
    pub fn finish(self) -> Result<(Bytes, usize)> {
        let Some(mut writer) = self.writer else {
            return Err(QueryError::Server("an answer has no batch of rows".into()));
        };
        writer.finish();
        Ok((fits(writer.take())?, self.rows))
    }
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

/// Encodes rows without their schema. `columns` have wire types.
///
/// # Errors
/// [`QueryError::TooLarge`].
pub fn arrow_batch(rows: usize, columns: &[ArrayRef]) -> Result<ArrowBatch> {
    let columns: Vec<ArrayData> = columns.iter().map(unsliced).collect::<Result<_>>()?;
    let damaged = |error: BatchError| QueryError::Server(error.to_string());
    let batch = ArrowBatch::from_columns(rows, &columns).map_err(damaged)?;
    check_size(batch.bytes())?;
    Ok(batch)
}

/// Returns a column's data, copied if it is a slice whose data has an offset.
fn unsliced(column: &ArrayRef) -> Result<ArrayData> {
    let data = column.to_data();
    if data.offset() == 0 {
        return Ok(data);
    }
    let all = UInt32Array::from_iter_values(0..column.len() as u32);
    Ok(take(column, &all, None)?.to_data())
}

fn fits(bytes: Vec<u8>) -> Result<Bytes> {
    check_size(bytes.len())?;
    Ok(bytes.into())
}

fn check_size(bytes: usize) -> Result<()> {
    match bytes > MESSAGE_BYTES_MAX - MARGIN_BYTES {
        true => Err(QueryError::TooLarge { bytes }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Float32Array, Int32Array};

    use super::*;

    #[test]
    fn written_rows_are_read_back_and_json_has_nulls() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
        let stream = ipc_stream(&IpcHead::of(batch.schema_ref()).unwrap(), &batch).unwrap();
        assert_eq!(client::query::read_rows(&stream).unwrap(), batch);
        assert_eq!(json_lines(&batch).unwrap(), "{\"x\":1}\n{\"x\":null}\n");
        let column: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN, f32::INFINITY]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        assert_eq!(json_lines(&batch).unwrap(), "{\"x\":null}\n{\"x\":null}\n");
    }

    #[test]
    fn slices_are_sent_whole() {
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, true]));
        let sliced = RecordBatch::try_from_iter([("x", flags.slice(1, 2))]).unwrap();
        let sent = arrow_batch(2, sliced.columns()).unwrap();
        assert_eq!(sent.to_record_batch(sliced.schema_ref()).unwrap(), sliced);
    }
}
