//! Versions of tables that are open on this node, bounded.

use std::sync::Arc;

use lake::Lake;
use moka::future::Cache;

use super::OpenTable;
use crate::error::NodeError;

/// Opens each version once, however many ask for it at the same time.
#[derive(Clone)]
pub struct Registry {
    lake: Lake,
    tables: Cache<(String, u64), Arc<OpenTable>>,
}

impl Registry {
    /// A registry that keeps at most `tables_max` versions; those in use live on past that.
    pub fn new(lake: Lake, tables_max: u64) -> Self {
        Self { lake, tables: Cache::new(tables_max) }
    }

    /// A version of a table, opened now if it isn't open yet. What fails is tried again by the next
    /// who asks.
    pub async fn open(&self, uri: &str, version: u64) -> Result<Arc<OpenTable>, Arc<NodeError>> {
        self.tables
            .try_get_with((uri.to_owned(), version), async {
                let table = self.lake.open_version(uri, version).await?;
                OpenTable::new(table).await.map(Arc::new)
            })
            .await
    }
}
