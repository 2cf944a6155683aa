//! Joins the rows of several slices into one batch in the request's order. Pure.

use std::sync::Arc;

use address::without;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::interleave::interleave_record_batch;

use crate::error::Result;

/// The rows fetched for one slice of a request, from an I/O node or the table.
pub struct SliceRows {
    /// Positions of the slice's rows in the request.
    pub places: Vec<u32>,
    /// The rows that were found, in the order of `places`.
    pub rows: RecordBatch,
    /// Positions in `places` of the rows that are missing, ascending.
    pub missing: Vec<u32>,
}

/// Joins `slices` into one batch of the rows at the places `0..rows`. Also returns the places of missing rows, which
/// are also those that no slice has.
pub fn join(
    slices: &[SliceRows],
    rows: usize,
    wire_schema: &SchemaRef,
) -> Result<(RecordBatch, Vec<u32>)> {
    if let [SliceRows { places, missing, rows: batch }] = slices
        && missing.is_empty()
        && places.len() == rows
    {
        return Ok((with_schema(batch, wire_schema)?, Vec::new()));
    }
    // For each place, the index of its slice and of its row in that slice; `None` if the row is missing.
    let mut sources = vec![None; rows];
    for (at, slice) in slices.iter().enumerate() {
        let mut missing = slice.missing.iter().peekable();
        let mut row = 0;
        for (position, &place) in (0u32..).zip(&slice.places) {
            if missing.next_if_eq(&&position).is_none() {
                sources[place as usize] = Some((at, row));
                row += 1;
            }
        }
    }
    let batches: Vec<RecordBatch> =
        slices.iter().map(|slice| with_schema(&slice.rows, wire_schema)).collect::<Result<_>>()?;
    let present: Vec<(usize, usize)> = sources.iter().copied().flatten().collect();
    let gone = (0u32..).zip(&sources).filter(|(_, source)| source.is_none());
    let missing = gone.map(|(place, _)| place).collect();
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    let batch = match (present.is_empty(), wire_schema.fields().is_empty()) {
        (true, _) => RecordBatch::new_empty(Arc::clone(wire_schema)),
        (false, true) => with_columns(wire_schema, Vec::new(), present.len())?,
        (false, false) => interleave_record_batch(&batches, &present)?,
    };
    Ok((batch, missing))
}

/// Returns the places of the rows that were found, out of `rows` requested ones. `missing` has the places of the other
/// rows, ascending.
pub fn present(rows: usize, missing: &[u32]) -> impl Iterator<Item = usize> {
    without(0..rows as u32, missing).map(|at| at as usize)
}

/// Replaces the schema of `batch` by `schema`. The types must be equal, but the metadata in an I/O node's reply may
/// differ.
fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    with_columns(schema, batch.columns().to_vec(), batch.num_rows())
}

fn with_columns(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use arrow_array::Int32Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", DataType::Int32, false)]))
    }

    fn slice(places: &[u32], values: &[i32], missing: &[u32]) -> SliceRows {
        let column: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        let rows = RecordBatch::try_new(schema(), vec![column]).unwrap();
        SliceRows { places: places.to_vec(), rows, missing: missing.to_vec() }
    }

    fn values(batch: &RecordBatch) -> Vec<i32> {
        batch.column(0).as_primitive::<Int32Type>().values().to_vec()
    }

    #[test]
    fn rows_of_several_nodes_are_in_the_requests_order() {
        let slices = [slice(&[0, 2, 5], &[10, 15], &[1]), slice(&[1, 3, 4], &[11, 13, 14], &[])];
        let (batch, missing) = join(&slices, 6, &schema()).unwrap();
        assert_eq!((values(&batch), missing), (vec![10, 11, 13, 14, 15], vec![2]));
    }

    #[test]
    fn present_rows_are_those_that_are_not_missing() {
        let found = |missing: &[u32]| present(4, missing).collect::<Vec<_>>();
        assert_eq!(found(&[]), [0, 1, 2, 3]);
        assert_eq!(found(&[0, 2]), [1, 3]);
        assert_eq!(found(&[1, 2, 3]), [0]);
        assert!(found(&[0, 1, 2, 3]).is_empty());
    }

    #[test]
    fn if_all_rows_are_missing_the_batch_is_empty() {
        let (batch, missing) = join(&[slice(&[0, 1], &[], &[0, 1])], 2, &schema()).unwrap();
        assert_eq!((batch.num_rows(), missing), (0, vec![0, 1]));
    }

    #[test]
    fn rows_that_no_slice_has_are_missing() {
        let (batch, missing) = join(&[slice(&[3, 1], &[13, 11], &[])], 4, &schema()).unwrap();
        assert_eq!((values(&batch), missing), (vec![11, 13], vec![0, 2]));
        let (batch, missing) = join(&[], 2, &schema()).unwrap();
        assert_eq!((batch.num_rows(), missing), (0, vec![0, 1]));
    }
}
