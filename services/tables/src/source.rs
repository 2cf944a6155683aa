//! The trait of a source of tables.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use wire::Fault;

use crate::{BranchName, CacheUse, FilePath, FileTable, StoreUse, Table, TableUri};

/// A source of tables.
pub trait Tables: Send + Sync {
    /// Opens one version of a table's branch; of the main one if `branch` is `None`.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, `VERSION_NOT_FOUND` (also if the table has no such branch), `TABLE_DAMAGED`,
    /// `UNSUPPORTED_TYPE`, and errors of the store.
    fn open<'a>(
        &'a self,
        uri: &'a TableUri,
        branch: Option<&'a BranchName>,
        version: u64,
    ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>>;

    /// Opens a file of a table, as a table ([`FileTable`](crate::FileTable)). `bytes` is the file's size, if it is
    /// known; otherwise the store is asked for it. With `bytes`, a file that is missing or has another size may be
    /// noticed only when its rows are read.
    ///
    /// # Errors
    /// `TABLE_DAMAGED` if there is no such file, `TOO_LARGE` for a file of more than 16 TiB, and errors of the store.
    fn open_file<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        bytes: Option<u64>,
    ) -> BoxFuture<'a, Result<FileTable, Fault>>;

    /// Returns the number of the latest version of a table's main branch.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, and errors of the store.
    fn latest_version<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<u64, Fault>>;

    /// Returns a table's URI with symbolic links resolved.
    ///
    /// # Errors
    /// An error if the path can't be looked up.
    fn resolve<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<TableUri, Fault>> {
        std::future::ready(Ok(uri.clone())).boxed()
    }

    /// Returns the use of object stores since the start.
    fn store_use(&self) -> StoreUse;

    /// Returns the use of the caches of tables. The list is empty if the source has no caches.
    fn cache_use(&self) -> BoxFuture<'_, Vec<CacheUse>> {
        std::future::ready(Vec::new()).boxed()
    }
}
