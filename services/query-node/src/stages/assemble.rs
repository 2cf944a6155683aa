//! Assemble: gives rows the table's types, their addresses, and their distances or scores. Pure.

use std::sync::Arc;

use arrow_array::{Float32Array, RecordBatch, RecordBatchOptions, UInt64Array};

use crate::error::Result;
use crate::tables::{Measure, Projection};

/// Converts rows from wire types to the table's types. Appends a column with their addresses and, unless `measure` is
/// [`Measure::Nothing`], a column with their distances or scores.
pub fn finish(
    rows: &RecordBatch,
    projection: &Projection,
    measure: Measure,
    addrs: Vec<u64>,
    numbers: Vec<f32>,
) -> Result<RecordBatch> {
    let form = projection.answer(measure)?;
    let mut columns = Vec::with_capacity(form.schema.fields().len());
    for (column, field) in rows.columns().iter().zip(projection.schema.fields()) {
        columns.push(pack::restore(column, field)?);
    }
    columns.push(Arc::new(UInt64Array::from(addrs)));
    if measure != Measure::Nothing {
        columns.push(Arc::new(Float32Array::from(numbers)));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(&form.schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, UInt64Type};
    use arrow_array::{ArrayRef, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn dictionaries_are_restored_and_addresses_and_distances_are_last() {
        let dictionary = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
        let wire = Arc::new(Schema::new(vec![Field::new("d", DataType::Utf8, true)]));
        let table = Arc::new(Schema::new(vec![Field::new("d", dictionary, true)]));
        let column: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
        let rows = RecordBatch::try_new(wire, vec![column]).unwrap();
        let projection = Projection::new(vec!["d".into()], table);
        let (addrs, numbers) = (vec![7, 8, 9], vec![0.5, 1.0, 2.0]);
        let rows = finish(&rows, &projection, Measure::Distance, addrs, numbers).unwrap();
        let restored = rows.column(0).as_dictionary::<arrow_array::types::Int8Type>();
        assert_eq!(restored.values().len(), 2);
        let names: Vec<_> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, ["d", "_rowaddr", "_distance"]);
        assert_eq!(rows.column(1).as_primitive::<UInt64Type>().values(), &[7, 8, 9]);
        assert_eq!(rows.column(2).as_primitive::<Float32Type>().values(), &[0.5, 1.0, 2.0]);
    }
}
