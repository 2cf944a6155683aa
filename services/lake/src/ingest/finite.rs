//! Finds numbers that became infinite while text was read: `1e39` is too large for `float32`, and Arrow's readers
//! silently turn it into an infinity. Also finds numbers in vectors that are not finite, whatever the file's format.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};

/// The position of a number that isn't finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotFinite {
    /// The column's position.
    pub column: usize,
    /// The row in the batch.
    pub row: usize,
    /// The position in the vector, if the column is one of vectors.
    pub element: Option<usize>,
}

/// Finds the first infinity in the first column that has one, nested values included. In vectors it also finds NaN,
/// which can't be a coordinate.
pub(crate) fn find(batch: &RecordBatch) -> Option<NotFinite> {
    batch.columns().iter().enumerate().find_map(|(column, array)| match array.data_type() {
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).ok().filter(|size| *size > 0)?;
            let at = first_bad_row(array.as_fixed_size_list().values(), true)?;
            Some(NotFinite { column, row: at / size, element: Some(at % size) })
        }
        _ => Some(NotFinite { column, row: first_bad_row(array, false)?, element: None }),
    })
}

/// Finds the first number that isn't finite in a vector that isn't null: some tools write arbitrary values where a
/// vector is null. Returns its row and its position in the vector.
pub(crate) fn find_in_vectors(array: &ArrayRef) -> Option<(usize, usize)> {
    let DataType::FixedSizeList(..) = array.data_type() else { return None };
    let vectors = array.as_fixed_size_list();
    let values = vectors.values();
    let floats: ArrayRef = match values.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Arc::clone(values),
        _ => return None,
    };
    // In the usual case one pass over all values finds nothing.
    first_bad_row(&floats, true)?;
    (0..vectors.len()).filter(|&row| vectors.is_valid(row)).find_map(|row| {
        let vector = vectors.value(row);
        let bad = |&at: &usize| {
            vector.is_valid(at) && first_bad_row(&vector.slice(at, 1), true).is_some()
        };
        Some((row, (0..vector.len()).find(bad)?))
    })
}

/// Returns the rows of a column of plain floats in which the number is infinite.
pub(crate) fn infinite_rows(array: &ArrayRef) -> Vec<usize> {
    match array.data_type() {
        DataType::Float16 => rows_of::<Float16Type>(array, |x| x.is_infinite()),
        DataType::Float32 => rows_of::<Float32Type>(array, |x| x.is_infinite()),
        DataType::Float64 => rows_of::<Float64Type>(array, |x| x.is_infinite()),
        _ => Vec::new(),
    }
}

fn rows_of<T: ArrowPrimitiveType>(array: &ArrayRef, bad: fn(T::Native) -> bool) -> Vec<usize> {
    let values = array.as_primitive::<T>().values();
    values.iter().enumerate().filter(|(_, value)| bad(**value)).map(|(at, _)| at).collect()
}

/// The first row of `array` with an infinity, or in vectors with any number that isn't finite.
fn first_bad_row(array: &ArrayRef, in_vector: bool) -> Option<usize> {
    match array.data_type() {
        DataType::Float16 if in_vector => first::<Float16Type>(array, |x| !x.is_finite()),
        DataType::Float32 if in_vector => first::<Float32Type>(array, |x| !x.is_finite()),
        DataType::Float64 if in_vector => first::<Float64Type>(array, |x| !x.is_finite()),
        DataType::Float16 => first::<Float16Type>(array, |x| x.is_infinite()),
        DataType::Float32 => first::<Float32Type>(array, |x| x.is_infinite()),
        DataType::Float64 => first::<Float64Type>(array, |x| x.is_infinite()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let at = first_bad_row(list.values(), in_vector)?;
            list.offsets().partition_point(|start| *start as usize <= at).checked_sub(1)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let at = first_bad_row(list.values(), in_vector)?;
            list.offsets().partition_point(|start| *start as usize <= at).checked_sub(1)
        }
        DataType::FixedSizeList(_, size) => {
            let at = first_bad_row(array.as_fixed_size_list().values(), true)?;
            at.checked_div(*size as usize)
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().filter_map(|it| first_bad_row(it, in_vector)).min()
        }
        _ => None,
    }
}

fn first<T: ArrowPrimitiveType>(array: &ArrayRef, bad: fn(T::Native) -> bool) -> Option<usize> {
    array.as_primitive::<T>().values().iter().position(|value| bad(*value))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        FixedSizeListArray, Float32Array, Float64Array, ListArray, StringArray, StructArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    fn found(array: ArrayRef) -> Option<(usize, Option<usize>)> {
        let first: ArrayRef = Arc::new(StringArray::from_iter_values(vec!["x"; array.len()]));
        let batch = RecordBatch::try_from_iter([("s", first), ("a", array)]).unwrap();
        let found = find(&batch)?;
        assert_eq!(found.column, 1);
        Some((found.row, found.element))
    }

    fn item() -> Arc<Field> {
        Arc::new(Field::new("item", DataType::Float32, true))
    }

    fn floats(values: &[f32]) -> ArrayRef {
        Arc::new(Float32Array::from(values.to_vec()))
    }

    #[test]
    fn infinities_are_found_and_nans_in_vectors() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(found(floats(&[0.0, nan, 1.0])), None);
        assert_eq!(found(floats(&[0.0, nan, -inf])), Some((2, None)));
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::INFINITY]));
        assert_eq!(infinite_rows(&doubles), [1]);
        assert_eq!(found(doubles), Some((1, None)));
        let vectors = |values: &[f32]| -> ArrayRef {
            Arc::new(FixedSizeListArray::new(item(), 2, floats(values), None))
        };
        assert_eq!(found(vectors(&[0.0, 1.0, 2.0, 3.0])), None);
        assert_eq!(found(vectors(&[0.0, 1.0, 2.0, nan])), Some((1, Some(1))));
        assert_eq!(found(vectors(&[0.0, 1.0, inf, nan])), Some((1, Some(0))));
        let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
        let lists: ArrayRef =
            Arc::new(ListArray::new(item(), offsets, floats(&[0.0, 1.0, inf]), None));
        assert_eq!(found(lists.clone()), Some((2, None)));
        let field = Arc::new(Field::new("l", lists.data_type().clone(), true));
        assert_eq!(found(Arc::new(StructArray::from(vec![(field, lists)]))), Some((2, None)));
    }
}
