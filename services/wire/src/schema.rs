//! Encodes and decodes schemas as encapsulated Arrow IPC messages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{ArrowError, Schema};
use bytes::Bytes;

/// Encodes a schema as an encapsulated IPC message: continuation marker, length, flatbuffer, padding.
pub fn schema_to_bytes(schema: &Schema) -> Result<Bytes, ArrowError> {
    let options = IpcWriteOptions::default();
    let mut dictionaries = DictionaryTracker::new(false);
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut dictionaries,
        &options,
    );
    let mut out = Vec::new();
    write_message(&mut out, encoded, &options)?;
    Ok(out.into())
}

/// Decodes the schema of an encapsulated IPC message.
///
/// # Errors
/// If the bytes are not such a message, or have types that Arrow does not know.
pub fn schema_from_bytes(bytes: &[u8]) -> Result<Schema, ArrowError> {
    catch_panic(|| try_schema_from_ipc_buffer(bytes))
}

/// Runs one of Arrow's decoders on untrusted bytes, and converts a panic to an error.
///
/// Arrow panics on messages that are valid flatbuffers but not valid Arrow data: integers of 7 bits, lists without
/// an item type, buffers beyond the end. Unwinding is safe, because the decoder changes nothing but its own data.
pub(crate) fn catch_panic<T>(
    read: impl FnOnce() -> Result<T, ArrowError>,
) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Err(ArrowError::IpcError(format!("the message is not valid Arrow data: {text}")))
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn a_schema_round_trips_with_its_metadata() {
        let field = Field::new("v", DataType::Int8, true)
            .with_metadata([("a".to_string(), "b".to_string())].into());
        let schema = Schema::new(vec![field]);
        assert_eq!(schema_from_bytes(&schema_to_bytes(&schema).unwrap()).unwrap(), schema);
        assert!(schema_from_bytes(&[1, 2, 3]).is_err());
    }
}
