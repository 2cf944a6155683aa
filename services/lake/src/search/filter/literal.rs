//! Literals that can't be compared with a column, in Lance's words and in those of an error. Pure.

/// Returns the error for `literal`, as Lance prints it (`Utf8("x")`), which does not have the column's `data_type`. It
/// says how a literal of that type is written.
pub(super) fn mismatch(literal: &str, data_type: &str) -> String {
    let literal = match (inside(literal, "Utf8(\"", "\")"), literal.split_once('(')) {
        (Some(text), _) => format!("'{text}'"),
        (None, Some((_, value))) => value.strip_suffix(')').unwrap_or(value).to_owned(),
        (None, None) => literal.to_owned(),
    };
    let says = format!("{literal} can't be compared with a column of type {data_type}");
    match example(data_type) {
        Some(example) => format!("{says}; write a value as {example}"),
        None => says,
    }
}

/// Returns an example of a literal that has `data_type`.
fn example(data_type: &str) -> Option<String> {
    let kind = data_type.split('(').next().unwrap_or(data_type);
    Some(match kind {
        "Date32" | "Date64" => "`date '2024-01-31'`".into(),
        "Timestamp" => "`timestamp '2024-01-31 12:00:00'`".into(),
        "Decimal128" => {
            let (digits, scale) = inside(data_type, "Decimal128(", ")")?.split_once(", ")?;
            let zeros = "0".repeat(scale.parse().ok().filter(|it| *it <= 38)?);
            let point = if zeros.is_empty() { "" } else { "." };
            format!("`CAST(1{point}{zeros} AS decimal({digits}, {scale}))`")
        }
        "Utf8" | "LargeUtf8" => "`'text'`".into(),
        "Boolean" => "`true` or `false`".into(),
        "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" => {
            "`12`, a whole number that fits the type".into()
        }
        "Float16" | "Float32" | "Float64" => "`1.5`".into(),
        "Binary" | "LargeBinary" => "`X'0a0b'`".into(),
        "FixedSizeBinary" => format!("`arrow_cast(X'0a0b', '{data_type}')`, with as many bytes"),
        _ => return None,
    })
}

fn inside<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.strip_prefix(begin)?.strip_suffix(end)
}
