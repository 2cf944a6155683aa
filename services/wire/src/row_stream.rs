//! Decodes an Arrow IPC stream incrementally.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;

use crate::schema::catch_panic;

/// A decoder of one stream. For uncompressed buffers, it allocates no memory for an announced length before the bytes
/// have arrived. Compressed buffers get the memory that they announce, so a node refuses compressed streams of callers
/// before it decodes them. Rows point into the received bytes if these contain a whole message.
#[derive(Debug, Default)]
pub struct RowStream {
    decoder: StreamDecoder,
    /// Set after an error: the rest of the stream can't be decoded.
    is_broken: bool,
}

impl RowStream {
    /// Decodes the next bytes. Returns the record batches that they complete.
    ///
    /// # Errors
    /// If the bytes are not a valid stream. All later calls fail too.
    pub fn push(&mut self, bytes: Bytes) -> Result<Vec<RecordBatch>, ArrowError> {
        if self.is_broken {
            return Err(broken());
        }
        let mut bytes = Buffer::from(bytes);
        let mut batches = Vec::new();
        let read = catch_panic(|| {
            while let Some(batch) = self.decoder.decode(&mut bytes)? {
                batches.push(batch);
            }
            Ok(())
        });
        self.is_broken = read.is_err();
        read.map(|()| batches)
    }

    /// Returns the schema once it has arrived.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.decoder.schema()
    }

    /// Ends the stream and returns its schema.
    ///
    /// # Errors
    /// If the stream is incomplete or was invalid.
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
    ArrowError::IpcError("the stream failed to decode before".into())
}
