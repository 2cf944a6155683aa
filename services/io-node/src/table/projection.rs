//! Projections: the columns that a stream's batches request, divided into one part per pack.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use pack::wire_schema;
use tables::{FILE_BYTES_KEY, fixed_bytes};

use super::{OpenTable, Pack};
use crate::audit_line::AuditLine;
use crate::error::NodeError;

/// Requested columns of one version of a table.
pub struct Projection {
    pub table: Arc<OpenTable>,
    /// For each pack that is read, the columns that are read from it.
    pub parts: Vec<PackProjection>,
    /// The columns as they are sent, in the requested order.
    pub schema: SchemaRef,
    /// The projection's line in the audit log, if there is a log. It counts the rows that are sent, and is written when
    /// the projection is closed and its last batch is answered, or when its stream ends.
    pub audit: Option<AuditLine>,
}

/// The columns that a projection reads from one pack.
pub struct PackProjection {
    /// The pack's number in the table.
    pub pack: usize,
    /// The columns, as indexes in the pack's layout.
    pub columns: Vec<usize>,
    /// For each of `columns`, its index in the reply.
    pub outputs: Vec<usize>,
    /// Bytes of a row in columns of fixed width.
    pub fixed_bytes: u64,
    /// Whether any of `columns` has variable width.
    pub is_variable: bool,
}

impl Projection {
    /// Finds the packs that hold `columns`.
    ///
    /// # Errors
    /// A column does not exist, or is requested twice.
    pub fn new(table: Arc<OpenTable>, columns: &[String]) -> Result<Self, NodeError> {
        let source = table.table().schema();
        let mut parts: Vec<PackProjection> = Vec::new();
        let mut fields = Vec::with_capacity(columns.len());
        for (output, column) in columns.iter().enumerate() {
            if columns[..output].contains(column) {
                return Err(NodeError::ColumnTwice { column: column.clone() });
            }
            let field = source.field(table.table().column(column)?).clone();
            // Always found, because each column is in a pack.
            let Some((pack, place)) = find(&table, column) else { continue };
            let width = fixed_bytes(field.data_type());
            fields.push(field);
            match parts.iter_mut().find(|part| part.pack == pack) {
                Some(part) => {
                    part.columns.push(place);
                    part.outputs.push(output);
                    part.fixed_bytes += width.unwrap_or(0);
                    part.is_variable |= width.is_none();
                }
                None => parts.push(PackProjection {
                    pack,
                    columns: vec![place],
                    outputs: vec![output],
                    fixed_bytes: width.unwrap_or(0),
                    is_variable: width.is_none(),
                }),
            }
        }
        let mut schema = wire_schema(&Schema::new(fields));
        if let Some(file) = table.file() {
            schema.metadata.insert(FILE_BYTES_KEY.to_owned(), file.bytes().to_string());
        }
        let schema = Arc::new(schema);
        Ok(Self { table, parts, schema, audit: None })
    }

    /// Returns the pack that `part` reads.
    pub fn pack(&self, part: &PackProjection) -> &Pack {
        &self.table.packs()[part.pack]
    }
}

/// Returns the number of the pack that holds `column`, and the column's index in that pack's layout.
fn find(table: &OpenTable, column: &str) -> Option<(usize, usize)> {
    table.packs().iter().enumerate().find_map(|(number, pack)| {
        let place = pack.columns.iter().position(|c| c == column)?;
        Some((number, place))
    })
}
