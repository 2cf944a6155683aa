//! Why a run can't be built or merged.

use bytesize::ByteSize;
use key_index::KeyIndexError;
use lake::LakeError;
use thiserror::Error;

/// The reason why a run can't be built or merged.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The memory for key indexes is too small.
    #[error(
        "the key index needs {needed} more than `key_index` leaves ({max} for all tables); raise it to {}",
        ByteSize::b(max.as_u64() + needed.as_u64())
    )]
    Full {
        /// The memory that is missing, while runs are built and merged.
        needed: ByteSize,
        /// The setting's value.
        max: ByteSize,
    },
    /// The key column can't be read.
    #[error("the key column can't be read: {0}")]
    Table(#[from] LakeError),
    /// The runs or their keys do not fit each other: a defect.
    #[error("the key index: {0}")]
    Index(#[from] KeyIndexError),
    /// The computation panicked: a defect.
    #[error("the key index can't be built: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}
