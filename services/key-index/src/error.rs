//! The errors of this crate.

use crate::key_type::KeyType;

/// An error of building, merging, loading or using key indexes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyIndexError {
    /// The key's type is not the column's.
    #[error("the key is of type {found}, the key column of type {expected}")]
    KeyType {
        /// The type of the key column.
        expected: KeyType,
        /// The type of the key.
        found: KeyType,
    },
    /// The files have more rows than a run can cover, because ranks have 32 bits.
    #[error("{rows} rows are more than one run can cover (4,294,967,295): build several runs")]
    TooManyRows {
        /// The number of rows of all files.
        rows: u64,
    },
    /// The number of keys given differs from the number of rows of the files.
    #[error("{found} keys given, the files have {expected} rows")]
    Rows {
        /// The number of rows of the files.
        expected: u64,
        /// The number of keys and nulls given.
        found: u64,
    },
    /// The path of a data file does not fit the format.
    #[error("the path of a data file has {bytes} bytes, at most 65,535 are allowed")]
    PathTooLong {
        /// The length of the path.
        bytes: usize,
    },
    /// No run was given.
    #[error("no run was given")]
    NoRuns,
    /// Runs with different seeds or key types were given together.
    #[error("the runs differ in {what}: build them again from the key column")]
    Unlike {
        /// The property that differs.
        what: &'static str,
    },
    /// A persisted run has a format that another release of Bireme writes.
    #[error("a key index in version {found} of its format; this release reads version {known}")]
    UnknownVersion {
        /// The version of the run's format.
        found: u32,
        /// The version that this crate reads.
        known: u32,
    },
    /// The head of a persisted run is damaged, its file has another length or other contents than the head says, or the
    /// file is no persisted run.
    #[error("not a usable key index: {reason}")]
    CorruptHead {
        /// The reason why the head is invalid.
        reason: &'static str,
    },
    /// A page of a persisted run is damaged.
    #[error("damaged key index: page {page}: {reason}")]
    CorruptPage {
        /// The page's number, counted from the first page after the head.
        page: u32,
        /// The reason why the page is invalid.
        reason: &'static str,
    },
}

impl KeyIndexError {
    pub(crate) fn head(reason: &'static str) -> Self {
        Self::CorruptHead { reason }
    }
}
