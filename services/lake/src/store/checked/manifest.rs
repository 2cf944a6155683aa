//! Manifests. Where their sections are Lance bounds by the file's size.
//!
//! ```text
//! sections of indexes and the transaction, each a u32 length and a message
//! u32 length │ Manifest │ u64 where that length is │ u16, u16 version │ "LANC"
//! ```

use super::message::{Field, Fields, Schema};
use super::{Checked, MAGIC, place, u32_at, u64_at};

/// The largest manifest. A fragment takes about 100 bytes of it: enough for two million.
pub const BYTES_MAX: u64 = 256 << 20;

/// Fragments, fields of fragments and whatever else it lists, at most. An empty entry of two bytes becomes some 250 in
/// memory: these a gigabyte.
const ENTRIES_MAX: u64 = 1 << 22;

const FOOTER_LEN: usize = 16;

/// Where its message begins.
pub fn wanted(tail: &[u8], size: u64) -> Checked<Option<u64>> {
    // A read that brings no whole footer is not what Lance begins with.
    if tail.len() < FOOTER_LEN || !tail.ends_with(MAGIC) {
        return Ok(None);
    }
    let at = u64_at(tail, tail.len() - FOOTER_LEN).unwrap_or(u64::MAX);
    place("its message", at, 4 + FOOTER_LEN as u64, size)?;
    Ok(Some(at))
}

/// Checks what begins where [`wanted`] says.
pub fn check(metadata: &[u8]) -> Checked {
    let len = u32_at(metadata, 0).unwrap_or(u32::MAX);
    let room = metadata.len() - 4 - FOOTER_LEN;
    if len as usize != room {
        return Err(format!("its message says that it has {len} bytes, and has {room}"));
    }
    let (mut schema, mut entries) = (Schema::default(), 0);
    for field in Fields(&metadata[4..4 + room]) {
        entries += 1;
        match field? {
            Field::Bytes(1, field) => schema.add(field)?,
            Field::Bytes(2, fragment) => entries += Fields(fragment).count() as u64,
            _ => {}
        }
        if entries > ENTRIES_MAX {
            return Err(format!("it has more than {ENTRIES_MAX} entries"));
        }
    }
    Ok(())
}
