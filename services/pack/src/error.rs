//! What can go wrong, with the column at fault.

use arrow_schema::{ArrowError, DataType};

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The column has a type that is not stored.
    #[error("column {column}: type {data_type} is not supported")]
    Unsupported {
        /// The top-level column.
        column: String,
        /// The type at fault, which may be nested within the column's.
        data_type: DataType,
    },
    /// The pack's constant part of a row is wider than 1 GiB.
    #[error("column {column}: a row's fixed part is wider than 1 GiB")]
    TooWide {
        /// The top-level column that crosses the limit.
        column: String,
    },
    /// Another number of columns than the layout has.
    #[error("{found} columns given, the pack has {expected}")]
    Columns {
        /// Columns of the layout.
        expected: usize,
        /// Columns given.
        found: usize,
    },
    /// A column's type is not the one its layout was made for.
    #[error("column {column}: type {found} given, {expected} expected")]
    Type {
        /// The column.
        column: String,
        /// The layout's type.
        expected: DataType,
        /// The type given.
        found: DataType,
    },
    /// Columns of different lengths.
    #[error("column {column}: {found} rows given, {expected} expected")]
    Rows {
        /// The column.
        column: String,
        /// Rows of the first column.
        expected: usize,
        /// Rows of this column.
        found: usize,
    },
    /// A chunk that doesn't fit an extent of less than 4 GiB and fewer than 2^32 rows.
    #[error("a chunk of {rows} rows does not fit an extent of 4 GiB: take fewer rows a chunk")]
    TooLarge {
        /// Rows of the chunk.
        rows: usize,
    },
    /// The rows asked for together don't fit one Arrow array with 32-bit offsets.
    #[error("column {column}: the rows asked for exceed 2 GiB: ask for fewer")]
    ReplyTooLarge {
        /// The column.
        column: String,
    },
    /// More distinct values than the dictionary's key type can count.
    #[error("column {column}: {values} distinct values do not fit dictionary keys of {key_type}")]
    DictionaryOverflow {
        /// The column.
        column: String,
        /// Distinct values found.
        values: usize,
        /// The dictionary's key type.
        key_type: DataType,
    },
    /// A projection names a column that the layout doesn't have, or one twice.
    #[error("projection: column {column} is out of range or repeated")]
    Projection {
        /// Index within the layout.
        column: usize,
    },
    /// A row that the extent doesn't have.
    #[error("row {row} is not in an extent of {rows} rows")]
    NoSuchRow {
        /// The row.
        row: u32,
        /// Rows of the extent.
        rows: u32,
    },
    /// Bytes put for a position that don't match what was announced: no such position, outside the
    /// row's span, or more than the row has.
    #[error("position {position}: bytes {offset}+{len} are not within its row or were put twice")]
    Put {
        /// The position in the reply.
        position: usize,
        /// Offset of the piece in the row's span.
        offset: usize,
        /// Bytes given.
        len: usize,
    },
    /// Positions whose bytes were never put, or not all of them.
    #[error("{count} rows were never put")]
    Missing {
        /// How many.
        count: usize,
    },
    /// A sector's bytes are not those that were written.
    #[error("sector {sector} of the extent does not match its checksum")]
    Checksum {
        /// Counted from the extent's start.
        sector: u32,
    },
    /// Bytes of a row that no encoder of this layout writes.
    #[error("column {column}: corrupt row: {reason}")]
    Corrupt {
        /// The column.
        column: String,
        /// What is impossible about them.
        reason: String,
    },
    /// Bytes that are no extent index, or the index of another layout.
    #[error("corrupt extent index: {reason}")]
    CorruptIndex {
        /// What is impossible about them.
        reason: &'static str,
    },
    /// Arrow refused a conversion.
    #[error("column {column}: {source}")]
    Arrow {
        /// The column.
        column: String,
        /// Arrow's own error.
        source: ArrowError,
    },
}

impl PackError {
    pub(crate) fn arrow(column: &str) -> impl FnOnce(ArrowError) -> Self {
        let column = column.to_owned();
        move |source| Self::Arrow { column, source }
    }
}
