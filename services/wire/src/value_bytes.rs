//! The size of values that are a part of an array. Arrow reports the size of an array's buffers, or of all items of
//! lists, of which a slice may have a small part. Pure.

use arrow_array::ArrayRef;
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// The bytes of a string up to which its view has them itself (Arrow columnar format, "Variable-size Binary View").
const INLINE_BYTES_MAX: usize = 12;

/// Returns the size in bytes of the values of `arrays`, which may be slices.
pub fn bytes_of_arrays(arrays: &[ArrayRef]) -> usize {
    let each = arrays.iter().map(|array| bytes_of_values(&array.to_data(), 0, array.len()));
    each.fold(0, usize::saturating_add)
}

/// Returns the size in bytes of a copy of `len` values from `start` on, without the offset that ends the last value.
/// Values of a dictionary count with their average size, each value at most once. Values of a type whose layout is not
/// known here count as much as the whole array.
pub fn bytes_of_values(data: &ArrayData, start: usize, len: usize) -> usize {
    let (end, children) = (start + len, data.child_data());
    // Buffers begin at the array's offset, and its children do not.
    let at = data.offset() + start;
    let small = || {
        let at = data.buffer::<i32>(0);
        (at[start] as usize, (at[end] - at[start]) as usize, len * size_of::<i32>())
    };
    let large = || {
        let at = data.buffer::<i64>(0);
        (at[start] as usize, (at[end] - at[start]) as usize, len * size_of::<i64>())
    };
    let text = |(_, bytes, offsets): (usize, usize, usize)| bytes + offsets;
    let items = |(start, len, offsets): (usize, usize, usize)| {
        bytes_of_values(&children[0], start, len) + offsets
    };
    let bytes = match data.data_type() {
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
        DataType::Struct(_) => children.iter().map(|child| bytes_of_values(child, at, len)).sum(),
        DataType::Utf8View | DataType::BinaryView => {
            // The first four bytes of a view are the string's length.
            let lengths = data.buffer::<u128>(0)[start..end].iter().map(|view| *view as u32);
            let outside = lengths.map(|len| len as usize).filter(|len| *len > INLINE_BYTES_MAX);
            len * size_of::<u128>() + outside.sum::<usize>()
        }
        DataType::Dictionary(key, _) => {
            let (values, keys) = (&children[0], key.primitive_width().unwrap_or(size_of::<u64>()));
            let (all, used) = (values.len(), len.min(values.len()));
            len * keys + (bytes_of_values(values, 0, all) * used).div_ceil(all.max(1))
        }
        other => match other.primitive_width() {
            Some(width) => len * width,
            None => return data.get_array_memory_size(),
        },
    };
    bytes + data.nulls().map_or(0, |_| len.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int8Type, Int32Type};
    use arrow_array::{
        Array, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Int64Array,
        LargeListArray, LargeStringArray, ListArray, NullArray, StringArray, StringViewArray,
        StructArray,
    };
    use arrow_select::take::take;

    use super::*;

    #[test]
    fn a_slice_has_the_bytes_of_its_own_values() {
        let texts = [Some("ab"), None, Some("more than twelve")];
        let lists = || [Some(vec![Some(1), None]), None, Some(vec![Some(2); 100])];
        let full = || [Some(vec![]), Some(vec![Some(1)]), Some(vec![Some(4); 3])];
        let pairs = [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(5), Some(6)])];
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let items = ListArray::from_iter_primitive::<Int32Type, _, _>(lists());
        let within: ArrayRef = Arc::new(items.clone());
        let within = StructArray::try_from(vec![("n", Arc::clone(&numbers)), ("l", within)]);
        let words: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
        let fixed = FixedSizeBinaryArray::try_from_iter([[0; 5], [1; 5], [2; 5]].into_iter());
        // The size of each value by itself, and of the last two together. Null bits of one to eight values take a byte.
        let columns: [(ArrayRef, [usize; 3], usize); 12] = [
            (Arc::clone(&numbers), [8; 3], 16),
            (Arc::new(NullArray::new(3)), [0; 3], 0),
            (Arc::new(BooleanArray::from(vec![true, false, true])), [1; 3], 1),
            (Arc::new(StringArray::from(texts.to_vec())), [4 + 2 + 1, 4 + 1, 4 + 16 + 1], 25),
            (Arc::new(LargeStringArray::from(vec!["", "a", "abc"])), [8, 9, 11], 20),
            // A string of at most twelve bytes is in its view.
            (Arc::new(StringViewArray::from(texts.to_vec())), [16 + 1, 16 + 1, 16 + 16 + 1], 49),
            (Arc::new(fixed.unwrap()), [5; 3], 10),
            // The items of a list have null bits of their own.
            (Arc::new(items), [4 + 8 + 1 + 1, 4 + 1, 4 + 400 + 13 + 1], 4 + 4 + 400 + 13 + 1),
            (
                Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(full())),
                [8, 8 + 4, 8 + 12],
                32,
            ),
            (
                Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs, 2)),
                [8 + 1 + 1; 3],
                16 + 1 + 1,
            ),
            (Arc::new(within.unwrap()), [8 + 14, 8 + 5, 8 + 418], 16 + 422),
            // The average value of the dictionary has one byte and an offset.
            (Arc::new(words), [1 + 5; 3], 2 + 10),
        ];
        for (column, expected, last_two) in columns {
            let kind = column.data_type().clone();
            let before = column.slice(0, 1);
            let longer = arrow_select::concat::concat(&[&before, &column]).unwrap().slice(1, 3);
            let order = arrow_array::UInt32Array::from(vec![2, 0, 1, 2]);
            let taken = take(&column, &order, None).unwrap().slice(1, 3);
            for array in [column, longer, taken] {
                let data = array.to_data();
                let sizes: [usize; 3] = std::array::from_fn(|row| bytes_of_values(&data, row, 1));
                assert_eq!(sizes, expected, "{kind}");
                assert_eq!(bytes_of_values(&data, 1, 2), last_two, "{kind}");
                assert_eq!(bytes_of_arrays(&[array.slice(1, 2)]), last_two, "slice of {kind}");
                assert_eq!(bytes_of_arrays(&[array.slice(3, 0)]), 0, "empty slice of {kind}");
            }
        }
    }
}
