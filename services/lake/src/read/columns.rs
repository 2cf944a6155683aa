//! The columns of one read, resolved against a table.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use lance_core::datatypes::Schema as LanceSchema;

use crate::error::Result;
use crate::schema::{arrow_schema, described_view, stored_view};
use crate::table::Table;

/// Top-level columns, in the requested order.
pub(crate) struct Columns {
    /// The schema that the caller gets.
    pub served: SchemaRef,
    /// The fields as the table stores them.
    pub stored: LanceSchema,
    /// The stored fields in the form that a fragment's reader takes: blobs as contents, or as descriptors if
    /// [`of_descriptors`](Self::of_descriptors) made this.
    pub readable: LanceSchema,
    /// Whether the contents of blobs of version 2 are to be read, from any field, nested ones included. Only Lance's
    /// scanner returns such contents in a column of its batches.
    pub blob_v2: bool,
}

impl Columns {
    /// Looks up `names` in `table`. Errors: `ColumnNotFound`.
    pub(crate) fn resolve(table: &Table, names: &[String]) -> Result<Self> {
        let all = table.stored_schema();
        let mut served = Vec::with_capacity(names.len());
        let mut fields = Vec::with_capacity(names.len());
        let mut seen = HashSet::with_capacity(names.len());
        for name in names {
            let position = table.column_position(name)?;
            served.push(all.fields()[position].clone());
            if seen.insert(position) {
                fields.push(table.dataset().schema().fields[position].clone());
            }
        }
        let stored = LanceSchema { fields, metadata: Default::default() };
        let blob_v2 = stored.fields_pre_order().any(|field| field.is_blob_v2());
        let readable = stored_view(table.dataset(), &stored);
        let served = Arc::new(ArrowSchema::new_with_metadata(served, all.metadata().clone()));
        Ok(Self { served, stored, readable, blob_v2 })
    }

    /// Looks up `names`, which differ from each other, in `table`, with descriptors in the place of blobs. Errors:
    /// `ColumnNotFound`.
    pub(crate) fn of_descriptors(table: &Table, names: &[String]) -> Result<Self> {
        let Self { served, stored, .. } = Self::resolve(table, names)?;
        let readable = described_view(table.dataset(), &stored);
        let blame = |error: ArrowError| table.blame(error.into());
        let read = arrow_schema(&readable).map_err(blame)?;
        let field = |name: &String| read.field_with_name(name).cloned();
        let fields = names.iter().map(field).collect::<std::result::Result<Vec<_>, _>>();
        let metadata = served.metadata().clone();
        let served = ArrowSchema::new_with_metadata(fields.map_err(blame)?, metadata);
        Ok(Self { served: Arc::new(served), stored, readable, blob_v2: false })
    }
}
