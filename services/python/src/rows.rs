//! Converts rows between Arrow in Rust and pyarrow. Buffers are shared; only those that are not aligned are copied.

use arrow_array::cast::AsArray;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrow, ToPyArrow};
use arrow_schema::{DataType, Schema, SchemaRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

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
        static RECORD_BATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static TABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let schema = python_schema(py, &self.schema)?;
        let import = RECORD_BATCH.import(py, "pyarrow", "RecordBatch")?;
        let batches = PyList::empty(py);
        for batch in self.batches {
            // pyarrow takes ownership of the memory that this struct points to, so its drop here frees nothing.
            let mut array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
            let array = (&raw mut array as usize, &schema);
            batches.append(import.call_method1(intern!(py, "_import_from_c"), array)?)?;
        }
        let table = TABLE.import(py, "pyarrow", "Table")?;
        let table = table.call_method1(intern!(py, "from_batches"), (batches, schema))?;
        Ok(table.unbind())
    }
}

/// The schemas of the last answers. Converting a schema takes longer than converting the rows of a small answer.
static SCHEMAS: Mutex<Vec<(SchemaRef, Py<PyAny>)>> = Mutex::new(Vec::new());

/// The maximum number of schemas that are kept. They are compared one after the other.
const SCHEMAS_MAX: usize = 16;

/// Returns a schema as a `pyarrow.Schema`.
pub fn python_schema<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyAny>> {
    let lock = || SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, converted)) = lock().iter().find(|(known, _)| known == schema) {
        return Ok(converted.bind(py).clone());
    }
    // The lock is not held while Python code runs, because that code may release Python's lock: another thread could
    // take that one and wait for this one forever.
    let converted = schema.as_ref().to_pyarrow(py)?;
    let mut schemas = lock();
    let oldest = (schemas.len() >= SCHEMAS_MAX).then(|| schemas.remove(0));
    schemas.push((Arc::clone(schema), converted.clone().unbind()));
    drop((schemas, oldest));
    Ok(converted)
}

/// Returns an array as a `pyarrow.Array`.
pub fn array_to_python(py: Python<'_>, array: &ArrayData) -> PyResult<Py<PyAny>> {
    Ok(array.to_pyarrow(py)?.unbind())
}

/// Returns the array of any object that implements Arrow's C data interface. Buffers that are not aligned, as those of
/// NumPy and Arrow Flight may be, are copied, because `make_array` panics over them.
pub fn array_from_python(array: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let mut array = ArrayData::from_pyarrow_bound(array)?;
    array.align_buffers();
    Ok(make_array(array))
}

/// Returns the rows of a `pyarrow.Table`. Streams become tables in `bireme._arguments`: a stream that is read here,
/// while Python's lock is held, never ends if pyarrow's threads need the lock to open its files. Buffers that are not
/// aligned are copied.
pub fn rows_from_python(table: &Bound<'_, PyAny>) -> PyResult<Rows> {
    let py = table.py();
    let unreadable = |error: PyErr| {
        let error = error.value(py);
        bad_argument(py, format!("the rows of the argument can't be read: {error}"))
    };
    let schema = table.getattr(intern!(py, "schema"))?;
    let schema = Schema::from_pyarrow_bound(&schema).map_err(unreadable)?;
    let batches = table.call_method0(intern!(py, "to_batches"))?;
    let batches = Vec::<RecordBatch>::from_pyarrow_bound(&batches).map_err(unreadable)?;
    Ok(Rows { schema: Arc::new(schema), batches })
}

/// Returns the addresses or offsets of rows in an array of integers.
pub fn row_numbers_from_python(array: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let py = array.py();
    let array = array_from_python(array)?;
    if !array.data_type().is_integer() {
        let message = format!(
            "rows can't be taken by numbers of type {}; give integers, such as the column `_rowaddr`",
            array.data_type()
        );
        return Err(bad_argument(py, message));
    }
    let addresses = cast(&array, &DataType::UInt64);
    let addresses = addresses.map_err(|error| bad_argument(py, error.to_string()))?;
    // A negative number becomes null in the cast.
    if addresses.null_count() > 0 {
        let count = addresses.null_count();
        let message =
            format!("{count} of the numbers of rows are null or negative; leave them out");
        return Err(bad_argument(py, message));
    }
    Ok(addresses.as_primitive::<UInt64Type>().values().to_vec())
}
