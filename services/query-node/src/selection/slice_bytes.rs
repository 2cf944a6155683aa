//! The size of the values of a slice of a column. Pure.
//!
//! Arrow's own functions count the buffers of the whole column, or all items of lists, whatever the slice has of them.

use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// The bytes of a string up to which its view has them itself (Arrow columnar format, "Variable-size Binary View").
const INLINE_BYTES_MAX: usize = 12;

/// Returns the number of bytes of a copy of `data`, which may be a slice. Values of a dictionary count with their
/// average size, each row's at most once.
pub fn slice_bytes(data: &ArrayData) -> usize {
    let (len, children) = (data.len(), data.child_data());
    let bytes = match data.data_type() {
        DataType::Struct(_) | DataType::FixedSizeList(..) => children.iter().map(slice_bytes).sum(),
        DataType::List(_) | DataType::Map(..) => list_bytes::<i32>(data),
        DataType::LargeList(_) => list_bytes::<i64>(data),
        DataType::Utf8View | DataType::BinaryView => {
            // The first four bytes of a view are the string's length.
            let lengths = data.buffer::<u128>(0)[..len].iter().map(|view| *view as u32 as usize);
            let outside = lengths.filter(|bytes| *bytes > INLINE_BYTES_MAX).sum::<usize>();
            len * size_of::<u128>() + outside
        }
        DataType::Dictionary(key, _) => {
            let (values, used) = (&children[0], len.min(children[0].len()));
            let keys = len * key.primitive_width().unwrap_or(size_of::<u64>());
            keys + (slice_bytes(values) * used).div_ceil(values.len().max(1))
        }
        // The size includes the nulls.
        _ => return data.get_slice_memory_size().unwrap_or_else(|_| data.get_array_memory_size()),
    };
    bytes + data.nulls().map_or(0, |_| len.div_ceil(8))
}

/// Returns the bytes of the offsets and the items of lists.
fn list_bytes<Offset: ArrowNativeType>(data: &ArrayData) -> usize {
    let offsets = data.buffer::<Offset>(0);
    let Some(offsets) = offsets.get(..=data.len()) else { return 0 };
    let (from, to) = (offsets[0].as_usize(), offsets[data.len()].as_usize());
    size_of_val(offsets) + slice_bytes(&data.child_data()[0].slice(from, to - from))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int8Type, Int32Type};
    use arrow_array::{
        Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array, ListArray,
        StringArray, StringViewArray, StructArray,
    };

    use super::*;

    #[test]
    fn a_slice_has_the_bytes_of_its_own_values() {
        let texts = || (0..1000).map(|at| Some(format!("{at:0100}")));
        let numbers = || (0..1000).map(|at| Some([Some(at), None, Some(at)]));
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(numbers()));
        let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(numbers(), 3);
        let views = StringViewArray::from_iter(texts());
        let words: Vec<String> = (0..1000).map(|at| format!("{:04}", at % 100)).collect();
        let words: DictionaryArray<Int8Type> = words.iter().map(String::as_str).collect();
        let within = StructArray::try_from(vec![("lists", Arc::clone(&lists))]).unwrap();
        // 30 items of 4 bytes, 3 of each list, and 30 bits for their nulls.
        let items = 120 + 4;
        for (column, expected) in [
            (Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef, 80),
            (Arc::new(BooleanArray::from_iter((0..1000).map(|at| Some(at == 1)))), 2 + 2),
            (Arc::new(texts().collect::<StringArray>()), 11 * 4 + 1000),
            (Arc::new(views), 10 * 16 + 1000 + 2),
            (Arc::clone(&lists), 11 * 4 + items + 2),
            (Arc::new(within), 11 * 4 + items + 2),
            (Arc::new(fixed), items + 2),
            // The average value has 4 bytes and an offset.
            (Arc::new(words), 10 + (400 + 101 * 4) / 10 + 1),
        ] {
            let found = slice_bytes(&column.slice(500, 10).to_data());
            let kind = column.data_type();
            // Offsets of strings, and nulls of columns without any, may or may not be there.
            assert!(found.abs_diff(expected) <= 4, "{kind}: {found}, not {expected}");
            let parts = (0..100).map(|at| slice_bytes(&column.slice(10 * at, 10).to_data()));
            let (parts, whole) = (parts.sum::<usize>(), slice_bytes(&column.to_data()));
            let is_shared = matches!(kind, DataType::Dictionary(..));
            assert!(
                is_shared || (whole..whole + 100 * 12).contains(&parts),
                "{kind}: {parts}, {whole}"
            );
        }
        assert_eq!(slice_bytes(&lists.slice(0, 0).to_data()), 4);
    }
}
