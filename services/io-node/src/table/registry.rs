//! A bounded cache of open versions of tables.

use std::sync::Arc;

use address::TableTag;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use tables::{BranchName, CacheUse, FilePath, FileTable, StoreUse, TableUri, Tables};
use wire::{Fault, Reason};

use super::{OpenTable, ServedTables, label, table_tag};
use crate::error::NodeError;

/// URI, branch, version, and requested identity. With the identity, a table that was recreated under the same name is
/// not mistaken for the old one.
type Key = (TableUri, Option<BranchName>, u64, String);

/// A cache of open tables. It opens each version of a table once, however many callers request it at the same time.
#[derive(Clone)]
pub struct Registry {
    source: Arc<dyn Tables>,
    served: Arc<ServedTables>,
    tables: Cache<Key, Arc<OpenTable>>,
    files: Cache<FileKey, Arc<OpenTable>>,
    /// Labels of tables that were opened. Extents on the drives have only the tags of their tables.
    labels: Cache<TableTag, Arc<str>>,
}

/// A file's table, path and size (`None` if its opener does not know it). With the size, a caller that gives a wrong
/// one does not disturb others.
type FileKey = (TableUri, FilePath, Option<u64>);

/// The maximum number of fragments of all versions that are kept open. Each takes one or two KiB. A version counts as at
/// least this number divided by `tables_max`, which bounds the number of versions, and as at most half of it, so that
/// even the largest can be open.
const FRAGMENTS_MAX: u32 = 100_000;

/// The maximum number of files that are kept open. An open file takes about 1 KiB. All of them take some 16 MB.
const FILES_MAX: u64 = 16_384;

/// The maximum number of labels that are kept; they take about a megabyte. A table whose label is not kept is shown by
/// its tag.
const LABELS_MAX: u64 = 4096;

impl Registry {
    /// Creates a registry of the served tables, which keeps at most `tables_max` versions, and fewer if they have many
    /// fragments. Callers that hold an evicted version can still use it. A version is not closed for lack of use: if
    /// the store can't be reached, a node serves from its drives only tables that are open.
    pub fn new(source: Arc<dyn Tables>, served: ServedTables, tables_max: u64) -> Self {
        let tables = Cache::builder()
            .max_capacity(FRAGMENTS_MAX.into())
            .weigher(move |_: &Key, table: &Arc<OpenTable>| {
                weight(table.fragments().len(), tables_max)
            })
            .eviction_policy(EvictionPolicy::lru())
            .build();
        let files = Cache::new(FILES_MAX);
        Self { source, served: Arc::new(served), tables, files, labels: Cache::new(LABELS_MAX) }
    }

    /// Returns the counts of requests to object stores since the start.
    pub fn store_use(&self) -> StoreUse {
        self.source.store_use()
    }

    /// Returns the usage of the caches of table metadata.
    pub async fn cache_use(&self) -> Vec<CacheUse> {
        self.source.cache_use().await
    }

    /// Returns the label of a table that was opened since the start, or `None` if the label is not kept.
    pub async fn label(&self, table: TableTag) -> Option<Arc<str>> {
        self.labels.get(&table).await
    }

    /// Returns the number of the latest version of the table at `uri`.
    ///
    /// # Errors
    /// [`NodeError::NotServed`], and errors of the store.
    pub async fn latest_version(&self, uri: &str) -> Result<u64, NodeError> {
        let uri = self.served.admit(uri, self.source.as_ref()).await?;
        Ok(self.source.latest_version(&uri).await?)
    }

    /// Returns a version of a branch of the table at `uri`; of the main branch if `branch` is empty. Opens it if
    /// necessary. A branch is served if its table is. Failures are not cached.
    ///
    /// # Errors
    /// [`NodeError::NotServed`]; `BAD_ARGUMENT` for a text that is no branch's name; errors of the store;
    /// [`NodeError::AnotherTable`] if the version has another identity than requested (an empty one matches any).
    pub async fn open(
        &self,
        uri: &str,
        branch: &str,
        version: u64,
        identity: &str,
    ) -> Result<Arc<OpenTable>, Arc<NodeError>> {
        let uri = self.served.admit(uri, self.source.as_ref()).await.map_err(Arc::new)?;
        let branch = branch_of(branch).map_err(Arc::new)?;
        let key = (uri.clone(), branch.clone(), version, identity.to_owned());
        self.tables
            .try_get_with(key, async {
                let table = self.source.open(&uri, branch.as_ref(), version).await?;
                if !identity.is_empty() && table.identity() != identity {
                    return Err(NodeError::AnotherTable { uri: uri.to_string(), version });
                }
                self.labels.insert(table_tag(table.uri()), label(table.uri()).into()).await;
                OpenTable::new(table).await.map(Arc::new)
            })
            .await
    }

    /// Returns a file of the table at `uri`, and opens it if necessary. `bytes` is its size, or 0 if that is unknown.
    /// Failures are not cached. If a read has found that an open file was replaced in the store, the file is opened
    /// anew.
    ///
    /// # Errors
    /// [`NodeError::NotServed`]; a path that [`FilePath::parse`] refuses; if the size is unknown, errors of the store.
    /// A wrong size is found out by the first read of the store.
    pub async fn open_file(
        &self,
        uri: &str,
        path: &str,
        bytes: u64,
    ) -> Result<Arc<OpenTable>, Arc<NodeError>> {
        let uri = self.served.admit(uri, self.source.as_ref()).await.map_err(Arc::new)?;
        let path = FilePath::parse(path).ok_or_else(|| Arc::new(NodeError::NoFile))?;
        let bytes = (bytes > 0).then_some(bytes);
        let key = (uri.clone(), path.clone(), bytes);
        self.forget_damaged(&key).await;
        let opened = self.files.try_get_with(key, async {
            let file = self.source.open_file(&uri, &path, bytes).await?;
            let files = uri.files();
            self.labels.insert(table_tag(&files), label(&files).into()).await;
            OpenTable::of_file(file).await.map(Arc::new)
        });
        opened.await
    }

    /// Forgets an open file if a read through it, or by others who gave the same size, has found that it was replaced.
    async fn forget_damaged(&self, key: &FileKey) {
        let is_damaged =
            |open: &Arc<OpenTable>| open.file().is_some_and(|file| file.damage().is_some());
        let Some(open) = self.files.get(key).await else { return };
        let (uri, path, _) = key.clone();
        let sized = (uri, path, open.file().map(FileTable::bytes));
        if is_damaged(&open) || self.files.get(&sized).await.is_some_and(|it| is_damaged(&it)) {
            self.files.invalidate(key).await;
            self.files.invalidate(&sized).await;
        }
    }
}

/// Returns the number of fragments that a version with `fragments` fragments counts as.
fn weight(fragments: usize, tables_max: u64) -> u32 {
    let least = u64::from(FRAGMENTS_MAX) / tables_max.max(1);
    let fragments = u32::try_from(fragments).unwrap_or(u32::MAX);
    fragments.max(least as u32).min(FRAGMENTS_MAX / 2)
}

/// Returns the branch that a request names; `None` for the main one.
fn branch_of(text: &str) -> Result<Option<BranchName>, NodeError> {
    BranchName::of_request(text).map_err(|error| {
        let what = format!("`{}` {error}", tables::shown(text));
        Fault::new(Reason::BadArgument, what).with("field", "branch").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_by_their_fragments_within_bounds() {
        // 64 versions with few fragments are kept, and no more.
        assert_eq!((0..64).map(|fragments| weight(fragments, 64)).sum::<u32>(), 64 * 1562);
        assert!(65 * weight(1, 64) > FRAGMENTS_MAX);
        assert_eq!(weight(40_000, 64), 40_000);
        // Two of the largest versions are kept.
        assert_eq!(weight(1 << 40, 64), FRAGMENTS_MAX / 2);
        assert_eq!(weight(0, 1), FRAGMENTS_MAX / 2);
    }
}
