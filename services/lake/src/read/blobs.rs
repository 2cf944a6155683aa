//! Parts of blobs: their descriptors, their sizes, and ranges of their bytes, which are read without the rest.
//!
//! Rows with whole blobs are read like all others (`take.rs`, `chunk.rs`).

use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use bytes::Bytes;
use lance::dataset::BlobFile;
use lance_core::datatypes::Field as LanceField;

use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::read::columns::Columns;
use crate::schema::arrow_schema;
use crate::table::Table;

/// A blob of a row. Cheap to clone.
#[derive(Clone)]
pub struct Blob {
    table: Table,
    file: Arc<BlobFile>,
    /// Whether Lance can read ranges of the blob's bytes. Its size is always known.
    has_ranges: bool,
}

impl Blob {
    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads a range of its bytes from the table. Errors: those of the store, and `Unsupported` for a blob of version 1
    /// that a branch shares with its parent: Lance looks for its file in the branch's own folder.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if !self.has_ranges {
            return Err(LakeError::Unsupported {
                uri: self.table.uri().to_owned(),
                why: "ranges of blobs of version 1 in rows that a branch shares with its parent; fetch whole blobs"
                    .to_owned(),
            });
        }
        self.table.caught(self.file.read_range(range)).await
    }
}

impl Table {
    /// Returns whether `column` (top-level) is a column of blobs, or has blobs nested in it. Errors: `ColumnNotFound`.
    pub fn has_blobs(&self, column: &str) -> Result<bool> {
        let field = &self.dataset().schema().fields[self.column_position(column)?];
        Ok(any(field, &LanceField::is_blob))
    }

    /// Returns the schema as Lance itself gives it: a blob of version 2 is a struct of data and URI with an extension
    /// type. By this type, clients recognise the columns whose blobs they fetch with separate calls. Errors: a type
    /// that Arrow can't convert.
    pub fn lance_schema(&self) -> Result<SchemaRef> {
        let all = arrow_schema(self.shown_fields()).map_err(|error| self.blame(error.into()))?;
        let own = self.shown_fields().fields.iter().zip(self.schema().fields());
        let field = |(at, (lance, served)): (usize, (&LanceField, &Arc<Field>))| match any(
            lance,
            &LanceField::is_blob_v2,
        ) {
            true => Arc::clone(&all.fields()[at]),
            false => Arc::clone(served),
        };
        let fields: Vec<_> = own.enumerate().map(field).collect();
        Ok(Arc::new(ArrowSchema::new_with_metadata(fields, self.schema().metadata().clone())))
    }

    /// Returns the schema of [`descriptors`](Self::descriptors) of these columns. Errors: `ColumnNotFound`.
    pub fn descriptor_schema(&self, columns: &[String]) -> Result<SchemaRef> {
        Ok(Columns::of_descriptors(self, columns)?.served)
    }

    /// Reads `columns` (top-level) of the rows at `addresses`, in the order given, as Lance's scans return them: a blob
    /// is a descriptor, which has its size and says where its bytes are. No blob is read.
    ///
    /// Errors: those of [`take`](Self::take).
    pub async fn descriptors(
        &self,
        addresses: &[RowAddr],
        columns: &[String],
    ) -> Result<RecordBatch> {
        let columns = async { Columns::of_descriptors(self, columns) };
        let columns = caught(self.uri(), columns).await?;
        self.take_columns(addresses, &columns).await
    }

    /// Finds the blobs of `column` in the rows at `addresses`, in the order given; `None` for null. Reads their
    /// descriptors, and no blob.
    ///
    /// Errors: `RowNotFound`, `ColumnNotFound`, `BadQuery` for a column that holds no blobs, and those of the store.
    pub async fn blobs(&self, column: &str, addresses: &[RowAddr]) -> Result<Vec<Option<Blob>>> {
        if !self.is_blob(column)? {
            let why = format!("column {column:?} holds no blobs");
            return Err(LakeError::BadQuery { why });
        }
        self.check_live(addresses).await?;
        let mut sorted: Vec<u64> = addresses.iter().map(|addr| addr.to_u64()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let found = self.caught(self.dataset().take_blobs_by_addresses(&sorted, column)).await?;
        if found.len() != sorted.len() {
            let why = format!("{} rows were asked for, and {} came", sorted.len(), found.len());
            return Err(LakeError::Internal { uri: self.uri().to_owned(), why });
        }
        let field = &self.dataset().schema().fields[self.column_position(column)?];
        let mut blobs = Vec::with_capacity(found.len());
        for (file, addr) in found.into_iter().zip(&sorted) {
            let has_ranges = self.branch().is_none()
                || field.is_blob_v2()
                || !self.is_inherited(RowAddr::from_u64(*addr).fragment())?;
            let blob = |file| Blob { table: self.clone(), file: Arc::new(file), has_ranges };
            blobs.push(file.map(blob));
        }
        let of = |addr: &RowAddr| {
            let at = sorted.binary_search(&addr.to_u64()).unwrap_or_default();
            blobs[at].clone()
        };
        Ok(addresses.iter().map(of).collect())
    }
}

impl Table {
    /// Returns whether some data files of `fragment` are outside the branch's own folder. Errors: `FragmentNotFound`.
    fn is_inherited(&self, fragment: u32) -> Result<bool> {
        let files = &self.file_fragment(fragment)?.metadata().files;
        Ok(files.iter().any(|file| file.base_id.is_some()))
    }
}

/// Returns whether `is` holds for a field, or for one that is nested in it.
fn any(field: &LanceField, is: &impl Fn(&LanceField) -> bool) -> bool {
    is(field) || field.children.iter().any(|child| any(child, is))
}
