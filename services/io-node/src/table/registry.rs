//! Versions of tables that are open on this node, bounded.

use std::sync::Arc;

use address::TableTag;
use moka::future::Cache;
use tables::{CacheUse, TableUri, Tables};
use wire::fetch::StoreUse;

use super::{OpenTable, ServedTables, label, table_tag};
use crate::error::NodeError;

/// URI, version, and identity as asked for; so a table that was made anew under the same name is not
/// mistaken for the old one.
type Key = (TableUri, u64, String);

/// Opens each version once, however many ask for it at the same time.
#[derive(Clone)]
pub struct Registry {
    source: Arc<dyn Tables>,
    served: Arc<ServedTables>,
    tables: Cache<Key, Arc<OpenTable>>,
    /// Labels of tables that were opened: what is on the drives has but their tags.
    labels: Cache<TableTag, Arc<str>>,
}

/// Labels that are remembered at most; of others only the tag is shown.
const LABELS_MAX: u64 = 4096;

impl Registry {
    /// A registry of the tables that are served, which keeps at most `tables_max` versions; those in use live on past
    /// that.
    pub fn new(source: Arc<dyn Tables>, served: ServedTables, tables_max: u64) -> Self {
        let (tables, labels) = (Cache::new(tables_max), Cache::new(LABELS_MAX));
        Self { source, served: Arc::new(served), tables, labels }
    }

    /// What object stores were asked for since the start.
    pub fn store_use(&self) -> StoreUse {
        self.source.store_use()
    }

    /// How the caches of what is known of tables are used.
    pub async fn cache_use(&self) -> Vec<CacheUse> {
        self.source.cache_use().await
    }

    /// The label of a table that was opened since the start.
    pub async fn label(&self, table: TableTag) -> Option<Arc<str>> {
        self.labels.get(&table).await
    }

    /// The number of the latest version of the table that `uri` names.
    ///
    /// # Errors
    /// [`NodeError::NotServed`], and those of the store.
    pub async fn latest_version(&self, uri: &str) -> Result<u64, NodeError> {
        let uri = self.served.admit(uri, self.source.as_ref()).await?;
        Ok(self.source.latest_version(&uri).await?)
    }

    /// A version of the table that `uri` names, opened now if it isn't open yet. What fails is tried again by the next
    /// who asks.
    ///
    /// # Errors
    /// [`NodeError::NotServed`]; those of the store; [`NodeError::AnotherTable`] if the version's identity isn't the one asked
    /// for (an empty one takes what is there).
    pub async fn open(
        &self,
        uri: &str,
        version: u64,
        identity: &str,
    ) -> Result<Arc<OpenTable>, Arc<NodeError>> {
        let uri = self.served.admit(uri, self.source.as_ref()).await.map_err(Arc::new)?;
        let key = (uri.clone(), version, identity.to_owned());
        self.tables
            .try_get_with(key, async {
                let table = self.source.open(&uri, version).await?;
                if !identity.is_empty() && table.identity() != identity {
                    return Err(NodeError::AnotherTable { uri: uri.to_string(), version });
                }
                self.labels.insert(table_tag(table.uri()), label(table.uri()).into()).await;
                OpenTable::new(table).await.map(Arc::new)
            })
            .await
    }
}
