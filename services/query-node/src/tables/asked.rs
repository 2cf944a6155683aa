//! The version of a table that a request asks for.

use lake::{BranchName, quoted};

use crate::error::{QueryError, Result};

/// The version of a table that a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct AskedVersion<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The branch that the version belongs to; empty or `main` for the main one.
    pub branch: &'a str,
    /// The version; 0 for the current one.
    pub version: u64,
}

impl AskedVersion<'_> {
    /// Returns the branch; `None` for the main one.
    ///
    /// # Errors
    /// `BadRequest` for a text that is no branch's name.
    pub fn branch(&self) -> Result<Option<BranchName>> {
        BranchName::of_request(self.branch).map_err(|error| {
            let problem = format!("{} {error}", quoted(self.branch));
            QueryError::BadRequest { field: "branch", problem }
        })
    }
}
