//! Converts rows between Arrow in Rust and pyarrow. Buffers are shared, not copied.

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::ArrowArrayStreamReader;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, make_array};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrow, IntoPyArrow, ToPyArrow};
use arrow_schema::{DataType, SchemaRef};
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors::bad_argument;

/// Rows of one schema.
#[derive(Debug)]
pub struct Rows {
    /// The schema of all batches.
    pub schema: SchemaRef,
    /// The batches.
    pub batches: Vec<RecordBatch>,
}

impl From<RecordBatch> for Rows {
    fn from(batch: RecordBatch) -> Self {
        Self { schema: batch.schema(), batches: vec![batch] }
    }
}

impl Rows {
    /// Returns the rows as a `pyarrow.Table`.
    pub fn into_table(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self { schema, batches } = self;
        let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(reader);
        let reader = reader.into_pyarrow(py)?;
        Ok(reader.call_method0(intern!(py, "read_all"))?.unbind())
    }
}

/// Returns an array as a `pyarrow.Array`.
pub fn array_to_python(py: Python<'_>, array: &ArrayData) -> PyResult<Py<PyAny>> {
    Ok(array.to_pyarrow(py)?.unbind())
}

/// Returns the array of any object that implements Arrow's C data interface.
pub fn array_from_python(array: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    Ok(make_array(ArrayData::from_pyarrow_bound(array)?))
}

/// Returns the rows of any object that implements Arrow's C stream interface.
pub fn rows_from_python(stream: &Bound<'_, PyAny>) -> PyResult<Rows> {
    let reader = ArrowArrayStreamReader::from_pyarrow_bound(stream)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<_, _>>();
    let batches = batches.map_err(|error| {
        bad_argument(stream.py(), format!("the rows of the argument can't be read: {error}"))
    })?;
    Ok(Rows { schema, batches })
}

/// Returns the row addresses in an array of integers.
pub fn addresses_from_python(array: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let py = array.py();
    let array = array_from_python(array)?;
    if !array.data_type().is_integer() {
        let message = format!(
            "row addresses of type {} can't be taken; give integers, such as the column `_rowaddr`",
            array.data_type()
        );
        return Err(bad_argument(py, message));
    }
    let addresses = cast(&array, &DataType::UInt64);
    let addresses = addresses.map_err(|error| bad_argument(py, error.to_string()))?;
    // A negative number becomes null in the cast.
    if addresses.null_count() > 0 {
        let count = addresses.null_count();
        let message = format!("{count} of the row addresses are null or negative; leave them out");
        return Err(bad_argument(py, message));
    }
    Ok(addresses.as_primitive::<UInt64Type>().values().to_vec())
}
