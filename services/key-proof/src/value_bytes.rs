//! The size of values that are a part of an array. Arrow reports the size of an array's buffers, of which a slice may
//! be a small part.

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// Returns the size in bytes of a batch's values, without validity bits. Unlike
/// [`RecordBatch::get_array_memory_size`], it does not count rows of the buffers that a slice leaves out.
pub fn bytes_of_values(rows: &RecordBatch) -> usize {
    let columns = rows.columns().iter();
    columns
        .map(|column| bytes_of(&column.to_data(), 0, column.len()))
        .fold(0, usize::saturating_add)
}

/// Returns the size in bytes of `len` values from `start` on, without validity bits. Values of a type whose layout is
/// not known here count as much as the whole array.
pub fn bytes_of(data: &ArrayData, start: usize, len: usize) -> usize {
    let end = start + len;
    // Buffers begin at the array's offset, and its children do not.
    let small = || {
        let at = data.buffer::<i32>(0);
        (at[start] as usize, (at[end] - at[start]) as usize, len * size_of::<i32>())
    };
    let large = || {
        let at = data.buffer::<i64>(0);
        (at[start] as usize, (at[end] - at[start]) as usize, len * size_of::<i64>())
    };
    let at = data.offset() + start;
    let text = |(_, bytes, offsets): (usize, usize, usize)| bytes + offsets;
    let items = |(start, len, offsets): (usize, usize, usize)| {
        bytes_of(&data.child_data()[0], start, len) + offsets
    };
    match data.data_type() {
        DataType::Null => 0,
        DataType::Boolean => len.div_ceil(8),
        DataType::Utf8 | DataType::Binary => text(small()),
        DataType::LargeUtf8 | DataType::LargeBinary => text(large()),
        DataType::List(_) | DataType::Map(..) => items(small()),
        DataType::LargeList(_) => items(large()),
        DataType::FixedSizeBinary(width) => len * *width as usize,
        DataType::FixedSizeList(_, width) => {
            items((at * *width as usize, len * *width as usize, 0))
        }
        DataType::Struct(_) => data.child_data().iter().map(|child| bytes_of(child, at, len)).sum(),
        other => match other.primitive_width() {
            Some(width) => len * width,
            None => data.get_array_memory_size(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, LargeListArray, LargeStringArray,
        ListArray, StringArray, StructArray, UInt32Array,
    };
    use arrow_schema::Field;
    use arrow_select::take::take;

    use super::*;

    #[test]
    fn the_size_of_values_is_known_before_they_are_copied() {
        let lists = [Some(vec![Some(1), None]), None, Some(vec![Some(2); 100])];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(5), Some(6)])],
            2,
        );
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let field = Arc::new(Field::new("n", DataType::Int64, false));
        let structs = StructArray::from(vec![(field, Arc::clone(&numbers))]);
        let large = LargeListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![]),
            Some(vec![Some(1)]),
            Some(vec![Some(4); 3]),
        ]);
        let columns: [(ArrayRef, [usize; 3]); 8] = [
            (numbers, [8; 3]),
            (Arc::new(StringArray::from(vec![Some("ab"), None, Some("abcde")])), [6, 4, 9]),
            (Arc::new(LargeStringArray::from(vec!["", "a", "abc"])), [8, 9, 11]),
            (Arc::new(BooleanArray::from(vec![true, false, true])), [1; 3]),
            (Arc::new(lists), [12, 4, 404]),
            (Arc::new(large), [8, 12, 20]),
            (Arc::new(pairs), [8; 3]),
            (Arc::new(structs), [8; 3]),
        ];
        for (column, expected) in columns {
            // A slice has the same sizes.
            let order = UInt32Array::from(vec![2, 0, 1, 2]);
            let sliced = take(&column, &order, None).unwrap().slice(1, 3);
            for array in [column, sliced] {
                let data = array.to_data();
                let sizes: [usize; 3] = std::array::from_fn(|row| bytes_of(&data, row, 1));
                assert_eq!(sizes, expected, "{:?}", array.data_type());
                // So has a slice of the data, which has an offset of its own.
                let tail = data.slice(1, 2);
                let sizes: [usize; 2] = std::array::from_fn(|row| bytes_of(&tail, row, 1));
                assert_eq!(sizes, expected[1..], "slice of {:?}", array.data_type());
                let batch = RecordBatch::try_from_iter([("column", array)]).unwrap();
                let whole = match data.data_type() {
                    DataType::Boolean => 1,
                    _ => expected[1] + expected[2],
                };
                assert_eq!(bytes_of_values(&batch.slice(1, 2)), whole);
            }
        }
    }
}
