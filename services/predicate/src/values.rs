//! The values that a predicate compares with, as Arrow arrays of a column's type.

use arrow_array::{ArrayRef, BooleanArray, make_array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use bytes::Bytes;

/// Returns whether values of a type can be compared with each other: numbers, Booleans, dates, times, texts and bytes.
pub fn can_compare(of: &DataType) -> bool {
    match of {
        DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_) => true,
        // Intervals have no order that fits their length.
        DataType::Interval(_) => false,
        other => other.is_primitive(),
    }
}

/// Returns `values` as an array of type `of`, for which [`can_compare`] returns true. If a value is not valid for this
/// type, the error is the length of the first such value.
pub(crate) fn array_of(of: &DataType, values: &[Bytes]) -> Result<ArrayRef, usize> {
    let is_text = matches!(of, DataType::Utf8 | DataType::LargeUtf8);
    let is_valid = |value: &Bytes| match of {
        DataType::Boolean => matches!(value.as_ref(), [0 | 1]),
        DataType::FixedSizeBinary(width) => usize::try_from(*width) == Ok(value.len()),
        other => match other.primitive_width() {
            Some(width) => width == value.len(),
            None => !is_text || std::str::from_utf8(value).is_ok(),
        },
    };
    if let Some(bad) = values.iter().find(|value| !is_valid(value)) {
        return Err(bad.len());
    }
    if *of == DataType::Boolean {
        let values: Vec<bool> = values.iter().map(|value| value.as_ref() == [1]).collect();
        return Ok(std::sync::Arc::new(BooleanArray::from(values)));
    }
    let lengths = values.iter().map(Bytes::len);
    let data = ArrayData::builder(of.clone()).len(values.len());
    let data =
        match of {
            DataType::Utf8 | DataType::Binary => data
                .add_buffer(OffsetBuffer::<i32>::from_lengths(lengths).into_inner().into_inner()),
            DataType::LargeUtf8 | DataType::LargeBinary => data
                .add_buffer(OffsetBuffer::<i64>::from_lengths(lengths).into_inner().into_inner()),
            _ => data,
        };
    let data = data.add_buffer(Buffer::from_vec(values.concat())).align_buffers(true).build();
    data.map(make_array).map_err(|_| values.first().map_or(0, Bytes::len))
}
