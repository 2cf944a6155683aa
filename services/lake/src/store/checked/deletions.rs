//! Deletion files: offsets of rows in an Arrow IPC file, or a Roaring bitmap.

use arrow::ipc::{CompressionType, MessageHeader, root_as_footer, root_as_message};
use object_store::path::Path;

use super::{Checked, byte_range, u32_at};

/// The maximum size of a file, in bytes. Lance writes up to 5,000 offsets as an array, and more as a bitmap, which has
/// at most 8 KiB for each 65,536 rows.
pub const BYTES_MAX: u64 = 64 << 20;

/// The largest number of containers in a bitmap. Each has 65,536 rows, so this is a fragment of 536 million rows. Six
/// bytes of the file can make a container, which takes up to 8 KiB in memory.
const CONTAINERS_MAX: u32 = 8192;

/// The largest uncompressed size of an array, which has 4 bytes per row.
const ARRAY_BYTES_MAX: u64 = BYTES_MAX;

/// The first and last bytes of an Arrow IPC file.
const ARROW: &[u8] = b"ARROW1";

/// Checks a whole file.
pub fn check(location: &Path, bytes: &[u8]) -> Checked {
    match location.extension() {
        Some("arrow") => arrow(bytes),
        _ => bitmap(bytes),
    }
}

fn bitmap(bytes: &[u8]) -> Checked {
    // A bitmap without run containers begins with this cookie and the number of containers. In a bitmap with run
    // containers, the upper half of the cookie is the number of containers minus one.
    const NO_RUNS: u32 = 12_346;
    let cookie = u32_at(bytes, 0).ok_or("it is shorter than a bitmap")?;
    let containers = match cookie == NO_RUNS {
        true => u32_at(bytes, 4).ok_or("it is shorter than a bitmap")?,
        false => (cookie >> 16) + 1,
    };
    match containers <= CONTAINERS_MAX {
        true => Ok(()),
        false => Err(format!(
            "its bitmap has {containers} containers, and at most {CONTAINERS_MAX} are read"
        )),
    }
}

/// Checks the lengths that Arrow's reader allocates: those of blocks, and the uncompressed lengths with which
/// compressed buffers begin.
fn arrow(bytes: &[u8]) -> Checked {
    let end = bytes.len() as u64;
    let tail =
        bytes.len().checked_sub(ARROW.len() + 4).ok_or("it is shorter than an Arrow file")?;
    if !bytes.ends_with(ARROW) {
        return Err("it is no Arrow file".into());
    }
    let footer_len = u64::from(u32_at(bytes, tail).unwrap_or(u32::MAX));
    let footer_at = (tail as u64).checked_sub(footer_len).ok_or("its footer is longer than it")?;
    let footer = root_as_footer(&bytes[footer_at as usize..tail])
        .map_err(|error| format!("its footer can't be read: {error}"))?;
    let no_blocks = footer.dictionaries().is_some_and(|it| !it.is_empty());
    if no_blocks {
        return Err("it has dictionaries".into());
    }
    let blocks = footer.recordBatches().ok_or("it has no rows")?;
    let mut total = 0;
    for block in blocks {
        let number = |number: i64| u64::try_from(number).map_err(|_| "a length in it is negative");
        let metadata_len = number(block.metaDataLength().into())?;
        let message = byte_range("a block", number(block.offset())?, metadata_len, end)?;
        let body = byte_range("a block", message.end, number(block.bodyLength())?, end)?;
        let metadata = &bytes[message.start as usize..message.end as usize];
        // A marker of four bytes 0xff, which old writers omit, and the message's length precede the message.
        let begin = if metadata.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message = root_as_message(metadata.get(begin..).unwrap_or_default())
            .map_err(|error| format!("a block in it can't be read: {error}"))?;
        if message.header_type() != MessageHeader::RecordBatch {
            return Err("a block in it has no rows".into());
        }
        let batch = message.header_as_record_batch().ok_or("a block in it has no rows")?;
        let is_compressed = match batch.compression().map(|it| it.codec()) {
            None => false,
            // Lance writes ZSTD. For LZ4, Arrow's reader accepts any uncompressed length (arrow-rs#10959).
            Some(CompressionType::ZSTD) => true,
            Some(other) => return Err(format!("it is compressed with {other:?}, not with ZSTD")),
        };
        for buffer in batch.buffers().into_iter().flatten() {
            let (offset, len) = (number(buffer.offset())?, number(buffer.length())?);
            let buffer = byte_range("a buffer", body.start.saturating_add(offset), len, body.end)?;
            let bytes = &bytes[buffer.start as usize..buffer.end as usize];
            let inflated = bytes.first_chunk::<8>().map(|len| i64::from_le_bytes(*len));
            total += match inflated.filter(|_| is_compressed) {
                // The buffer is not compressed after all.
                None | Some(-1) => len,
                Some(inflated) => number(inflated)?,
            };
            if total > ARRAY_BYTES_MAX {
                return Err(format!("its rows take more than {ARRAY_BYTES_MAX} bytes"));
            }
        }
    }
    Ok(())
}
