//! An open full-text index.

use lance_table::format::IndexMetadata;

use crate::search::row_addresses::RowAddresses;

/// A full-text index that can be searched directly, without Lance's scanner.
pub(crate) struct TextIndex {
    /// The column that it indexes.
    pub column: String,
    /// Its segments, also those that cover no row of the version: they count in the frequencies of words.
    pub segments: Vec<IndexMetadata>,
    pub addresses: RowAddresses,
    /// The ids of the fragments with live rows that no segment covers.
    pub uncovered: Vec<u32>,
    /// The number of these rows.
    pub uncovered_rows: u64,
}
