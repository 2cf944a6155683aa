//! Rows out of an Arrow IPC stream, as its bytes come in.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;

use crate::schema::unless_it_panics;

/// One stream. Nothing is allocated for bytes that are announced before they are there, and rows point into those that
/// came whole.
#[derive(Debug, Default)]
pub struct RowStream {
    decoder: StreamDecoder,
    /// Nothing can be made of what follows.
    is_broken: bool,
}

impl RowStream {
    /// Takes the next bytes: the record batches that they complete.
    ///
    /// # Errors
    /// When they are no such stream; then nothing more comes of it.
    pub fn push(&mut self, bytes: Bytes) -> Result<Vec<RecordBatch>, ArrowError> {
        if self.is_broken {
            return Err(broken());
        }
        let mut bytes = Buffer::from(bytes);
        let mut batches = Vec::new();
        let read = unless_it_panics(|| {
            while let Some(batch) = self.decoder.decode(&mut bytes)? {
                batches.push(batch);
            }
            Ok(())
        });
        self.is_broken = read.is_err();
        read.map(|()| batches)
    }

    /// The schema, once it has come.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.decoder.schema()
    }

    /// Ends it: the schema.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn finish(mut self) -> Result<SchemaRef, ArrowError> {
        if self.is_broken {
            return Err(broken());
        }
        self.decoder.finish()?;
        let schema = self.decoder.schema();
        schema.ok_or_else(|| ArrowError::IpcError("the stream has no schema".into()))
    }
}

fn broken() -> ArrowError {
    ArrowError::IpcError("the stream was damaged before".into())
}
