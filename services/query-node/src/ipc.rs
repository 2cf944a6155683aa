//! Encodes rows as Arrow IPC streams. The part that depends only on the schema is encoded once.

use arrow_array::RecordBatch;
use arrow_ipc::writer::{
    CompressionContext, DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message,
};
use arrow_schema::Schema;

use crate::error::Result;

/// End of a stream: a continuation marker and a message of 0 bytes (Arrow columnar format, "IPC streaming format").
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The bytes with which streams of one schema begin.
#[derive(Debug)]
pub struct IpcHead {
    bytes: Vec<u8>,
    /// The number of dictionaries of columns and nested fields.
    dictionaries: usize,
}

impl IpcHead {
    /// Encodes the head for `schema`.
    pub fn of(schema: &Schema) -> Result<Self> {
        let (mut tracker, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
        let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut tracker,
            &options,
        );
        let mut bytes = Vec::new();
        write_message(&mut bytes, message, &options)?;
        Ok(Self { bytes, dictionaries: tracker.dict_id().len() })
    }

    /// Returns a complete stream without rows.
    pub fn empty(&self) -> Vec<u8> {
        let mut writer = self.writer();
        writer.finish();
        writer.take()
    }

    /// Begins a stream.
    pub fn writer(&self) -> IpcWriter {
        let mut tracker = DictionaryTracker::new(false);
        // Number the dictionaries as the schema's encoding did: batches refer to them in that order.
        for _ in 0..self.dictionaries {
            tracker.next_dict_id();
        }
        let context = CompressionContext::default();
        IpcWriter { out: self.bytes.clone(), tracker, options: IpcWriteOptions::default(), context }
    }
}

/// Encodes an Arrow IPC stream piece by piece.
pub struct IpcWriter {
    out: Vec<u8>,
    tracker: DictionaryTracker,
    options: IpcWriteOptions,
    context: CompressionContext,
}

impl IpcWriter {
    /// Adds a batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let Self { out, tracker, options, context } = self;
        let (dictionaries, rows) =
            IpcDataGenerator::default().encode(batch, tracker, options, context)?;
        for message in dictionaries.into_iter().chain([rows]) {
            // 64 bytes for the message's marker, its length, and padding.
            out.reserve(message.ipc_message.len() + message.arrow_data.len() + 64);
            write_message(&mut *out, message, options)?;
        }
        Ok(())
    }

    /// Returns the number of bytes that were written and have not been taken yet.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Ends the stream.
    pub fn finish(&mut self) {
        self.out.extend(END);
    }

    /// Takes the bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int32Array};
    use arrow_ipc::writer::StreamWriter;

    use super::*;

    #[test]
    fn a_stream_equals_what_arrows_writer_makes() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let words = |words: [&'static str; 3]| -> ArrayRef {
            Arc::new(words.into_iter().collect::<DictionaryArray<Int8Type>>())
        };
        let batch = |first, second| {
            let columns = [("a", first), ("x", Arc::clone(&numbers)), ("b", second)];
            RecordBatch::try_from_iter_with_nullable(
                columns.map(|(name, column)| (name, column, true)),
            )
            .unwrap()
        };
        let same = words(["u", "v", "u"]);
        let batches =
            [batch(Arc::clone(&same), words(["p", "p", "q"])), batch(same, words(["q", "r", "r"]))];
        let mut arrows = StreamWriter::try_new(Vec::new(), batches[0].schema_ref()).unwrap();
        let head = IpcHead::of(batches[0].schema_ref()).unwrap();
        let (mut ours, mut pieces) = (head.writer(), Vec::new());
        for batch in &batches {
            arrows.write(batch).unwrap();
            ours.write(batch).unwrap();
            pieces.extend(ours.take());
        }
        ours.finish();
        pieces.extend(ours.take());
        assert_eq!(pieces, arrows.into_inner().unwrap());
    }
}
