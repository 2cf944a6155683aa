//! The configuration of the fills for which a node waits before it reports serving.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tables::TableUri;

use super::duplicate;
use super::serve::table_uri;
use crate::error::NodeError;
use crate::table::label;

/// Columns of one version of a table.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartWarmConfig {
    /// The table.
    pub uri: String,
    /// The table's version; 0 for the latest.
    #[serde(default)]
    pub version: u64,
    /// The columns whose packs are filled; all if empty.
    #[serde(default)]
    pub columns: Vec<String>,
}

impl StartWarmConfig {
    /// Returns the table's label, which anyone may read; empty if the URI names no table.
    pub fn label(&self) -> String {
        TableUri::of_config(&self.uri).map_or_else(|_| String::new(), |uri| label(&uri))
    }

    /// Checks the URI and the columns.
    ///
    /// # Errors
    /// [`NodeError::Config`] if the URI names no table, or a column occurs twice.
    pub fn check(&self) -> Result<(), NodeError> {
        let bad = |problem| Err(NodeError::Config { field: "warm_at_start", problem });
        table_uri("warm_at_start", &self.uri)?;
        match duplicate(&self.columns) {
            Some(column) => bad(format!("of {} names column `{column}` twice", self.uri)),
            None => Ok(()),
        }
    }
}
