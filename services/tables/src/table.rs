//! Tables, and one version of one.

use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use wire::Fault;
use wire::fetch::StoreUse;

use crate::positions;
use crate::{CacheUse, DeletedRows, FragmentInfo, FragmentRows, TableUri};

/// Where tables are.
pub trait Tables: Send + Sync {
    /// Opens one version of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, `VERSION_NOT_FOUND`, and those of the store.
    fn open<'a>(
        &'a self,
        uri: &'a TableUri,
        version: u64,
    ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>>;

    /// The number of the latest version of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, and those of the store.
    fn latest_version<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<u64, Fault>>;

    /// Where a table really is: its URI without symbolic links. Where there are none it is the same.
    ///
    /// # Errors
    /// A path that can't be looked up.
    fn resolve<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<TableUri, Fault>> {
        std::future::ready(Ok(uri.clone())).boxed()
    }

    /// What object stores were asked for since the start.
    fn store_use(&self) -> StoreUse;

    /// How the caches of what is known of tables are used; none where nothing is cached.
    fn cache_use(&self) -> BoxFuture<'_, Vec<CacheUse>> {
        std::future::ready(Vec::new()).boxed()
    }
}

/// One version of a table.
pub trait Table: Send + Sync {
    /// Where it is.
    fn uri(&self) -> &TableUri;

    /// What its rows are made of: two tables that had the same URI and version one after the other differ in it.
    fn identity(&self) -> String;

    /// The columns that its rows come in.
    fn schema(&self) -> &SchemaRef;

    /// Where a top-level column stands in the schema.
    ///
    /// # Errors
    /// `COLUMN_NOT_FOUND`.
    fn column(&self, name: &str) -> Result<usize, Fault>;

    /// Whether a top-level column holds blobs, of any size.
    ///
    /// # Errors
    /// `COLUMN_NOT_FOUND`.
    fn is_blob(&self, column: &str) -> Result<bool, Fault>;

    /// Its fragments, by ascending id.
    fn fragments(&self) -> &[FragmentInfo];

    /// Which data files hold a column in a fragment. Files never change and their names are not used twice, so equal
    /// identities mean equal bytes, across versions too.
    ///
    /// # Errors
    /// `ROW_NOT_FOUND` for the fragment, `COLUMN_NOT_FOUND`.
    fn file_identity(&self, fragment: u32, column: &str) -> Result<String, Fault>;

    /// The deleted rows of a fragment.
    ///
    /// # Errors
    /// `ROW_NOT_FOUND` for the fragment, and those of the store.
    fn deleted(&self, fragment: u32) -> BoxFuture<'_, Result<Arc<DeletedRows>, Fault>>;

    /// The rows at the physical offsets `rows` of a fragment: exactly so many, in order, deleted ones included, with
    /// whatever they held or nulls. Columns are top-level names, in the order wanted.
    ///
    /// # Errors
    /// What does not exist, and those of the store.
    fn read_chunk<'a>(
        &'a self,
        fragment: u32,
        rows: Range<u32>,
        columns: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>>;

    /// The rows at these addresses, in the order given; an address may occur several times.
    ///
    /// # Errors
    /// What does not exist, and those of the store.
    fn take<'a>(
        &'a self,
        addresses: &'a [RowAddr],
        columns: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>>;

    /// Where the rows at `positions` are, half-open and counted from 0 in the table's order, deleted ones not
    /// counted; `u64::MAX` stands for the table's end. Reads the deletion vectors of the first and the last fragment,
    /// where they have some.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` for positions that the version does not have, and those of the store.
    fn rows_at(&self, positions: Range<u64>) -> BoxFuture<'_, Result<Vec<FragmentRows>, Fault>> {
        positions::rows_at(self.uri().as_str(), self.fragments(), positions, |fragment| {
            self.deleted(fragment)
        })
        .boxed()
    }
}
