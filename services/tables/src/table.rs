//! The trait of one version of a table.

use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use wire::Fault;

use crate::positions;
use crate::{DeletedRows, FragmentInfo, FragmentRows, TableUri};

/// One version of a table.
pub trait Table: Send + Sync {
    /// Returns the table's URI.
    fn uri(&self) -> &TableUri;

    /// Returns an identity of the contents. If a table is replaced by another one with the same URI and version, their
    /// identities differ.
    fn identity(&self) -> String;

    /// Returns the schema of the rows.
    fn schema(&self) -> &SchemaRef;

    /// Returns the index of a top-level column in the schema.
    ///
    /// # Errors
    /// `COLUMN_NOT_FOUND`.
    fn column(&self, name: &str) -> Result<usize, Fault>;

    /// Returns whether a top-level column holds blobs, of any size.
    ///
    /// # Errors
    /// `COLUMN_NOT_FOUND`.
    fn is_blob(&self, column: &str) -> Result<bool, Fault>;

    /// Returns the fragments, in ascending order of their ids.
    fn fragments(&self) -> &[FragmentInfo];

    /// Returns an identity of the data files that hold a column in a fragment. Files never change and their names are
    /// not reused, so equal identities mean equal bytes, across versions too.
    ///
    /// # Errors
    /// `ROW_NOT_FOUND` if there is no such fragment, `COLUMN_NOT_FOUND`.
    fn file_identity(&self, fragment: u32, column: &str) -> Result<String, Fault>;

    /// Returns the deleted rows of a fragment.
    ///
    /// # Errors
    /// `ROW_NOT_FOUND` if there is no such fragment, and errors of the store.
    fn deleted(&self, fragment: u32) -> BoxFuture<'_, Result<Arc<DeletedRows>, Fault>>;

    /// Reads the rows at the physical offsets `rows` of a fragment, in order. Deleted rows are included, with their old
    /// values or nulls. `columns` are top-level names, in the order in which they are returned.
    ///
    /// Reading rows of variable width, which have a column without [`fixed_bytes`](crate::fixed_bytes), stops once they
    /// take more than `bytes_max` bytes of memory. Then only the first rows are returned. There is at least one batch.
    ///
    /// # Errors
    /// Errors for a fragment, rows or columns that do not exist, and errors of the store.
    fn read_chunk<'a>(
        &'a self,
        fragment: u32,
        rows: Range<u32>,
        columns: &'a [String],
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>>;

    /// Reads the rows at `addresses`, in this order. An address may occur several times.
    ///
    /// # Errors
    /// Errors for rows or columns that do not exist, and errors of the store.
    fn take<'a>(
        &'a self,
        addresses: &'a [RowAddr],
        columns: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>>;

    /// Returns the rows at `positions`, by fragment. Positions count from 0 in the order of a scan, without deleted
    /// rows. The end `u64::MAX` stands for the table's end. Reads the deletion vectors of at most the first and the
    /// last of these fragments.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` for positions that the version does not have, and errors of the store.
    fn rows_at(&self, positions: Range<u64>) -> BoxFuture<'_, Result<Vec<FragmentRows>, Fault>> {
        positions::rows_at(self.uri().as_str(), self.fragments(), positions, |fragment| {
            self.deleted(fragment)
        })
        .boxed()
    }
}
