//! Opens source files, and defines the type of their batches and the error for a bad file.

use std::fs::File;
use std::path::Path;

use arrow::array::RecordBatch;

use crate::error::{LakeError, Result};

/// The batches of one file.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// A `BadFile` error.
pub(crate) fn bad_file(path: &Path, why: impl Into<String>) -> LakeError {
    LakeError::BadFile { path: path.to_owned(), why: why.into() }
}

pub(crate) fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| bad_file(path, error.to_string()))
}
