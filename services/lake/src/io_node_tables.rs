//! Implements the traits through which I/O nodes use tables: reads for fills and misses, and errors in their wire form.

use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use tables::{
    BranchName, CacheUse, DeletedRows, FilePath, FileTable, FragmentInfo, StoreUse, TableUri,
};
use wire::Fault;

use crate::canonical::resolved;
use crate::error::fault::fault_of;
use crate::files::stored_file::open_file;
use crate::lake::Lake;
use crate::table::Table;

impl tables::Tables for Lake {
    fn open<'a>(
        &'a self,
        uri: &'a TableUri,
        branch: Option<&'a BranchName>,
        version: u64,
    ) -> BoxFuture<'a, Result<Arc<dyn tables::Table>, Fault>> {
        async move {
            let opened = async {
                let uri = self.canonical(uri.as_str()).await?;
                self.open_branch_version(&uri, branch, version).await
            };
            let table = opened.await.map_err(|error| fault_of(&error))?;
            Ok(Arc::new(table) as Arc<dyn tables::Table>)
        }
        .boxed()
    }

    fn open_file<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        bytes: Option<u64>,
    ) -> BoxFuture<'a, Result<FileTable, Fault>> {
        open_file(self.opener(), self.block_reads(), table, path, bytes).boxed()
    }

    fn latest_version<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<u64, Fault>> {
        let latest = self.latest_version(uri.as_str());
        latest.map(|done| done.map_err(|error| fault_of(&error))).boxed()
    }

    fn resolve<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<TableUri, Fault>> {
        resolved(uri).map(|done| done.map_err(|error| fault_of(&error))).boxed()
    }

    fn store_use(&self) -> StoreUse {
        self.store_use()
    }

    fn cache_use(&self) -> BoxFuture<'_, Vec<CacheUse>> {
        self.cache_use().boxed()
    }
}

impl tables::Table for Table {
    fn uri(&self) -> &TableUri {
        self.canonical_uri()
    }

    fn identity(&self) -> String {
        self.identity()
    }

    fn schema(&self) -> &SchemaRef {
        self.schema()
    }

    fn column(&self, name: &str) -> Result<usize, Fault> {
        self.column_position(name).map_err(|error| fault_of(&error))
    }

    fn is_blob(&self, column: &str) -> Result<bool, Fault> {
        self.is_blob(column).map_err(|error| fault_of(&error))
    }

    fn fragments(&self) -> &[FragmentInfo] {
        self.fragments()
    }

    fn file_identity(&self, fragment: u32, column: &str) -> Result<String, Fault> {
        self.file_identity(fragment, column).map_err(|error| fault_of(&error))
    }

    fn deleted(&self, fragment: u32) -> BoxFuture<'_, Result<Arc<DeletedRows>, Fault>> {
        self.deleted(fragment).map(|done| done.map_err(|error| fault_of(&error))).boxed()
    }

    fn read_chunk<'a>(
        &'a self,
        fragment: u32,
        rows: Range<u32>,
        columns: &'a [String],
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>> {
        let read = self.read_chunk_within(fragment, rows, columns, bytes_max);
        read.map(|done| done.map_err(|error| fault_of(&error))).boxed()
    }

    fn take<'a>(
        &'a self,
        addresses: &'a [RowAddr],
        columns: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>> {
        let taken = self.take(addresses, columns);
        taken.map(|done| done.map_err(|error| fault_of(&error))).boxed()
    }
}
