//! Typed keys of a batch, as an array of the key column's type. Pure.
//!
//! A value that the column's type cannot hold is the key of no row. It becomes null, which matches no row.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int64Array, OffsetSizeTrait, StringArray, UInt64Array,
    new_empty_array, new_null_array,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_ord::cmp::distinct;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::nullif::nullif;
use bytes::Bytes;
use wire::RowStream;
use wire::query::lookup_batch::Keys;
use wire::query::{Integers, Strings};

use super::plain_stream::plain_rows;
use crate::call_rules::KEYS_MAX;
use crate::error::{QueryError, Result};
use crate::stages::KEY_BYTES_MAX;

/// Returns the keys of a batch as values of a key column of type `data_type`.
///
/// # Errors
/// [`QueryError::BadRequest`] if there are no keys or too many, if one is too long, if they are not encoded correctly,
/// or if they are of another kind than the column.
pub fn key_array(keys: Option<Keys>, data_type: &DataType) -> Result<ArrayRef> {
    let keys = match keys {
        Some(Keys::Integers(integers)) => of_integers(integers, data_type)?,
        Some(Keys::Strings(strings)) => of_strings(strings, data_type)?,
        Some(Keys::Arrow(stream)) => of_arrow(stream, data_type)?,
        None => new_empty_array(data_type),
    };
    match keys.len() {
        0 => bad("is empty; give at least one key".into()),
        len if len > KEYS_MAX => bad(format!("has {len} keys; give at most {KEYS_MAX}")),
        _ => match longest(&keys) {
            bytes if bytes > KEY_BYTES_MAX => {
                bad(format!("has a key of {bytes} bytes; {KEY_BYTES_MAX} is the most"))
            }
            _ => Ok(keys),
        },
    }
}

/// Returns the number of keys of a batch, without decoding them. 0 if they are not encoded correctly.
pub fn key_count(keys: Option<&Keys>) -> usize {
    match keys {
        Some(Keys::Integers(Integers { values })) => values.len(),
        Some(Keys::Strings(Strings { lengths, .. })) => lengths.len(),
        Some(Keys::Arrow(stream)) => {
            plain_rows(stream).map_or(0, |rows| usize::try_from(rows).unwrap_or(usize::MAX))
        }
        None => 0,
    }
}

/// Returns the length in bytes of the longest text or binary key; 0 for other types.
fn longest(keys: &ArrayRef) -> usize {
    fn max<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
        offsets.lengths().max().unwrap_or(0)
    }
    match keys.data_type() {
        DataType::Utf8 => max(keys.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => max(keys.as_string::<i64>().offsets()),
        DataType::Binary => max(keys.as_binary::<i32>().offsets()),
        DataType::LargeBinary => max(keys.as_binary::<i64>().offsets()),
        _ => 0,
    }
}

fn of_integers(keys: Integers, data_type: &DataType) -> Result<ArrayRef> {
    let values = keys.values;
    let keys: ArrayRef = match data_type {
        it if it.is_unsigned_integer() => Arc::new(UInt64Array::from(values)),
        it if it.is_signed_integer() => {
            Arc::new(Int64Array::from_iter_values(values.into_iter().map(|value| value as i64)))
        }
        other => return bad(of_another_type("integers", other)),
    };
    to_type(&keys, data_type)
}

fn of_strings(keys: Strings, data_type: &DataType) -> Result<ArrayRef> {
    let Strings { data, lengths } = keys;
    let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    if total != data.len() as u64 || i32::try_from(total).is_err() {
        let bytes = data.len();
        return bad(format!("has {bytes} bytes of strings, but their lengths add up to {total}"));
    }
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|&length| length as usize));
    let data = Buffer::from(data);
    let keys: ArrayRef = match data_type {
        it if is_text(it) => {
            let not_text = |_| bad_keys("has text that is not UTF-8".into());
            Arc::new(StringArray::try_new(offsets, data, None).map_err(not_text)?)
        }
        it if is_binary(it) => Arc::new(BinaryArray::try_new(offsets, data, None)?),
        other => return bad(of_another_type("strings", other)),
    };
    to_type(&keys, data_type)
}

fn of_another_type(given: &str, column: &DataType) -> String {
    let form = match column {
        it if it.is_integer() => "integers",
        it if is_text(it) || is_binary(it) => "strings",
        _ => "an Arrow array",
    };
    format!("has {given}, but the key column is of type {column}; give {form}")
}

fn of_arrow(stream: Bytes, data_type: &DataType) -> Result<ArrayRef> {
    let invalid = |error| bad_keys(format!("is not an Arrow IPC stream: {error}"));
    let rows = plain_rows(&stream).map_err(bad_keys)?;
    if rows > KEYS_MAX as u64 {
        return bad(format!("has {rows} keys; give at most {KEYS_MAX}"));
    }
    let mut rows = RowStream::default();
    let batches = rows.push(stream).map_err(invalid)?;
    let schema = rows.finish().map_err(invalid)?;
    let [field] = schema.fields().as_ref() else {
        let columns = schema.fields().len();
        return bad(format!("has {columns} columns; give one, of keys"));
    };
    if !is_same_kind(field.data_type(), data_type) {
        let given = field.data_type();
        return bad(format!("has keys of type {given}, but the key column is of type {data_type}"));
    }
    let columns: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(0).as_ref()).collect();
    if columns.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    to_type(&concat(&columns)?, data_type)
}

fn is_same_kind(given: &DataType, column: &DataType) -> bool {
    given == column
        || given.is_integer() && column.is_integer()
        || is_text(given) && is_text(column)
        || is_binary(given) && is_binary(column)
        || is_of_time_or_decimal(given, column)
}

/// Returns whether both types are dates, both are decimals, both are timestamps with a time zone, or both are
/// timestamps without one. A timestamp with a time zone is a point in time, and a timestamp without one is not.
fn is_of_time_or_decimal(given: &DataType, column: &DataType) -> bool {
    use DataType::{Date32, Date64, Decimal128, Decimal256, Timestamp};
    match (given, column) {
        (Date32 | Date64, Date32 | Date64) => true,
        (Decimal128(..) | Decimal256(..), Decimal128(..) | Decimal256(..)) => true,
        (Timestamp(_, given), Timestamp(_, column)) => given.is_some() == column.is_some(),
        _ => false,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8)
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_))
}

/// Converts keys to the column's type. A key that this type cannot hold becomes null.
fn to_type(keys: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let given = keys.data_type();
    if given == data_type {
        return Ok(Arc::clone(keys));
    }
    if let (DataType::FixedSizeBinary(_), DataType::FixedSizeBinary(_)) = (given, data_type) {
        // No value of one length equals a value of another length, and Arrow has no such cast.
        return Ok(new_null_array(data_type, keys.len()));
    }
    let or_null = CastOptions { safe: true, ..Default::default() };
    // Values become null one by one. The cast as a whole fails only if Arrow has none between the two types. Only
    // decimals whose scales are too far apart get here.
    let no_cast = |_| {
        bad_keys(format!(
            "has keys of type {given}, which can't be converted to the key column's type {data_type}"
        ))
    };
    let converted = cast_with_options(keys, data_type, &or_null).map_err(no_cast)?;
    if !is_of_time_or_decimal(given, data_type) {
        return Ok(converted);
    }
    // These casts round. A key that differs after the cast back equals no value of the column's type, so it becomes
    // null.
    let back = cast_with_options(&converted, given, &or_null).map_err(no_cast)?;
    let is_rounded = distinct(keys, &back)?;
    Ok(nullif(&converted, &is_rounded)?)
}

fn bad<T>(problem: String) -> Result<T> {
    Err(bad_keys(problem))
}

fn bad_keys(problem: String) -> QueryError {
    QueryError::BadRequest { field: "keys", problem }
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Date32Array, Date64Array, Decimal128Array, FixedSizeBinaryArray, Int8Array, Int32Array,
        LargeStringArray, RecordBatch, TimestampMicrosecondArray, TimestampNanosecondArray,
    };
    use arrow_schema::TimeUnit;

    use super::*;
    use crate::ipc::IpcHead;
    use crate::stages::ipc_stream;

    fn integers(values: &[i64]) -> Option<Keys> {
        let values = values.iter().map(|&value| value as u64).collect();
        Some(Keys::Integers(Integers { values }))
    }

    fn strings(strings: &[&[u8]]) -> Option<Keys> {
        let lengths = strings.iter().map(|string| string.len() as u32).collect();
        Some(Keys::Strings(Strings { data: strings.concat().into(), lengths }))
    }

    fn arrow(column: ArrayRef) -> Option<Keys> {
        let batch = RecordBatch::try_from_iter_with_nullable([("k", column, true)]).unwrap();
        let head = IpcHead::of(batch.schema_ref()).unwrap();
        Some(Keys::Arrow(ipc_stream(&head, &batch).unwrap()))
    }

    fn problem(keys: Option<Keys>, data_type: &DataType) -> String {
        key_array(keys, data_type).unwrap_err().to_string()
    }

    #[test]
    fn integers_get_the_columns_width() {
        let keys = key_array(integers(&[5, -1, 300]), &DataType::Int8).unwrap();
        assert_eq!(keys.as_ref(), &Int8Array::from(vec![Some(5), Some(-1), None]));
        let keys = key_array(integers(&[5, -1]), &DataType::UInt64).unwrap();
        assert_eq!(keys.as_ref(), &UInt64Array::from(vec![5, u64::MAX]));
        let keys = key_array(integers(&[5, -1]), &DataType::UInt32).unwrap();
        assert_eq!(keys.null_count(), 1);
    }

    #[test]
    fn keys_are_counted_in_every_form() {
        let column: ArrayRef = Arc::new(Int8Array::from(vec![7; 10_000]));
        assert_eq!(key_count(arrow(column).as_ref()), 10_000);
        assert_eq!(key_count(integers(&[1, 2]).as_ref()), 2);
        assert_eq!(key_count(strings(&[b"", b"a", b""]).as_ref()), 3);
        let damaged = Keys::Arrow(Bytes::from_static(b"xxxxx"));
        assert_eq!([key_count(None), key_count(Some(&damaged))], [0, 0]);
    }

    #[test]
    fn strings_are_text_or_binary() {
        let keys = key_array(strings(&[b"a", b"", "é".as_bytes()]), &DataType::LargeUtf8).unwrap();
        assert_eq!(keys.as_ref(), &LargeStringArray::from(vec!["a", "", "é"]));
        let keys = key_array(strings(&[b"\xff", b"ab"]), &DataType::Binary).unwrap();
        assert_eq!(keys.as_ref(), &BinaryArray::from_vec(vec![b"\xff", b"ab"]));
        let keys = key_array(strings(&[b"ab", b"abc"]), &DataType::FixedSizeBinary(2)).unwrap();
        let expected = [Some(&b"ab"[..]), None].into_iter();
        let expected = FixedSizeBinaryArray::try_from_sparse_iter_with_size(expected, 2).unwrap();
        assert_eq!(keys.as_ref(), &expected);
    }

    #[test]
    fn arrow_keys_are_widened_and_may_be_null() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
        let keys = key_array(arrow(column), &DataType::Int64).unwrap();
        assert_eq!(keys.as_ref(), &Int64Array::from(vec![Some(7), None]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(key_array(arrow(text), &DataType::LargeUtf8).is_ok());
    }

    #[test]
    fn binary_keys_of_another_length_are_found_nowhere() {
        let given = FixedSizeBinaryArray::try_from_iter([b"abc", b"abd"].into_iter()).unwrap();
        let given: ArrayRef = Arc::new(given);
        let column = DataType::FixedSizeBinary(2);
        let keys = key_array(arrow(Arc::clone(&given)), &column).unwrap();
        assert_eq!((keys.data_type(), keys.len(), keys.null_count()), (&column, 2, 2));
        let keys = key_array(arrow(given), &DataType::Binary).unwrap();
        assert_eq!(keys.as_ref(), &BinaryArray::from_vec(vec![b"abc", b"abd"]));
    }

    #[test]
    fn dates_decimals_and_timestamps_are_converted_exactly_or_found_nowhere() {
        let dates: ArrayRef = Arc::new(Date64Array::from(vec![86_400_000, 86_400_001]));
        let keys = key_array(arrow(dates), &DataType::Date32).unwrap();
        assert_eq!(keys.as_ref(), &Date32Array::from(vec![Some(1), None]));
        let decimals = |values: Vec<Option<i128>>, precision, scale| {
            let array = Decimal128Array::from(values);
            array.with_precision_and_scale(precision, scale).unwrap()
        };
        let given: ArrayRef = Arc::new(decimals(vec![Some(1500), Some(1505), None], 20, 3));
        let keys = key_array(arrow(given), &DataType::Decimal128(9, 2)).unwrap();
        assert_eq!(keys.as_ref(), &decimals(vec![Some(150), None, None], 9, 2));
        let given: ArrayRef = Arc::new(decimals(vec![Some(1), Some(100_000)], 9, 0));
        let keys = key_array(arrow(given), &DataType::Decimal128(5, 2)).unwrap();
        assert_eq!(keys.as_ref(), &decimals(vec![Some(100), None], 5, 2));
        let times = TimestampNanosecondArray::from(vec![7_000, 7_001]).with_timezone("+01:00");
        let column = DataType::Timestamp(TimeUnit::Microsecond, Some("+02:00".into()));
        let keys = key_array(arrow(Arc::new(times)), &column).unwrap();
        let expected = TimestampMicrosecondArray::from(vec![Some(7), None]);
        assert_eq!(keys.as_ref(), &expected.with_timezone("+02:00"));
    }

    #[test]
    fn bad_keys_are_named() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["7"]));
        let naive: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![7]));
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let coarse = Decimal128Array::from(vec![Some(1)]).with_precision_and_scale(9, -30);
        let coarse: ArrayRef = Arc::new(coarse.unwrap());
        let long: ArrayRef = Arc::new(StringArray::from(vec!["k".repeat(KEY_BYTES_MAX + 1)]));
        for (keys, data_type, expected) in [
            (None, DataType::Utf8, "empty"),
            (integers(&[]), DataType::Int8, "empty"),
            (integers(&[0; KEYS_MAX + 1]), DataType::Int8, "10001 keys"),
            (integers(&[1]), DataType::Utf8, "integers, but the key column is of type Utf8"),
            (strings(&[b"1"]), DataType::Int8, "strings, but the key column is of type Int8"),
            (strings(&[b"\xff"]), DataType::Utf8, "not UTF-8"),
            (strings(&[&[b'k'; KEY_BYTES_MAX + 1]]), DataType::Utf8, "65537 bytes"),
            (arrow(text), DataType::Int8, "keys of type Utf8"),
            (integers(&[1]), DataType::Date32, "type Date32; give an Arrow array"),
            (arrow(naive), zoned, "keys of type Timestamp(µs), but the key column is of type"),
            (arrow(coarse), DataType::Decimal128(12, 10), "which can't be converted to the key"),
            (arrow(long), DataType::LargeUtf8, "65537 bytes"),
            (Some(Keys::Arrow(Bytes::from_static(b"xxxxx"))), DataType::Int8, "Arrow IPC stream"),
        ] {
            let problem = problem(keys, &data_type);
            assert!(problem.contains(expected), "{problem}");
        }
        let lengths = Strings { data: Bytes::from_static(b"abc"), lengths: vec![1, 1] };
        assert!(problem(Some(Keys::Strings(lengths)), &DataType::Utf8).contains("add up to 2"));
    }
}
