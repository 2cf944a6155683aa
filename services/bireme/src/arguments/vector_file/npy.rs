//! Reads NumPy's `.npy` files that have one dimension of float32.
//!
//! ```text
//! \x93NUMPY | major minor | header length (u16, from version 2 on u32) | header | data
//! header: {'descr': '<f4', 'fortran_order': False, 'shape': (384,), }
//! ```

use super::raw_floats::raw_floats;

/// The bytes that a file begins with.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Returns the vector in a `.npy` file.
pub fn parse(bytes: &[u8]) -> Result<Vec<f32>, String> {
    let cut_short = || "the .npy file is cut short".to_owned();
    let major = *bytes.get(6).ok_or_else(cut_short)?;
    let number = |range: std::ops::Range<usize>| {
        let bytes = bytes.get(range)?;
        Some(bytes.iter().rev().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte)))
    };
    let (start, length) = match major {
        1 => (10, number(8..10)),
        2 | 3 => (12, number(8..12)),
        other => return Err(format!("version {other} of .npy is not supported")),
    };
    let end = start + length.ok_or_else(cut_short)?;
    let header = bytes.get(start..end).ok_or_else(cut_short)?;
    let header = String::from_utf8_lossy(header);
    let data_type = between(&header, "'descr':", ",").unwrap_or_default();
    if data_type != "'<f4'" {
        return Err(format!("it holds {data_type}; save it with .astype('float32')"));
    }
    let shape = between(&header, "'shape':", ")").unwrap_or_default();
    let sizes: Vec<&str> = shape
        .trim_start_matches('(')
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .collect();
    let [size] = sizes.as_slice() else {
        return Err(format!("its shape is {shape}); give one vector, such as array[0]"));
    };
    let vector = raw_floats(&bytes[end..])?;
    if size.parse() != Ok(vector.len()) {
        return Err(format!("its shape says {size} elements, and it holds {}", vector.len()));
    }
    Ok(vector)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, values: &[f32]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn header(descr: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}   \n")
    }

    #[test]
    fn one_dimension_of_float32_is_read() {
        assert_eq!(parse(&file(&header("<f4", "(2,)"), &[1.0, 2.0])), Ok(vec![1.0, 2.0]));
    }

    #[test]
    fn other_contents_are_refused_by_name() {
        for (bytes, why) in [
            (file(&header("<f8", "(2,)"), &[1.0]), "'<f8'"),
            (file(&header("<f4", "(1, 2)"), &[1.0, 2.0]), "(1, 2)"),
            (file(&header("<f4", "(3,)"), &[1.0]), "says 3 elements, and it holds 1"),
            (MAGIC.to_vec(), "cut short"),
            (file("", &[])[..9].to_vec(), "cut short"),
        ] {
            let said = parse(&bytes).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
