//! Manifests. Lance itself checks the offsets of their sections against the file's size.
//!
//! ```text
//! sections of indexes and the transaction, each a u32 length and a message
//! u32 length │ Manifest │ u64 offset of that length │ u16, u16 version │ "LANC"
//! ```

use super::message::{Field, Fields, SchemaCheck};
use super::row_ids::{self, ROWS_MAX};
use super::{Checked, DELETIONS, MAGIC, VERSIONS, byte_range, u32_at, u64_at};

/// The maximum size of a manifest, in bytes. A fragment takes about 100 bytes, so this is enough for two million
/// fragments.
pub const BYTES_MAX: u64 = 256 << 20;

/// The largest number of entries: fragments and segments of indexes, their fields, and everything else that a manifest
/// lists. An empty entry has two bytes in the file and about 250 in memory, so this is a gigabyte.
const ENTRIES_MAX: u64 = 1 << 22;

const FOOTER_LEN: usize = 16;

/// The field of a manifest with the offset of the section of indexes.
const INDEXES: u32 = 6;

/// Returns the offset at which the metadata begins, as far as the tail shows: that of the message's length, or that of
/// the indexes' section if it is before the tail.
pub fn metadata_start(tail: &[u8], size: u64) -> Checked<Option<u64>> {
    // Lance's first read of a manifest includes the whole footer. So a tail without one is of another read, which needs
    // no check.
    if tail.len() < FOOTER_LEN || !tail.ends_with(MAGIC) {
        return Ok(None);
    }
    let (at, have) = (message_at(tail, size)?, size - tail.len() as u64);
    if at < have {
        // The sections are before the message, so one read brings all.
        return Ok(Some(0));
    }
    let mut start = at;
    for field in Fields(message(&tail[(at - have) as usize..])?) {
        if let Field::Number(INDEXES, section) = field? {
            start = start.min(section);
        }
    }
    Ok(Some(start))
}

/// Returns the offset of the message's length.
fn message_at(tail: &[u8], size: u64) -> Checked<u64> {
    let at = u64_at(tail, tail.len() - FOOTER_LEN).unwrap_or(u64::MAX);
    byte_range("its message", at, 4 + FOOTER_LEN as u64, size).map(|range| range.start)
}

/// Returns the message of a manifest, of which `bytes` are those from the message's length to the end.
fn message(bytes: &[u8]) -> Checked<&[u8]> {
    let len = u32_at(bytes, 0).unwrap_or(u32::MAX);
    let room = bytes.len() - 4 - FOOTER_LEN;
    match len as usize == room {
        true => Ok(&bytes[4..4 + room]),
        false => Err(format!("its message says that it has {len} bytes, and has {room}")),
    }
}

/// Checks the metadata, which begins at [`metadata_start`], of a manifest of `size` bytes.
pub fn check(metadata: &[u8], size: u64) -> Checked {
    let from = size - metadata.len() as u64;
    let at = message_at(metadata, size)?;
    let (mut schema, mut counts) = (SchemaCheck::default(), Counts::default());
    for field in Fields(message(&metadata[(at - from) as usize..])?) {
        counts.add_entry()?;
        match field? {
            Field::Bytes(1, field) => schema.add(field)?,
            Field::Bytes(2, fragment) => check_fragment(fragment, &mut counts)?,
            Field::Number(INDEXES, at) => {
                let section = byte_range("its section of indexes", at, 4, size)?;
                check_indexes(&metadata[(section.start - from) as usize..], &mut counts)?;
            }
            Field::Bytes(18, base) => check_base(base)?,
            _ => {}
        }
    }
    Ok(())
}

/// The numbers of entries and rows so far.
#[derive(Default)]
struct Counts {
    entries: u64,
    rows: u64,
}

impl Counts {
    fn add_entry(&mut self) -> Checked {
        self.entries += 1;
        match self.entries <= ENTRIES_MAX {
            true => Ok(()),
            false => Err(format!("it has more than {ENTRIES_MAX} entries")),
        }
    }

    fn add_rows(&mut self, rows: u64) -> Checked {
        self.rows = self.rows.saturating_add(rows);
        match self.rows <= ROWS_MAX {
            true => Ok(()),
            false => Err(format!("its fragments have more than {ROWS_MAX} rows")),
        }
    }
}

/// Checks a fragment: Lance's message `DataFragment`.
fn check_fragment(fragment: &[u8], counts: &mut Counts) -> Checked {
    let (mut rows, mut row_ids) = (0, &[][..]);
    for field in Fields(fragment) {
        counts.add_entry()?;
        match field? {
            Field::Number(4, number) => rows = number,
            Field::Bytes(5, sequence) => row_ids = sequence,
            _ => {}
        }
    }
    counts.add_rows(rows)?;
    row_ids::check(row_ids, rows)
}

/// Checks the section of indexes: the length of Lance's message `IndexSection`, the message, and whatever is behind it.
fn check_indexes(section: &[u8], counts: &mut Counts) -> Checked {
    let len = u32_at(section, 0).unwrap_or(u32::MAX) as usize;
    let message = section.get(4..).and_then(|it| it.get(..len));
    let message = message.ok_or_else(|| format!("its section of indexes has no {len} bytes"))?;
    for field in Fields(message) {
        counts.add_entry()?;
        if let Field::Bytes(1, index) = field? {
            for field in Fields(index) {
                field?;
                counts.add_entry()?;
            }
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
