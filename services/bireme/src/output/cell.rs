//! One value, as text for people.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

/// The number of elements of a vector that are shown.
const ELEMENTS_SHOWN: usize = 3;

/// The number of bytes of a binary value that are shown.
const BYTES_SHOWN: usize = 8;

/// Returns the value at `row` without control characters. Long vectors of floats and long values of the types `Binary`
/// and `LargeBinary` are shown by their beginning and length.
pub fn cell(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "null".into();
    }
    let special = match array.data_type() {
        DataType::FixedSizeList(..) => vector(&array.as_fixed_size_list().value(row)),
        DataType::Binary => Some(binary(array.as_binary::<i32>().value(row))),
        DataType::LargeBinary => Some(binary(array.as_binary::<i64>().value(row))),
        _ => None,
    };
    special.unwrap_or_else(|| plain(array, row))
}

fn plain(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default().with_null("null").with_display_error(true);
    let text = match ArrayFormatter::try_new(array.as_ref(), &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(error) => format!("({error})"),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the whole value at `row` in the form in which a user types a key. Returns `None` for null, and for values
/// that have no text form.
pub fn key_text(array: &ArrayRef, row: usize) -> Option<String> {
    let formatter = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default()).ok()?;
    if array.is_null(row) { None } else { formatter.value(row).try_to_string().ok() }
}

/// Returns a vector's first elements and its length, as in `[0.120, -0.030, 0.400, … 384]`. Returns `None` if the
/// elements are not floats, or so few that all of them can be shown.
fn vector(elements: &ArrayRef) -> Option<String> {
    if !elements.data_type().is_floating() || elements.len() <= ELEMENTS_SHOWN {
        return None;
    }
    let floats = cast(&elements.slice(0, ELEMENTS_SHOWN), &DataType::Float64).ok()?;
    let floats = floats.as_primitive::<arrow_array::types::Float64Type>();
    let shown: Vec<String> = floats
        .iter()
        .map(|value| value.map_or_else(|| "null".into(), |value| format!("{value:.3}")))
        .collect();
    Some(format!("[{}, … {}]", shown.join(", "), elements.len()))
}

fn binary(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(BYTES_SHOWN).map(|byte| format!("{byte:02x}")).collect();
    match bytes.len() {
        length if length > BYTES_SHOWN => format!("{shown}… {length} bytes"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Float32Type;
    use arrow_array::{BinaryArray, FixedSizeListArray, Int32Array, StringArray};

    use super::*;

    #[test]
    fn keys_are_shown_whole() {
        let keys: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(&[0xab; 9]), None]));
        assert_eq!(key_text(&keys, 0), Some("ab".repeat(9)));
        assert_eq!(key_text(&keys, 1), None);
    }

    #[test]
    fn values_are_short_and_on_one_line() {
        let shown = |array: ArrayRef| cell(&array, 0);
        assert_eq!(shown(Arc::new(Int32Array::from(vec![7]))), "7");
        assert_eq!(shown(Arc::new(Int32Array::from(vec![None]))), "null");
        assert_eq!(shown(Arc::new(StringArray::from(vec!["a\nb\u{1b}[1m"]))), "a b [1m");
        assert_eq!(shown(Arc::new(BinaryArray::from_vec(vec![b"abc"]))), "616263");
        assert_eq!(
            shown(Arc::new(BinaryArray::from_vec(vec![b"0123456789"]))),
            "3031323334353637… 10 bytes"
        );
        let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
            [Some(vec![Some(0.5), Some(-0.25), Some(1.0), Some(2.0)])],
            4,
        );
        assert_eq!(shown(Arc::new(vectors)), "[0.500, -0.250, 1.000, … 4]");
    }
}
