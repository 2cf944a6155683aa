//! The columns that a stream of batches asks for, as parts: one a pack.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use pack::wire_schema;

use super::opened::fixed_bytes;
use super::{OpenTable, Pack};
use crate::error::NodeError;

/// Columns of one version of a table.
pub struct Projection {
    /// The table.
    pub table: Arc<OpenTable>,
    /// What to read of each pack.
    pub parts: Vec<PackProjection>,
    /// The columns in the types in which they leave, in the order asked for.
    pub schema: SchemaRef,
}

/// What a projection takes from one pack.
pub struct PackProjection {
    /// The pack's number in the table.
    pub pack: usize,
    /// Columns, as places in the pack's layout.
    pub columns: Vec<usize>,
    /// The place of each of them in the reply.
    pub outputs: Vec<usize>,
    /// Bytes that a row has in those of fixed width.
    pub fixed_bytes: u64,
    /// Whether there are others.
    pub is_variable: bool,
}

impl Projection {
    /// Finds the packs that hold `columns`.
    ///
    /// # Errors
    /// A column that the table doesn't have, or that is asked for twice.
    pub fn new(table: Arc<OpenTable>, columns: &[String]) -> Result<Self, NodeError> {
        let source = table.table().schema();
        let mut parts: Vec<PackProjection> = Vec::new();
        let mut fields = Vec::with_capacity(columns.len());
        for (output, column) in columns.iter().enumerate() {
            if columns[..output].contains(column) {
                return Err(NodeError::ColumnTwice { column: column.clone() });
            }
            let field = source.field(table.table().column(column)?).clone();
            // Each column is in a pack.
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
        let schema = Arc::new(wire_schema(&Schema::new(fields)));
        Ok(Self { table, parts, schema })
    }

    /// The pack that `part` reads.
    pub fn pack(&self, part: &PackProjection) -> &Pack {
        &self.table.packs()[part.pack]
    }
}

/// The pack that holds `column`, and its place in the layout.
fn find(table: &OpenTable, column: &str) -> Option<(usize, usize)> {
    table.packs().iter().enumerate().find_map(|(number, pack)| {
        let place = pack.columns.iter().position(|c| c == column)?;
        Some((number, place))
    })
}
