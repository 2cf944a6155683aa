//! Data and index files, from version 2 on.
//!
//! ```text
//! pages, buffers of columns, global buffers (the first has the schema)
//! ColumnMetadata …                     from `columns`
//! (u64 offset, u64 length) of each     from `offsets`
//! (u64 offset, u64 length) of each global buffer, from `globals`
//! u64 columns │ u64 offsets │ u64 globals │ u32 global buffers │ u32 columns │ u16, u16 version │ "LANC"
//! ```
//!
//! A file of version 1 has a footer of 16 bytes, which points to a message that Lance bounds by the file's size.

use std::ops::Range;

use super::message::{Field, Fields, SchemaCheck, packed};
use super::{Checked, byte_range, u32_at, u64_at};

/// The maximum size of the metadata, in bytes: the schema, the metadata of the columns, and the tables of columns and
/// of global buffers. Lance reads all of it to open a file. A page takes about 50 bytes of it and holds some megabytes,
/// so this is enough for five million pages.
const METADATA_BYTES_MAX: u64 = 256 << 20;

/// The number of page buffers that a byte of a file may be in, on average. Lance writes each byte once; a file in which
/// many pages share the same bytes takes many times its size in memory.
const OVERLAP_MAX: u64 = 4;

/// The largest number of rows in a page: no fragment has more.
const PAGE_ROWS_MAX: u64 = 1 << 32;

const FOOTER_LEN: usize = 40;

/// The size of an entry in the tables of columns and of global buffers: an offset and a length.
const ENTRY_LEN: u64 = 16;

struct Footer {
    columns: u64,
    offsets: u64,
    globals: u64,
    globals_len: u32,
    columns_len: u32,
}

impl Footer {
    /// Reads the footer. Returns `None` for a file of version 1.
    fn of(tail: &[u8], size: u64) -> Checked<Option<Self>> {
        let version_at = tail.len().checked_sub(8).ok_or("it is shorter than a footer")?;
        let version = u32_at(tail, version_at).unwrap_or_default();
        let (major, minor) = (version as u16, (version >> 16) as u16);
        if major == 0 && minor < 3 {
            return Ok(None);
        }
        let at = tail.len().checked_sub(FOOTER_LEN).ok_or("it is shorter than a footer")?;
        let offset = |number: usize| u64_at(tail, at + 8 * number).unwrap_or(u64::MAX);
        let count = |number: usize| u32_at(tail, at + 24 + 4 * number).unwrap_or(u32::MAX);
        let footer = Self {
            columns: offset(0),
            offsets: offset(1),
            globals: offset(2),
            globals_len: count(0),
            columns_len: count(1),
        };
        footer.check(size - FOOTER_LEN as u64).map(|()| Some(footer))
    }

    /// Checks that all sections are in order and before `end`.
    fn check(&self, end: u64) -> Checked {
        let Self { columns, offsets, globals, globals_len, columns_len } = *self;
        if columns > offsets || offsets > globals || globals > end {
            return Err(format!(
                "its footer has columns at {columns}, their table at {offsets} and that of global buffers at \
                 {globals}, but the file ends at {end}"
            ));
        }
        if u64::from(columns_len) * ENTRY_LEN != globals - offsets {
            return Err(format!(
                "its footer has {columns_len} columns, and {} bytes for their table",
                globals - offsets
            ));
        }
        if u64::from(globals_len) * ENTRY_LEN > end - globals {
            return Err(format!(
                "its footer has {globals_len} global buffers, and {} bytes for their table",
                end - globals
            ));
        }
        match end - columns <= METADATA_BYTES_MAX {
            true => Ok(()),
            false => Err(format!("its metadata has more than {METADATA_BYTES_MAX} bytes")),
        }
    }
}

/// The offset at which the metadata begins, as far as the tail shows: that of the columns, or that of the schema once
/// the tail includes the table of global buffers.
pub fn metadata_start(tail: &[u8], size: u64) -> Checked<Option<u64>> {
    let Some(footer) = Footer::of(tail, size)? else { return Ok(None) };
    let mut from = footer.columns;
    if let Some(at) = footer.globals.checked_sub(size - tail.len() as u64)
        && footer.globals_len > 0
        && let Some(schema) = u64_at(tail, at as usize)
    {
        from = from.min(schema);
    }
    match size - from <= METADATA_BYTES_MAX + FOOTER_LEN as u64 {
        true => Ok(Some(from)),
        false => Err(format!("its metadata has more than {METADATA_BYTES_MAX} bytes")),
    }
}

/// Checks the metadata, which begins at [`metadata_start`].
pub fn check(metadata: &[u8], size: u64) -> Checked {
    let Some(footer) = Footer::of(metadata, size)? else { return Ok(()) };
    let from = size - metadata.len() as u64;
    let slice = |range: Range<u64>| -> &[u8] {
        let at = |offset: u64| usize::try_from(offset.saturating_sub(from)).unwrap_or(usize::MAX);
        metadata.get(at(range.start)..at(range.end)).unwrap_or_default()
    };
    let entry = |table: u64, number: u32| {
        let bytes = slice(table + u64::from(number) * ENTRY_LEN..size);
        (u64_at(bytes, 0).unwrap_or(u64::MAX), u64_at(bytes, 8).unwrap_or(u64::MAX))
    };
    for number in 0..footer.globals_len {
        let (offset, len) = entry(footer.globals, number);
        let buffer = byte_range("a global buffer", offset, len, size)?;
        if number == 0 {
            if size - buffer.start > METADATA_BYTES_MAX + FOOTER_LEN as u64 {
                return Err(format!("its metadata has more than {METADATA_BYTES_MAX} bytes"));
            }
            if buffer.start > footer.columns {
                return Err("its schema is behind its columns".into());
            }
            schema(slice(buffer))?;
        }
    }
    let mut paged = 0;
    for number in 0..footer.columns_len {
        let (offset, len) = entry(footer.offsets, number);
        let range = byte_range("a column's metadata", offset, len, footer.offsets)?;
        if range.start < footer.columns {
            return Err("a column's metadata is before that of all columns".into());
        }
        column(slice(range), size, &mut paged)?;
    }
    Ok(())
}

/// Checks a `FileDescriptor`.
fn schema(descriptor: &[u8]) -> Checked {
    let mut seen = SchemaCheck::default();
    for field in Fields(descriptor) {
        let Field::Bytes(1, schema) = field? else { continue };
        for field in Fields(schema) {
            if let Field::Bytes(1, field) = field? {
                seen.add(field)?;
            }
        }
    }
    Ok(())
}

/// Checks a `ColumnMetadata` of a file of `size` bytes. `paged` is the number of bytes in all buffers so far.
fn column(metadata: &[u8], size: u64, paged: &mut u64) -> Checked {
    let mut buffers = Buffers::default();
    for field in Fields(metadata) {
        match field? {
            Field::Bytes(2, page) => self::page(page, size, paged)?,
            field => buffers.add(&field, 3)?,
        }
    }
    buffers.check(size, paged)
}

fn page(page: &[u8], size: u64, paged: &mut u64) -> Checked {
    let mut buffers = Buffers::default();
    for field in Fields(page) {
        match field? {
            Field::Number(3, rows) if rows > PAGE_ROWS_MAX => {
                return Err(format!(
                    "a page has {rows} rows, and at most {PAGE_ROWS_MAX} are read"
                ));
            }
            field => buffers.add(&field, 1)?,
        }
    }
    buffers.check(size, paged)
}

/// The offsets of buffers, and their lengths.
#[derive(Default)]
struct Buffers {
    offsets: Vec<u64>,
    sizes: Vec<u64>,
}

impl Buffers {
    /// Adds a field if it has offsets (field `number`) or sizes (the field after it), packed or one by one.
    fn add(&mut self, field: &Field<'_>, number: u32) -> Checked {
        match field {
            Field::Bytes(it, bytes) if *it == number => self.offsets.extend(packed(bytes)?),
            Field::Bytes(it, bytes) if *it == number + 1 => self.sizes.extend(packed(bytes)?),
            Field::Number(it, offset) if *it == number => self.offsets.push(*offset),
            Field::Number(it, size) if *it == number + 1 => self.sizes.push(*size),
            _ => {}
        }
        Ok(())
    }

    fn check(&self, size: u64, paged: &mut u64) -> Checked {
        if self.offsets.len() != self.sizes.len() {
            let (offsets, sizes) = (self.offsets.len(), self.sizes.len());
            return Err(format!("a page has {offsets} buffers with {sizes} sizes"));
        }
        for (&offset, &len) in self.offsets.iter().zip(&self.sizes) {
            byte_range("a buffer", offset, len, size)?;
            *paged = paged.saturating_add(len);
        }
        match *paged <= size.saturating_mul(OVERLAP_MAX) {
            true => Ok(()),
            false => Err("its buffers overlap".into()),
        }
    }
}
