//! Converts arguments to requests.

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_cast::cast;
use arrow_schema::DataType;
use client::query::{By, NamedExpression, OrderBy, SearchRequest, Text, Vector, Vectors};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use wire::fetch::Priority;

use crate::errors::bad_argument;
use crate::rows::array_from_python;

/// The table that a request names, with the settings that all requests for rows have. The fields are the attributes of
/// `Target` in `bireme._target`.
#[derive(FromPyObject)]
pub struct Target {
    /// The table's name.
    pub name: String,
    /// The table's version; 0 for the one that the node serves: the latest, or the pinned one.
    pub version: u64,
    /// The branch that the version belongs to; empty for the main one.
    pub branch: String,
    /// Whether the request has the priority of background work.
    pub background: bool,
    /// The time limit in seconds; `None` for no limit.
    pub timeout: Option<f64>,
}

impl Target {
    /// Returns the number that requests carry as their priority.
    pub fn priority(&self) -> i32 {
        priority(self.background)
    }
}

fn priority(background: bool) -> i32 {
    match background {
        true => Priority::Batch.into(),
        false => Priority::Unspecified.into(),
    }
}

/// The attributes of a search that `bireme._search` has built.
#[derive(FromPyObject)]
pub struct Search<'py> {
    #[pyo3(attribute("_target"))]
    pub target: Target,
    #[pyo3(attribute("_vector"))]
    vector: Option<Bound<'py, PyAny>>,
    #[pyo3(attribute("_like"))]
    like: Option<String>,
    #[pyo3(attribute("_key_column"))]
    key_column: Option<String>,
    #[pyo3(attribute("_words"))]
    words: Option<String>,
    #[pyo3(attribute("_text_column"))]
    text_column: Option<String>,
    #[pyo3(attribute("_text_weight"))]
    text_weight: Option<f32>,
    #[pyo3(attribute("_filter"))]
    filter: Option<String>,
    #[pyo3(attribute("_limit"))]
    limit: u32,
    #[pyo3(attribute("_columns"))]
    columns: Vec<String>,
    /// Names of columns, each with the SQL expression that computes it.
    #[pyo3(attribute("_expressions"))]
    expressions: Vec<(String, String)>,
    #[pyo3(attribute("_vector_column"))]
    vector_column: Option<String>,
    #[pyo3(attribute("_nprobes"))]
    nprobes: Option<u32>,
    #[pyo3(attribute("_nprobes_max"))]
    nprobes_max: Option<u32>,
    #[pyo3(attribute("_refine_factor"))]
    refine_factor: Option<u32>,
    #[pyo3(attribute("_recall"))]
    recall: Option<f32>,
    #[pyo3(attribute("_offset"))]
    offset: u32,
    /// Columns, each with whether its largest values and its rows without a value come first.
    #[pyo3(attribute("_order"))]
    order: Vec<(String, bool, bool)>,
}

impl Search<'_> {
    /// Returns the request.
    pub fn request(self, explain: bool) -> PyResult<SearchRequest> {
        let near = match (self.vector, self.like) {
            (Some(vector), _) => Some(query_vectors(&vector)?),
            (None, like) => like.map(By::Like),
        };
        let column = self.text_column.unwrap_or_default();
        let text = self.words.map(|words| Text { words, column, query: None });
        let (by, fused_with) = match near {
            Some(near) => (Some(near), text),
            None => (text.map(By::Text), None),
        };
        Ok(SearchRequest {
            priority: self.target.priority(),
            table: self.target.name,
            version: self.target.version,
            branch: self.target.branch,
            by,
            filter: self.filter.unwrap_or_default(),
            k: self.limit,
            columns: self.columns,
            vector_column: self.vector_column.unwrap_or_default(),
            nprobes: self.nprobes.unwrap_or(0),
            nprobes_max: self.nprobes_max.unwrap_or(0),
            refine_factor: self.refine_factor,
            explain,
            key_column: self.key_column.unwrap_or_default(),
            fused_with,
            text_weight: self.text_weight,
            recall: self.recall,
            offset: self.offset,
            order_by: self.order.into_iter().map(order_by).collect(),
            expressions: self.expressions.into_iter().map(expression).collect(),
            ..Default::default()
        })
    }
}

fn expression((name, sql): (String, String)) -> NamedExpression {
    NamedExpression { name, sql }
}

fn order_by((column, descending, nulls_first): (String, bool, bool)) -> OrderBy {
    OrderBy { column, descending, nulls_first }
}

/// Returns the query vector, or several: an array of two dimensions, or a sequence of vectors. An iterator would lose
/// its first vector here; `bireme._search` makes lists of iterators.
fn query_vectors(given: &Bound<'_, PyAny>) -> PyResult<By> {
    if let Some(vectors) = rows_of_matrix(given)? {
        return Ok(By::Vectors(Vectors { vectors }));
    }
    let vector = |it: &Bound<'_, PyAny>| Ok(Vector { values: vector_values(it)? });
    // The element at index 0 may not be the first one: pandas looks its labels up. Numbers have no length.
    let first = given.try_iter().ok().and_then(|mut elements| elements.next());
    let is_several = first.is_some_and(|first| first.is_ok_and(|first| first.len().is_ok()));
    match is_several {
        false => Ok(By::Vector(vector(given)?)),
        true => {
            let as_py = intern!(given.py(), "as_py");
            let element = |it: PyResult<Bound<'_, PyAny>>| {
                let it = it?;
                // pyarrow's arrays have scalars.
                match it.hasattr(as_py)? {
                    true => vector(&it.call_method0(as_py)?),
                    false => vector(&it),
                }
            };
            let vectors = given.try_iter()?.map(element).collect::<PyResult<_>>()?;
            Ok(By::Vectors(Vectors { vectors }))
        }
    }
}

/// Returns the rows of a buffer of floats with two dimensions, such as a NumPy array; `None` for anything else.
fn rows_of_matrix(given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Vector>>> {
    let py = given.py();
    let (values, shape) = if let Ok(buffer) = PyBuffer::<f32>::get(given) {
        match buffer.dimensions() {
            2 => (buffer.to_vec(py)?, buffer.shape().to_vec()),
            _ => return Ok(None),
        }
    } else if let Ok(buffer) = PyBuffer::<f64>::get(given) {
        match buffer.dimensions() {
            2 => {
                let values = buffer.to_vec(py)?.into_iter().map(|value| value as f32);
                (values.collect(), buffer.shape().to_vec())
            }
            _ => return Ok(None),
        }
    } else {
        return Ok(None);
    };
    let rows = values.chunks(shape[1].max(1)).map(|row| Vector { values: row.to_vec() });
    Ok(Some(rows.collect()))
}

/// Returns the elements of a vector: a NumPy or pyarrow array, another buffer of floats, or a sequence of numbers.
fn vector_values(vector: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let py = vector.py();
    let one_dimension = |dimensions: usize| match dimensions {
        1 => Ok(()),
        _ => Err(bad_argument(
            py,
            format!("a query vector has {dimensions} dimensions; it must have one"),
        )),
    };
    if let Ok(buffer) = PyBuffer::<f32>::get(vector) {
        one_dimension(buffer.dimensions())?;
        return buffer.to_vec(py);
    }
    if let Ok(buffer) = PyBuffer::<f64>::get(vector) {
        one_dimension(buffer.dimensions())?;
        return Ok(buffer.to_vec(py)?.into_iter().map(|value| value as f32).collect());
    }
    if vector.hasattr(intern!(py, "__arrow_c_array__"))? {
        let array = array_from_python(vector)?;
        let floats = cast(&array, &DataType::Float32).ok().filter(|it| it.null_count() == 0);
        let floats = floats.ok_or_else(|| {
            let message = format!(
                "an array of type {} with {} nulls is no query vector; give floats",
                array.data_type(),
                array.null_count()
            );
            bad_argument(py, message)
        })?;
        return Ok(floats.as_primitive::<Float32Type>().values().to_vec());
    }
    vector.extract().map_err(|error: PyErr| match error.is_instance_of::<PyTypeError>(py) {
        true => {
            let given =
                vector.get_type().name().map_or(String::new(), |name| format!(" (not {name})"));
            let message = format!(
                "a query vector is a sequence or an array of numbers{given}: {}",
                error.value(py)
            );
            bad_argument(py, message)
        }
        false => error,
    })
}
