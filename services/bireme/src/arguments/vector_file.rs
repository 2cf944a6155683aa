//! Reads a query vector from a file: JSON, plain numbers, raw float32, or NumPy.

mod npy;
mod raw_floats;

use std::io::Read;
use std::path::Path;

use self::raw_floats::raw_floats;
use crate::error::{CliError, Result};

/// The size of the largest file that is read, in bytes. It has room for 500,000 elements even as text, and bounds the
/// memory that a wrong file takes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a vector from `path`; `-` is stdin. Errors name the file.
pub fn read_vector(path: &Path) -> Result<Vec<f32>> {
    let shown = path.display();
    let read = |source: &mut dyn Read| {
        let mut bytes = Vec::new();
        source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = match path.to_str() {
        Some("-") => read(&mut std::io::stdin().lock()),
        _ => std::fs::File::open(path).and_then(|mut file| read(&mut file)),
    };
    let bytes = bytes.map_err(|error| {
        let takes = "--vector takes a file (JSON, text, .npy or .f32), or - for stdin";
        CliError::os(&format!("the vector file {shown} can't be read"), &error, takes)
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CliError::usage(format!("{shown} is too large for one vector")));
    }
    let is_raw = path.extension().is_some_and(|extension| extension == "f32");
    let vector = if is_raw { raw_floats(&bytes) } else { parse(&bytes) };
    vector.and_then(checked).map_err(|why| CliError::usage(format!("{shown}: {why}")))
}

fn parse(bytes: &[u8]) -> std::result::Result<Vec<f32>, String> {
    if bytes.starts_with(npy::MAGIC) {
        return npy::parse(bytes);
    }
    let known = "a JSON array, numbers with spaces or commas between them, .npy, or raw .f32";
    let text =
        std::str::from_utf8(bytes).map_err(|_| format!("it is not a vector: give {known}"))?;
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|error| format!("it is not a JSON array of numbers: {error}"));
    }
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let number =
        |word: &str| word.parse().map_err(|_| format!("`{word}` is not a number: give {known}"));
    words.map(number).collect()
}

fn checked(vector: Vec<f32>) -> std::result::Result<Vec<f32>, String> {
    if vector.is_empty() {
        return Err("the vector is empty".into());
    }
    match vector.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!("element {at} is {}; each must be finite", vector[at])),
        None => Ok(vector),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &[u8]) -> std::result::Result<Vec<f32>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read_vector(&path).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn every_form_gives_the_same_vector() {
        let expected = Ok(vec![1.0, -0.5, 3e-2]);
        assert_eq!(read("v.json", b" [1, -0.5, 3e-2]\n"), expected);
        assert_eq!(read("v.txt", b"1, -0.5,\n3e-2\n"), expected);
        assert_eq!(read("v", b"1\t-0.5 0.03"), expected);
        let raw: Vec<u8> = [1f32, -0.5, 3e-2].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(read("v.f32", &raw), expected);
    }

    #[test]
    fn other_contents_are_refused_with_a_reason() {
        for (name, bytes, why) in [
            ("v.json", &b"[1, \"a\"]"[..], "not a JSON array"),
            ("v.txt", b"1 two", "`two` is not a number"),
            ("v.txt", b"\xff\xfe", "not a vector"),
            ("v.f32", b"12345", "5 bytes"),
            ("v.txt", b"", "empty"),
            ("v.txt", b"1 NaN", "element 1 is NaN"),
        ] {
            let said = read(name, bytes).unwrap_err();
            assert!(said.contains(why) && said.contains(name), "{said}");
        }
        let error = read_vector(Path::new("1,2,3")).unwrap_err();
        assert_eq!(error.exit().number(), 3);
        assert!(error.message().ends_with(", or - for stdin"), "{error:?}");
    }
}
