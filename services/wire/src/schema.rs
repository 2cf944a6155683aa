//! Schemas as encapsulated Arrow IPC messages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{ArrowError, Schema};
use bytes::Bytes;

/// The schema as an encapsulated IPC message: continuation, length, flatbuffer, padding.
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

/// The schema of an encapsulated IPC message.
///
/// # Errors
/// When the bytes are none, or one of types that there aren't.
pub fn schema_from_bytes(bytes: &[u8]) -> Result<Schema, ArrowError> {
    unless_it_panics(|| try_schema_from_ipc_buffer(bytes))
}

/// What Arrow makes of bytes of somebody else's. It panics on what a flatbuffer can say and Arrow doesn't know: integers
/// of 7 bits, lists without items, buffers beyond the end. It works on nothing but what it is given, so that its panic
/// leaves nothing behind, and is that message's fault.
pub(crate) fn unless_it_panics<T>(
    read: impl FnOnce() -> Result<T, ArrowError>,
) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Err(ArrowError::IpcError(format!("the message makes no sense to Arrow: {text}")))
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn schema_comes_back_with_its_metadata() {
        let field = Field::new("v", DataType::Int8, true)
            .with_metadata([("a".to_string(), "b".to_string())].into());
        let schema = Schema::new(vec![field]);
        assert_eq!(schema_from_bytes(&schema_to_bytes(&schema).unwrap()).unwrap(), schema);
        assert!(schema_from_bytes(&[1, 2, 3]).is_err());
    }
}
