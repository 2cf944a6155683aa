//! The keys of a batch, made of an array.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use wire::query::lookup_batch::Keys;
use wire::query::{Integers, Strings};
use wire::{Fault, Reason};

/// Converts an array without nulls to the keys of a batch: integers, text, binary, dates, timestamps or decimals, or a
/// dictionary of these.
///
/// # Errors
/// `BAD_ARGUMENT` if the array has nulls, or another type.
pub fn keys_of(array: &ArrayRef) -> Result<Keys, Fault> {
    if array.null_count() > 0 {
        let message = format!("{} of the keys are null; leave them out", array.null_count());
        return Err(Fault::new(Reason::BadArgument, message));
    }
    let to = |data_type: &DataType| as_type(array, data_type);
    match array.data_type() {
        DataType::Dictionary(_, values) => keys_of(&to(values)?),
        DataType::Utf8View => keys_of(&to(&DataType::LargeUtf8)?),
        DataType::BinaryView => keys_of(&to(&DataType::LargeBinary)?),
        it if it.is_integer() => match integers(array)? {
            Some(values) => Ok(Keys::Integers(Integers { values })),
            None => Ok(Keys::Arrow(arrow_stream(array)?)),
        },
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_) => {
            let strings = to(&DataType::LargeBinary)?;
            let strings = strings.as_binary::<i64>();
            let offsets = strings.offsets();
            // As none is null, the keys follow each other. A slice has other values before and after them.
            let data = &strings.values()[offsets[0] as usize..offsets[strings.len()] as usize];
            let lengths = offsets.lengths().map(|length| length as u32).collect();
            Ok(Keys::Strings(Strings { data: Bytes::copy_from_slice(data), lengths }))
        }
        DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Ok(Keys::Arrow(arrow_stream(array)?)),
        other => {
            let message = format!("keys of type {other} can't be looked up");
            Err(Fault::new(Reason::BadArgument, message))
        }
    }
}

fn as_type(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, Fault> {
    cast(array, data_type).map_err(|error| {
        Fault::new(Reason::BadArgument, format!("the keys can't be read: {error}"))
    })
}

/// Returns the values of an array of integers. `None` if a value is negative or above `i64::MAX`: a node reads such
/// bits by the type of the key column, so a key of the other sign would be found.
fn integers(array: &ArrayRef) -> Result<Option<Vec<u64>>, Fault> {
    Ok(match array.data_type().is_unsigned_integer() {
        true => {
            let values = as_type(array, &DataType::UInt64)?;
            let values = values.as_primitive::<UInt64Type>().values();
            values.iter().map(|&value| i64::try_from(value).is_ok().then_some(value)).collect()
        }
        false => {
            let values = as_type(array, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>().values();
            values.iter().map(|&value| u64::try_from(value).ok()).collect()
        }
    })
}

/// Returns an Arrow IPC stream of one column.
fn arrow_stream(column: &ArrayRef) -> Result<Bytes, Fault> {
    let write = || {
        let batch = RecordBatch::try_from_iter([("key", Arc::clone(column))])?;
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
        writer.write(&batch)?;
        writer.into_inner()
    };
    let written: Result<Vec<u8>, ArrowError> = write();
    written.map(Bytes::from).map_err(|error| Fault::new(Reason::Internal, error.to_string()))
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        BinaryViewArray, FixedSizeBinaryArray, Int32Array, Int64Array, StringArray,
        StringViewArray, UInt64Array,
    };
    use wire::RowStream;

    use super::*;

    #[test]
    fn views_are_keys_like_strings() {
        let text = ["a", "", "longer than the twelve bytes that a view contains"];
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(text));
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(text));
        let lengths = text.map(|text| text.len() as u32).to_vec();
        let expected = Keys::Strings(Strings { data: text.concat().into(), lengths });
        assert_eq!(keys_of(&views).unwrap(), expected);
        assert_eq!(keys_of(&bytes).unwrap(), expected);
    }

    #[test]
    fn only_the_values_of_a_slice_are_keys() {
        let expected = Keys::Strings(Strings { data: "bbcc".into(), lengths: vec![2, 2] });
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "bb", "cc", "ddd"]));
        assert_eq!(keys_of(&text.slice(1, 2)).unwrap(), expected);
        let values = ["aa", "bb", "cc", "dd"].into_iter();
        let bytes: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(values).unwrap());
        assert_eq!(keys_of(&bytes.slice(1, 2)).unwrap(), expected);
    }

    #[test]
    fn integers_that_a_column_of_the_other_sign_would_misread_keep_their_type() {
        let small = Keys::Integers(Integers { values: vec![0, i64::MAX as u64] });
        let signed: ArrayRef = Arc::new(Int64Array::from(vec![0, i64::MAX]));
        let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![0, i64::MAX as u64]));
        assert_eq!(
            [keys_of(&signed).unwrap(), keys_of(&unsigned).unwrap()],
            [small.clone(), small]
        );
        let negative: ArrayRef = Arc::new(Int32Array::from(vec![7, -1]));
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![7, 1 << 63]));
        for keys in [negative, large] {
            let Keys::Arrow(stream) = keys_of(&keys).unwrap() else { panic!("{keys:?}") };
            let sent = RowStream::default().push(stream).unwrap();
            assert_eq!(sent[0].column(0), &keys);
        }
    }
}
