//! Table: reads rows from the table, if their I/O node does not answer or should not be asked. This is slow but
//! correct. `slices.rs` and `slice_fetch.rs` decide that, and count these rows. `slice_fetch.rs` also uses the table
//! if no columns are requested.

use address::RowAddr;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::SchemaRef;

use crate::error::Result;
use crate::tables::OpenTable;

/// Returns the rows at `addrs` with wire types, as I/O nodes would send them, and the places of missing rows.
pub async fn table_rows(
    open: &OpenTable,
    addrs: &[RowAddr],
    columns: &[String],
) -> Result<(RecordBatch, Vec<u32>)> {
    let missing = open.stored.missing(addrs).await?;
    let mut gone = missing.iter().peekable();
    let is_live = |(at, addr): (usize, &RowAddr)| match gone.next_if_eq(&&at) {
        Some(_) => None,
        None => Some(*addr),
    };
    let live: Vec<RowAddr> = addrs.iter().enumerate().filter_map(is_live).collect();
    let rows = open.stored.take(&live, columns).await?;
    let rows = to_wire(rows, &open.wire_schema_of(columns)?)?;
    Ok((rows, missing.into_iter().map(|at| at as u32).collect()))
}

/// Converts rows to wire types, which means decoding dictionaries and views.
fn to_wire(rows: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let strict = CastOptions { safe: false, ..Default::default() };
    let columns = rows.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match column.data_type() == field.data_type() {
            true => Ok(column.clone()),
            false => cast_with_options(column, field.data_type(), &strict),
        }
    });
    let columns: Vec<ArrayRef> = columns.collect::<std::result::Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
