//! Files with rows, in one of the formats that `bireme ingest` reads.

use std::path::Path;

use lake::{FileRows, fault_of, read_file};

use crate::error::{CliError, Result};

/// Checks that a file of rows exists.
pub fn check_source(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::os(&format!("{} can't be read", path.display()), &error, "")),
    }
}

/// Opens a file of rows.
pub fn read_source(path: &Path) -> Result<FileRows> {
    check_source(path)?;
    Ok(read_file(path).map_err(|error| fault_of(&error))?)
}
