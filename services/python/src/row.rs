//! Converts a single row to a Python dictionary, with the same values as pyarrow's `to_pylist`. For one row, this takes
//! less time than making a pyarrow table.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_pyarrow::ToPyArrow;
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyo3::{IntoPyObjectExt, intern};

use crate::rows::Rows;

/// Returns the first row as a dictionary, or None if there is none. pyarrow converts it if it has a value of an extension
/// type, such as a UUID.
pub fn first_row(py: Python<'_>, rows: &RecordBatch) -> PyResult<Py<PyAny>> {
    if rows.num_rows() == 0 {
        return Ok(py.None());
    }
    let fields = rows.schema_ref().flattened_fields();
    if fields.iter().any(|field| field.extension_type_name().is_some()) {
        let table = Rows::from(rows.slice(0, 1)).into_table(py)?;
        let converted = table.bind(py).call_method0(intern!(py, "to_pylist"))?;
        return Ok(converted.get_item(0)?.unbind());
    }
    let row = PyDict::new(py);
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        row.set_item(field.name(), value(py, column, 0)?)?;
    }
    row.into_py_any(py)
}

/// Returns a value of a column. Types that are not handled here are converted by pyarrow.
fn value(py: Python<'_>, column: &dyn Array, at: usize) -> PyResult<Py<PyAny>> {
    if column.is_null(at) {
        return Ok(py.None());
    }
    macro_rules! number {
        ($type:ty) => {
            column.as_primitive::<$type>().value(at).into_py_any(py)
        };
    }
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(at).into_py_any(py),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => {
            column.as_primitive::<Float16Type>().value(at).to_f64().into_py_any(py)
        }
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Utf8 => column.as_string::<i32>().value(at).into_py_any(py),
        DataType::LargeUtf8 => column.as_string::<i64>().value(at).into_py_any(py),
        DataType::Binary => PyBytes::new(py, column.as_binary::<i32>().value(at)).into_py_any(py),
        DataType::LargeBinary => {
            PyBytes::new(py, column.as_binary::<i64>().value(at)).into_py_any(py)
        }
        DataType::FixedSizeBinary(_) => {
            PyBytes::new(py, column.as_fixed_size_binary().value(at)).into_py_any(py)
        }
        DataType::List(_) => list(py, &column.as_list::<i32>().value(at)),
        DataType::LargeList(_) => list(py, &column.as_list::<i64>().value(at)),
        DataType::FixedSizeList(..) => list(py, &column.as_fixed_size_list().value(at)),
        DataType::Struct(fields) => {
            let row = PyDict::new(py);
            for (field, column) in fields.iter().zip(column.as_struct().columns()) {
                row.set_item(field.name(), value(py, column, at)?)?;
            }
            row.into_py_any(py)
        }
        _ => {
            let one = column.slice(at, 1).to_data().to_pyarrow(py)?;
            let converted = one.get_item(0)?.call_method0(intern!(py, "as_py"))?;
            Ok(converted.unbind())
        }
    }
}

fn list(py: Python<'_>, values: &dyn Array) -> PyResult<Py<PyAny>> {
    let values = (0..values.len()).map(|at| value(py, values, at));
    PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_py_any(py)
}
