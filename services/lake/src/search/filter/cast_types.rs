//! The types to which a filter may cast. Pure.

use super::limits::{BINARY_BYTES_MAX, DECIMAL_DIGITS_MAX};

/// The types to which `CAST` casts, in Lance's planner.
pub const SQL_TYPES: [&str; 14] = [
    "bigint",
    "binary",
    "boolean",
    "date",
    "datetime",
    "decimal",
    "double",
    "float",
    "int",
    "integer",
    "smallint",
    "string",
    "timestamp",
    "tinyint",
];

/// The types without parameters to which `arrow_cast` casts. They are not nested, and their values are about as long as
/// the values that are cast.
const ARROW_TYPES: [&str; 18] = [
    "Boolean",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float16",
    "Float32",
    "Float64",
    "Date32",
    "Date64",
    "Utf8",
    "LargeUtf8",
    "Binary",
    "LargeBinary",
];

/// Returns whether `arrow_cast` may cast to the type that `text` names.
pub fn is_cast_type(text: &str) -> bool {
    let of = |kind: &str| text.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')');
    let has_digits = |(digits, scale): (&str, &str)| match (digits.parse(), scale.trim().parse()) {
        (Ok(digits), Ok(scale)) => is_decimal(digits, scale),
        _ => false,
    };
    let is_short = |bytes: &str| bytes.parse().is_ok_and(|it| (1..=BINARY_BYTES_MAX).contains(&it));
    ARROW_TYPES.contains(&text)
        || of("FixedSizeBinary").is_some_and(is_short)
        || of("Decimal128").and_then(|it| it.split_once(',')).is_some_and(has_digits)
}

/// Names the types of `arrow_cast`, for errors.
pub fn cast_types() -> String {
    format!(
        "`FixedSizeBinary(n)` of up to {BINARY_BYTES_MAX} bytes, `Decimal128(p, s)`, {}",
        ARROW_TYPES.join(", ")
    )
}

/// Returns whether there is a 128-bit decimal with this precision and scale.
pub fn is_decimal(digits: u8, scale: u8) -> bool {
    (1..=DECIMAL_DIGITS_MAX).contains(&digits) && scale <= digits
}
