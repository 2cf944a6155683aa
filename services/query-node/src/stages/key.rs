//! Key: checks that a row has the requested key. Pure.
//!
//! An index may return a row that has another key (a hash index sometimes does), so a Get compares each key with the
//! row that the look-up found.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// Returns whether a row of a key column (with wire types) has the key `text`. Text is compared as it is, numbers are
/// parsed as decimal, Booleans as `true` or `false`, and binary as hexadecimal digits with or without a UUID's dashes.
pub fn has_key(column: &ArrayRef, row: usize, text: &str) -> bool {
    macro_rules! number {
        ($kind:ty) => {
            text.trim().parse() == Ok(column.as_primitive::<$kind>().value(row))
        };
    }
    if column.is_null(row) {
        return false;
    }
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row) == text,
        DataType::LargeUtf8 => column.as_string::<i64>().value(row) == text,
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Boolean => text.trim().parse() == Ok(column.as_boolean().value(row)),
        DataType::Binary => is_hex(column.as_binary::<i32>().value(row), text),
        DataType::LargeBinary => is_hex(column.as_binary::<i64>().value(row), text),
        DataType::FixedSizeBinary(_) => is_hex(column.as_fixed_size_binary().value(row), text),
        // The look-up refuses key columns of other types.
        _ => false,
    }
}

fn is_hex(bytes: &[u8], text: &str) -> bool {
    let mut digits = text.trim().chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
    let mut nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(u32::from);
    nibbles.by_ref().all(|nibble| digits.next() == Some(Some(nibble))) && digits.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, Int16Array, StringArray};

    use super::*;

    #[test]
    fn keys_are_compared_as_values() {
        let numbers: ArrayRef = Arc::new(Int16Array::from(vec![Some(7), None]));
        assert!(has_key(&numbers, 0, "7") && has_key(&numbers, 0, " 007"));
        assert!(!has_key(&numbers, 0, "8") && !has_key(&numbers, 0, "x"));
        assert!(!has_key(&numbers, 1, "0"));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a", ""]));
        assert!(has_key(&text, 0, "a") && !has_key(&text, 0, "a ") && has_key(&text, 1, ""));
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&[0x0f, 0xa0][..]]));
        assert!(has_key(&bytes, 0, "0fA0") && has_key(&bytes, 0, "0f-a0"));
        assert!(!has_key(&bytes, 0, "0fa") && !has_key(&bytes, 0, "0fa000"));
    }
}
