//! Parses keys from text into values of the key column's type.

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use crate::error::LakeError;

/// Parses `text` as a value of `data_type`: strings as they are, integers in decimal, booleans as `true` or `false`,
/// binary in hexadecimal digits, 16 bytes also as a UUID (`00112233-4455-...`). The error is a sentence for users.
pub(crate) fn parse_key(text: &str, data_type: &DataType) -> Result<ScalarValue, String> {
    macro_rules! integer {
        ($kind:ident) => {
            text.trim()
                .parse()
                .map(|number| ScalarValue::$kind(Some(number)))
                .map_err(|_| type_mismatch(data_type))
        };
    }
    match data_type {
        DataType::Utf8 => Ok(ScalarValue::Utf8(Some(text.to_owned()))),
        DataType::LargeUtf8 => Ok(ScalarValue::LargeUtf8(Some(text.to_owned()))),
        DataType::Int8 => integer!(Int8),
        DataType::Int16 => integer!(Int16),
        DataType::Int32 => integer!(Int32),
        DataType::Int64 => integer!(Int64),
        DataType::UInt8 => integer!(UInt8),
        DataType::UInt16 => integer!(UInt16),
        DataType::UInt32 => integer!(UInt32),
        DataType::UInt64 => integer!(UInt64),
        DataType::Boolean => integer!(Boolean),
        DataType::Binary => Ok(ScalarValue::Binary(Some(parse_hex(text)?))),
        DataType::LargeBinary => Ok(ScalarValue::LargeBinary(Some(parse_hex(text)?))),
        DataType::FixedSizeBinary(size) => {
            let bytes = parse_hex(text)?;
            if i32::try_from(bytes.len()) != Ok(*size) {
                return Err(format!(
                    "the column holds {size} bytes a key, this has {}",
                    bytes.len()
                ));
            }
            Ok(ScalarValue::FixedSizeBinary(*size, Some(bytes)))
        }
        other => Err(format!("columns of type {other} can't be looked up by key")),
    }
}

/// Returns whether a column of `data_type` can be a table's key column.
pub(crate) fn can_be_key(data_type: &DataType) -> bool {
    let integer_or_text =
        data_type.is_integer() || matches!(data_type, DataType::Utf8 | DataType::LargeUtf8);
    let binary = matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_)
    );
    integer_or_text || binary
}

/// Checks that a column of `data_type` can be a table's key column. Errors: `UnsupportedType`.
pub(crate) fn check_key_type(column: &str, data_type: &DataType) -> Result<(), LakeError> {
    match can_be_key(data_type) {
        true => Ok(()),
        false => Err(LakeError::UnsupportedType {
            column: column.to_owned(),
            data_type: data_type.to_string(),
            why: "keys are strings, integers or binary".to_owned(),
        }),
    }
}

fn type_mismatch(data_type: &DataType) -> String {
    format!("the column holds {data_type} values")
}

fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<_> = text.trim().chars().filter(|c| *c != '-').collect();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some((high.to_digit(16)? << 4 | low.to_digit(16)?) as u8),
        _ => None,
    });
    pairs
        .collect::<Option<_>>()
        .ok_or_else(|| "binary keys are written in pairs of hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_get_the_columns_type() {
        assert_eq!(parse_key("7", &DataType::Int16), Ok(ScalarValue::Int16(Some(7))));
        assert_eq!(parse_key("7", &DataType::Utf8), Ok(ScalarValue::Utf8(Some("7".into()))));
        let uuid =
            parse_key("00112233-4455-6677-8899-aabbccddeeff", &DataType::FixedSizeBinary(16))
                .unwrap();
        let ScalarValue::FixedSizeBinary(16, Some(bytes)) = uuid else { panic!("{uuid:?}") };
        assert_eq!(bytes[..3], [0, 0x11, 0x22]);
        assert!(parse_key("70000", &DataType::Int16).is_err());
        assert!(parse_key("0g", &DataType::Binary).is_err());
        assert!(parse_key("012", &DataType::Binary).is_err());
        assert!(parse_key("00", &DataType::FixedSizeBinary(16)).is_err());
        assert!(parse_key("1.5", &DataType::Float64).is_err());
    }
}
