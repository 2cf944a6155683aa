//! Manifests. Lance itself checks the offsets of their sections against the file's size.
//!
//! ```text
//! sections of indexes and the transaction, each a u32 length and a message
//! u32 length │ Manifest │ u64 offset of that length │ u16, u16 version │ "LANC"
//! ```

use super::message::{Field, Fields, SchemaCheck};
use super::{Checked, DELETIONS, MAGIC, VERSIONS, byte_range, u32_at, u64_at};

/// The maximum size of a manifest, in bytes. A fragment takes about 100 bytes, so this is enough for two million
/// fragments.
pub const BYTES_MAX: u64 = 256 << 20;

/// The largest number of entries: fragments, their fields, and everything else that a manifest lists. An empty entry
/// has two bytes in the file and about 250 in memory, so this is a gigabyte.
const ENTRIES_MAX: u64 = 1 << 22;

const FOOTER_LEN: usize = 16;

/// Returns the offset of the message's length, which the message follows.
pub fn metadata_start(tail: &[u8], size: u64) -> Checked<Option<u64>> {
    // Lance's first read of a manifest includes the whole footer. So a tail without one is of another read, which needs
    // no check.
    if tail.len() < FOOTER_LEN || !tail.ends_with(MAGIC) {
        return Ok(None);
    }
    let at = u64_at(tail, tail.len() - FOOTER_LEN).unwrap_or(u64::MAX);
    byte_range("its message", at, 4 + FOOTER_LEN as u64, size)?;
    Ok(Some(at))
}

/// Checks the metadata, which begins at [`metadata_start`].
pub fn check(metadata: &[u8]) -> Checked {
    let len = u32_at(metadata, 0).unwrap_or(u32::MAX);
    let room = metadata.len() - 4 - FOOTER_LEN;
    if len as usize != room {
        return Err(format!("its message says that it has {len} bytes, and has {room}"));
    }
    let (mut schema, mut entries) = (SchemaCheck::default(), 0);
    for field in Fields(&metadata[4..4 + room]) {
        entries += 1;
        match field? {
            Field::Bytes(1, field) => schema.add(field)?,
            Field::Bytes(2, fragment) => entries += Fields(fragment).count() as u64,
            Field::Bytes(18, base) => check_base(base)?,
            _ => {}
        }
        if entries > ENTRIES_MAX {
            return Err(format!("it has more than {ENTRIES_MAX} entries"));
        }
    }
    Ok(())
}

/// Checks a base path: Lance's message `BasePath`. Unless it is the root of a table, it is a folder of data files. The
/// kind of a file, and so its check, follows from its folder ([`FileKind`](super::FileKind)), so data files may not lie
/// in a folder that is named for other files.
fn check_base(base: &[u8]) -> Checked {
    let (mut is_root, mut path) = (false, &[][..]);
    for field in Fields(base) {
        match field? {
            Field::Number(3, number) => is_root = number != 0,
            Field::Bytes(4, bytes) => path = bytes,
            _ => {}
        }
    }
    let path = String::from_utf8_lossy(path);
    let folder = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if !is_root && [VERSIONS, DELETIONS].contains(&folder) {
        return Err(format!("its base path {path} has no data files, by its name"));
    }
    Ok(())
}
