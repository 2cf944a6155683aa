//! The errors of this crate.

use arrow_schema::{ArrowError, DataType};

/// An error of encoding or decoding a pack.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The column's type can't be stored.
    #[error("column {column}: type {data_type} is not supported")]
    Unsupported {
        /// The top-level column.
        column: String,
        /// The unsupported type, which may be nested in the column's type.
        data_type: DataType,
    },
    /// The fixed part of the pack's rows is wider than 1 GiB.
    #[error("column {column}: a row's fixed part is wider than 1 GiB")]
    TooWide {
        /// The top-level column that crosses the limit.
        column: String,
    },
    /// The number of columns differs from the layout's.
    #[error("{found} columns given, the pack has {expected}")]
    Columns {
        /// The number of columns of the layout.
        expected: usize,
        /// The number of columns given.
        found: usize,
    },
    /// A column's type differs from the layout's.
    #[error("column {column}: type {found} given, {expected} expected")]
    Type {
        /// The column.
        column: String,
        /// The layout's type.
        expected: DataType,
        /// The type given.
        found: DataType,
    },
    /// The columns have different lengths.
    #[error("column {column}: {found} rows given, {expected} expected")]
    Rows {
        /// The column.
        column: String,
        /// The number of rows of the first column.
        expected: usize,
        /// The number of rows of this column.
        found: usize,
    },
    /// The chunk can't be an extent: it needs 4 GiB or more, has 2^32 rows or more, or contains a list of 2^30 items or
    /// more.
    #[error("a chunk of {rows} rows does not fit an extent of 4 GiB: use fewer rows in a chunk")]
    TooLarge {
        /// The number of rows of the chunk.
        rows: usize,
    },
    /// The chunk needs more bytes than its caller allows.
    #[error("a chunk of {rows} rows takes at least {bytes} bytes, and may take {bytes_max}")]
    TooLong {
        /// The number of rows of the chunk.
        rows: usize,
        /// The bytes that it needs at least.
        bytes: u64,
        /// The maximum number of bytes.
        bytes_max: u64,
    },
    /// The requested rows don't fit into one Arrow array with 32-bit offsets.
    #[error("column {column}: the requested rows exceed 2 GiB: request fewer")]
    ReplyTooLarge {
        /// The column.
        column: String,
    },
    /// There are more distinct values than the dictionary's key type can count.
    #[error("column {column}: {values} distinct values do not fit dictionary keys of {key_type}")]
    DictionaryOverflow {
        /// The column.
        column: String,
        /// The number of distinct values.
        values: usize,
        /// The dictionary's key type.
        key_type: DataType,
    },
    /// A projection repeats a column or has one that the layout doesn't have.
    #[error("projection: column {column} is out of range or repeated")]
    Projection {
        /// The column's index in the layout.
        column: usize,
    },
    /// The extent has no such row.
    #[error("row {row} is not in an extent of {rows} rows")]
    NoSuchRow {
        /// The row.
        row: u32,
        /// The number of rows of the extent.
        rows: u32,
    },
    /// Bytes were put at a position that doesn't exist or outside the row's span, or more bytes were put than the span
    /// has.
    #[error("position {position}: bytes {offset}+{len} are not within its row or were put twice")]
    Put {
        /// The position in the reply.
        position: usize,
        /// The piece's offset in the row's span.
        offset: usize,
        /// The piece's length in bytes.
        len: usize,
    },
    /// Some positions were not put completely.
    #[error("{count} rows were not put completely")]
    Missing {
        /// The number of positions.
        count: usize,
    },
    /// A sector's bytes are not the bytes that were written.
    #[error("sector {sector} of the extent does not match its checksum")]
    Checksum {
        /// The sector's number, counted from the extent's start.
        sector: u32,
    },
    /// A row has bytes that no encoder of this layout writes.
    #[error("column {column}: corrupt row: {reason}")]
    Corrupt {
        /// The column.
        column: String,
        /// The reason why the bytes are invalid.
        reason: String,
    },
    /// The bytes are not an extent index, or the index belongs to another layout.
    #[error("corrupt extent index: {reason}")]
    CorruptIndex {
        /// The reason why the index is invalid.
        reason: &'static str,
    },
    /// Arrow rejected a conversion.
    #[error("column {column}: {source}")]
    Arrow {
        /// The column.
        column: String,
        /// Arrow's error.
        source: ArrowError,
    },
}

impl PackError {
    pub(crate) fn arrow(column: &str) -> impl FnOnce(ArrowError) -> Self {
        let column = column.to_owned();
        move |source| Self::Arrow { column, source }
    }
}

/// The reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Bytes(&'static str),
    /// The values are too many or too long for the array's offsets.
    TooLarge,
}
