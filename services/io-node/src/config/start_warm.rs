//! What is filled before a node says that it serves, as it is configured.

use serde::{Deserialize, Serialize};
use tables::normal_uri;

use super::twice;
use crate::error::NodeError;

/// Columns of one version of a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StartWarmConfig {
    /// The table.
    pub uri: String,
    /// Its version; 0 for the latest.
    #[serde(default)]
    pub version: u64,
    /// Columns whose packs are filled; all if empty.
    #[serde(default)]
    pub columns: Vec<String>,
}

impl StartWarmConfig {
    /// # Errors
    /// [`NodeError::Config`] for no URI, or a column that is there twice.
    pub fn check(&self) -> Result<(), NodeError> {
        let bad = |problem| Err(NodeError::Config { field: "warm_at_start", problem });
        if let Err(error) = normal_uri(&self.uri) {
            return bad(format!("`{}`: {error}", self.uri));
        }
        match twice(&self.columns) {
            Some(column) => bad(format!("of {} names column `{column}` twice", self.uri)),
            None => Ok(()),
        }
    }
}
