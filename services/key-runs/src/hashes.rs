//! The hashes of an array of keys.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal128Type, Decimal256Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};
use key_index::{Key, KeyHasher, KeyIndexError, KeyType};

/// Returns the class of a column's type; `None` if its values are not indexed.
pub fn key_type(data_type: &DataType) -> Option<KeyType> {
    match data_type {
        it if it.is_integer() => Some(KeyType::Integer),
        DataType::Utf8 | DataType::LargeUtf8 => Some(KeyType::Text),
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            Some(KeyType::Bytes)
        }
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) if *scale >= 0 => {
            Some(KeyType::Decimal { scale: *scale })
        }
        DataType::Date32 | DataType::Date64 => Some(KeyType::Date),
        DataType::Timestamp(unit, _) => Some(KeyType::Timestamp { digits: digits(unit) }),
        _ => None,
    }
}

/// Returns the number of digits of a second after the point.
fn digits(unit: &TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Calls `each` with the hash of each key, or `None` for null, in order. The type of `keys` must have a [`key_type`].
///
/// # Errors
/// If the keys are not of the hasher's type.
pub fn each_hash(
    hasher: &KeyHasher,
    keys: &ArrayRef,
    mut each: impl FnMut(Option<u64>),
) -> Result<(), KeyIndexError> {
    macro_rules! hash {
        ($values:expr, $key:expr) => {
            for value in $values.iter() {
                each(value.map(|value| hasher.hash($key(value))).transpose()?);
            }
        };
    }
    macro_rules! integers {
        ($kind:ty, $key:ident) => {
            hash!(keys.as_primitive::<$kind>(), |value: <$kind as ArrowPrimitiveType>::Native| {
                Key::$key(value.into())
            })
        };
    }
    macro_rules! timestamps {
        ($kind:ty, $unit:expr) => {
            hash!(keys.as_primitive::<$kind>(), |units: i64| Key::Timestamp {
                units,
                digits: digits($unit)
            })
        };
    }
    match keys.data_type() {
        DataType::Int8 => integers!(Int8Type, Signed),
        DataType::Int16 => integers!(Int16Type, Signed),
        DataType::Int32 => integers!(Int32Type, Signed),
        DataType::Int64 => integers!(Int64Type, Signed),
        DataType::UInt8 => integers!(UInt8Type, Unsigned),
        DataType::UInt16 => integers!(UInt16Type, Unsigned),
        DataType::UInt32 => integers!(UInt32Type, Unsigned),
        DataType::UInt64 => integers!(UInt64Type, Unsigned),
        DataType::Utf8 => hash!(keys.as_string::<i32>(), Key::Text),
        DataType::LargeUtf8 => hash!(keys.as_string::<i64>(), Key::Text),
        DataType::Binary => hash!(keys.as_binary::<i32>(), Key::Bytes),
        DataType::LargeBinary => hash!(keys.as_binary::<i64>(), Key::Bytes),
        DataType::FixedSizeBinary(_) => hash!(keys.as_fixed_size_binary(), Key::Bytes),
        &DataType::Decimal128(_, scale) => {
            hash!(keys.as_primitive::<Decimal128Type>(), |unscaled: i128| Key::Decimal128 {
                unscaled,
                scale
            })
        }
        &DataType::Decimal256(_, scale) => {
            hash!(keys.as_primitive::<Decimal256Type>(), |value: i256| Key::Decimal256 {
                unscaled: value.to_le_bytes(),
                scale
            })
        }
        DataType::Date32 => hash!(keys.as_primitive::<Date32Type>(), Key::Date32),
        DataType::Date64 => hash!(keys.as_primitive::<Date64Type>(), Key::Date64),
        DataType::Timestamp(unit @ TimeUnit::Second, _) => timestamps!(TimestampSecondType, unit),
        DataType::Timestamp(unit @ TimeUnit::Millisecond, _) => {
            timestamps!(TimestampMillisecondType, unit)
        }
        DataType::Timestamp(unit @ TimeUnit::Microsecond, _) => {
            timestamps!(TimestampMicrosecondType, unit)
        }
        DataType::Timestamp(unit @ TimeUnit::Nanosecond, _) => {
            timestamps!(TimestampNanosecondType, unit)
        }
        other => unreachable!("{other} has no key type"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        Date32Array, Date64Array, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
        Int8Array, LargeStringArray, StringArray, TimestampMillisecondArray, TimestampSecondArray,
        UInt64Array,
    };

    use super::*;

    fn hashes(keys: ArrayRef) -> Vec<Option<u64>> {
        let hasher = KeyHasher::new(7, key_type(keys.data_type()).unwrap());
        let mut hashes = Vec::new();
        each_hash(&hasher, &keys, |hash| hashes.push(hash)).unwrap();
        hashes
    }

    #[test]
    fn equal_keys_have_equal_hashes_and_nulls_have_none() {
        let small = hashes(Arc::new(Int8Array::from(vec![Some(5), None, Some(-1)])));
        let large = hashes(Arc::new(UInt64Array::from(vec![5, u64::MAX])));
        assert_eq!((small[0], small[1]), (large[0], None));
        assert!(small[2].is_some() && small[2] != large[1]);
        let text = hashes(Arc::new(StringArray::from(vec!["a", "b"])));
        assert_eq!(text, hashes(Arc::new(LargeStringArray::from(vec!["a", "b"]))));
        let bytes = FixedSizeBinaryArray::try_from_iter([*b"ab", *b"cd"].iter()).unwrap();
        let bytes = hashes(Arc::new(bytes));
        assert!(bytes[0].is_some() && bytes[0] != bytes[1]);
        let days = hashes(Arc::new(Date32Array::from(vec![Some(2), None])));
        let ms = hashes(Arc::new(Date64Array::from(vec![172_800_000, 172_800_001])));
        assert_eq!((days[0], days[1]), (ms[0], None));
        assert_ne!(ms[0], ms[1]);
        let narrow = Decimal128Array::from(vec![150, -1]).with_precision_and_scale(9, 2).unwrap();
        let wide = [150, -1].map(i256::from_i128).to_vec();
        let wide = Decimal256Array::from(wide).with_precision_and_scale(50, 2).unwrap();
        assert_eq!(hashes(Arc::new(narrow)), hashes(Arc::new(wide)));
        let plain = hashes(Arc::new(TimestampSecondArray::from(vec![7])));
        let zoned = TimestampSecondArray::from(vec![7]).with_timezone("Europe/Zurich");
        assert_eq!(plain, hashes(Arc::new(zoned)));
        assert_ne!(plain, hashes(Arc::new(TimestampMillisecondArray::from(vec![7]))));
    }

    #[test]
    fn a_key_of_another_type_is_refused() {
        let hasher = KeyHasher::new(7, KeyType::Integer);
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["5"]));
        assert!(each_hash(&hasher, &keys, |_| ()).is_err());
        assert_eq!(key_type(&DataType::Boolean), None);
        assert_eq!(key_type(&DataType::Decimal128(9, -2)), None);
    }
}
