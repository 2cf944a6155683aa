//! The errors of building and merging runs.

use bytesize::ByteSize;
use key_index::KeyIndexError;
use key_runs::BuildError;
use thiserror::Error;

/// The reason why a run can't be built or merged.
#[derive(Debug, Error)]
pub enum RunError {
    /// The memory for key indexes is too small.
    #[error(
        "the key index needs {needed} more than `key_index` leaves ({max} for all tables); raise it to {}",
        ByteSize::b(max.as_u64() + needed.as_u64())
    )]
    Full {
        /// The memory that is missing, including what building or merging takes temporarily.
        needed: ByteSize,
        /// The value of the setting `key_index`.
        max: ByteSize,
    },
    /// The run can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The runs do not fit each other: a defect.
    #[error("the key index: {0}")]
    Merge(#[from] KeyIndexError),
    /// The computation panicked: a defect.
    #[error("the key index can't be merged: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}
