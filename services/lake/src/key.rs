//! Parses keys from text into values of the key column's type.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::scalar::ScalarValue;

use crate::error::LakeError;

/// Parses `text` as a value of `data_type`: strings as they are, integers and decimals in decimal, booleans as `true`
/// or `false`, dates as `2026-11-25`, timestamps as `2026-11-25T08:30:00.5Z` (without an offset: UTC), binary in
/// hexadecimal digits, 16 bytes also as a UUID (`00112233-4455-...`). A value that the type can't hold exactly is
/// refused. The error is a sentence for users.
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
        // The cast would drop a time of day, or move the date to another day because of it.
        DataType::Date32 if text.trim().contains(['T', 't', ' ', ':']) => {
            Err(type_mismatch(data_type))
        }
        DataType::Date64 if fraction_digits(text) > 3 => Err(type_mismatch(data_type)),
        DataType::Date32 | DataType::Date64 => cast(text, data_type),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) if *scale >= 0 => {
            // The cast reads a text without digits as 0, and it rounds. If there is an exponent, the digits after the
            // point do not show whether it rounds.
            let is_plain = text.contains(|c: char| c.is_ascii_digit())
                && text.trim().chars().all(|c| c.is_ascii_digit() || "+-.".contains(c));
            match is_plain && fraction_digits(text) <= *scale as usize {
                // With a fraction longer than the scale, even of zeros, the cast would not check for overflow.
                true => cast(without_zeros(text.trim()), data_type),
                false => Err(type_mismatch(data_type)),
            }
        }
        DataType::Timestamp(unit, zone) => {
            if fraction_digits(text) > second_digits(unit) {
                return Err(type_mismatch(data_type));
            }
            // A time without an offset is UTC in every zone: the zone only says how times are shown.
            let mut value = cast(text, &DataType::Timestamp(*unit, None))
                .map_err(|_| type_mismatch(data_type))?;
            match &mut value {
                ScalarValue::TimestampSecond(_, of)
                | ScalarValue::TimestampMillisecond(_, of)
                | ScalarValue::TimestampMicrosecond(_, of)
                | ScalarValue::TimestampNanosecond(_, of) => *of = zone.clone(),
                _ => {}
            }
            Ok(value)
        }
        other => Err(format!("columns of type {other} can't be looked up by key")),
    }
}

fn cast(text: &str, data_type: &DataType) -> Result<ScalarValue, String> {
    ScalarValue::try_from_string(text.trim().to_owned(), data_type)
        .map_err(|_| type_mismatch(data_type))
}

/// Returns a decimal number without zeros at the end of its fraction.
fn without_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Returns the number of digits after the point, without zeros at the end.
fn fraction_digits(text: &str) -> usize {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    fraction[..end].trim_end_matches('0').len()
}

/// Returns the number of decimal places of a second that `unit` has.
fn second_digits(unit: &TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Returns whether a column of `data_type` can be a table's key column.
pub(crate) fn can_be_key(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_)
        | DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(..) => true,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale >= 0,
        other => other.is_integer(),
    }
}

/// Checks that a column of `data_type` can be a table's key column. Errors: `UnsupportedType`.
pub(crate) fn check_key_type(column: &str, data_type: &DataType) -> Result<(), LakeError> {
    let why = match data_type {
        it if can_be_key(it) => return Ok(()),
        DataType::Struct(_) => {
            "a key is one value, not several; add a column that combines them, and name that"
        }
        _ => "keys are strings, integers, decimals, dates, timestamps or binary",
    };
    Err(LakeError::UnsupportedType {
        column: column.to_owned(),
        data_type: data_type.to_string(),
        why: why.to_owned(),
    })
}

fn type_mismatch(data_type: &DataType) -> String {
    match data_type {
        DataType::Date32 | DataType::Date64 => {
            "the column holds dates, written like 2026-11-25".to_owned()
        }
        DataType::Timestamp(unit, _) => format!(
            "the column holds timestamps, written like 2026-11-25T08:30:00Z, with at most {} digits after the point \
             of a second",
            second_digits(unit)
        ),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => format!(
            "the column holds numbers of at most {precision} digits, {scale} of them after the point"
        ),
        other => format!("the column holds {other} values"),
    }
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
    use arrow::datatypes::Field;

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

    #[test]
    fn decimals_dates_and_timestamps_are_exact() {
        let decimal = DataType::Decimal128(5, 2);
        for (text, unscaled) in [("1.5", 150), (" -0.07", -7), ("999.99", 99_999), ("7.100", 710)] {
            let expected = ScalarValue::Decimal128(Some(unscaled), 5, 2);
            assert_eq!(parse_key(text, &decimal), Ok(expected), "{text}");
        }
        for text in ["1.005", "1000", "1e1", "", "x", "1.2.3"] {
            let error = parse_key(text, &decimal).unwrap_err();
            assert!(error.contains("5 digits, 2 of them"), "{text}: {error}");
        }
        assert!(parse_key("1", &DataType::Decimal128(5, -2)).is_err());
        let date = |text| parse_key(text, &DataType::Date32);
        assert_eq!(date("1970-01-11"), Ok(ScalarValue::Date32(Some(10))));
        assert!(date("1970-13-11").unwrap_err().contains("written like 2026-11-25"));
        let ms = parse_key("1970-01-11", &DataType::Date64);
        assert_eq!(ms, Ok(ScalarValue::Date64(Some(864_000_000))));
        let zone: Option<std::sync::Arc<str>> = Some("Europe/Zurich".into());
        for zone in [None, zone] {
            let time = DataType::Timestamp(TimeUnit::Millisecond, zone.clone());
            for (text, ms) in [
                ("1970-01-01T00:00:07Z", 7_000),
                ("1970-01-01 00:00:07.250", 7_250),
                ("1970-01-01T02:00:07.25000+02:00", 7_250),
                ("1969-12-31T23:59:59.999Z", -1),
            ] {
                let expected = ScalarValue::TimestampMillisecond(Some(ms), zone.clone());
                assert_eq!(parse_key(text, &time), Ok(expected), "{text}");
            }
            let error = parse_key("1970-01-01T00:00:07.2505Z", &time).unwrap_err();
            assert!(error.contains("at most 3 digits"), "{error}");
            assert!(parse_key("tomorrow", &time).is_err());
        }
    }

    #[test]
    fn several_values_are_no_key() {
        let both = DataType::Struct(vec![Field::new("a", DataType::Int8, true)].into());
        let refused = check_key_type("k", &both).unwrap_err().to_string();
        assert!(refused.contains("a key is one value, not several"), "{refused}");
        let refused = check_key_type("k", &DataType::Float64).unwrap_err().to_string();
        assert!(refused.contains("keys are strings, integers, decimals"), "{refused}");
    }
}
