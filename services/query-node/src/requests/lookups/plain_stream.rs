//! Checks an Arrow IPC stream of a caller before it is decoded.
//!
//! The decoder allocates as much memory for a compressed buffer as the buffer announces, and a column of a type without
//! bytes may have any number of rows. So streams with compression are refused, and the rows are counted first.

use arrow_ipc::{MessageHeader, root_as_message};

/// The bytes before a message's length (Arrow columnar format, "Encapsulated message format"). Old writers leave them
/// out.
const CONTINUATION_MARKER: [u8; 4] = [0xff; 4];

/// Returns the number of rows of a stream, including the values of its dictionaries. Refuses streams with compression.
///
/// # Errors
/// A sentence that says what is wrong with the stream.
pub fn plain_rows(mut stream: &[u8]) -> Result<u64, String> {
    let mut rows = 0_u64;
    while let Some(header) = next_header(&mut stream)? {
        let message = root_as_message(header).map_err(|error| damaged(&error.to_string()))?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => {
                message.header_as_dictionary_batch().and_then(|batch| batch.data())
            }
            _ => None,
        };
        if let Some(batch) = batch {
            if batch.compression().is_some() {
                return Err("is a compressed Arrow IPC stream; send it without compression".into());
            }
            let length = u64::try_from(batch.length()).map_err(|_| damaged("a negative length"))?;
            rows = rows.saturating_add(length);
        }
        let body =
            usize::try_from(message.bodyLength()).map_err(|_| damaged("a negative length"))?;
        stream = stream.get(body..).ok_or_else(|| damaged("it ends within a message"))?;
    }
    Ok(rows)
}

/// Takes the header of the next message from the stream; `None` at its end.
fn next_header<'a>(stream: &mut &'a [u8]) -> Result<Option<&'a [u8]>, String> {
    let mut length = match take(stream, size_of::<u32>()) {
        None if stream.is_empty() => return Ok(None),
        None => return Err(damaged("it ends within a length")),
        Some(length) => length,
    };
    if length == CONTINUATION_MARKER {
        length =
            take(stream, size_of::<u32>()).ok_or_else(|| damaged("it ends within a length"))?;
    }
    let length = length.try_into().map(u32::from_le_bytes).unwrap_or_default() as usize;
    if length == 0 {
        return Ok(None);
    }
    take(stream, length).map(Some).ok_or_else(|| damaged("it ends within a message"))
}

fn take<'a>(stream: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = stream.split_at_checked(bytes)?;
    *stream = rest;
    Some(taken)
}

fn damaged(why: &str) -> String {
    format!("is not an Arrow IPC stream: {why}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};

    use super::*;

    fn stream(compression: Option<CompressionType>) -> Vec<u8> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));
        let batch = RecordBatch::try_from_iter([("k", column)]).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer =
            StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch.slice(0, 10)).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn rows_are_counted() {
        assert_eq!(plain_rows(&stream(None)), Ok(1010));
        assert_eq!(plain_rows(&[]), Ok(0));
    }

    #[test]
    fn compressed_and_damaged_streams_are_refused() {
        for compression in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let refused = plain_rows(&stream(Some(compression))).unwrap_err();
            assert!(refused.contains("without compression"), "{refused}");
        }
        let whole = stream(None);
        for end in 1..whole.len() - 8 {
            match plain_rows(&whole[..end]) {
                // It ends between two messages.
                Ok(rows) => assert!([0, 1000, 1010].contains(&rows), "{rows}"),
                Err(refused) => assert!(refused.contains("is not an Arrow IPC stream")),
            }
        }
    }
}
