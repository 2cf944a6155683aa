//! Detects a file's format by its name, and checks it against the file's first and last bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::file::bad_file;
use crate::error::Result;

/// The number of bytes at a file's beginning that are checked. A format's mark is within the first few of them; the
/// rest show whether a file without a mark is text.
const HEAD_BYTES: u64 = 4096;

/// The formats that can be ingested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Apache Parquet.
    Parquet,
    /// Text with a header line; commas or tabs between the fields.
    Csv {
        /// The byte between fields.
        delimiter: u8,
    },
    /// One JSON object per line.
    Json,
    /// Arrow IPC with a footer (also called Feather, version 2).
    ArrowFile,
    /// Arrow IPC without a footer.
    ArrowStream,
}

/// The format that a file's name indicates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedFormat {
    Parquet,
    Csv(u8),
    Json,
    Arrow,
}

impl Format {
    /// Detects the format of a file. Errors: `BadFile` if the file doesn't exist, its name has no known extension, or
    /// its contents don't match the name.
    pub(crate) fn detect(path: &Path) -> Result<Self> {
        let (head, tail) = ends(path)?;
        if head.is_empty() {
            return Err(bad_file(path, "it is empty"));
        }
        let named = NamedFormat::of(path)?;
        let found = Contents::of(&head);
        match (named, found) {
            (NamedFormat::Parquet, Contents::Parquet) if tail == *b"PAR1" => Ok(Self::Parquet),
            (NamedFormat::Parquet, Contents::Parquet) => {
                Err(bad_file(path, "a Parquet file cut short: its footer is missing"))
            }
            (NamedFormat::Arrow, Contents::ArrowFile) => Ok(Self::ArrowFile),
            (NamedFormat::Arrow, Contents::ArrowStream) => Ok(Self::ArrowStream),
            (NamedFormat::Csv(delimiter), Contents::Text) => Ok(Self::Csv { delimiter }),
            (NamedFormat::Json, Contents::Objects) => Ok(Self::Json),
            (NamedFormat::Json, Contents::JsonArray) => Err(bad_file(
                path,
                "a JSON array; one object per line is needed (`jq -c '.[]'` converts it)",
            )),
            _ => {
                let why = format!(
                    "not what its name says: named as {}, but holds {}",
                    named.label(),
                    found.label()
                );
                Err(bad_file(path, why))
            }
        }
    }
}

impl NamedFormat {
    fn of(path: &Path) -> Result<Self> {
        let extension =
            path.extension().and_then(|it| it.to_str()).unwrap_or_default().to_ascii_lowercase();
        match extension.as_str() {
            "parquet" | "pq" | "parq" => Ok(Self::Parquet),
            "csv" => Ok(Self::Csv(b',')),
            "tsv" | "tab" => Ok(Self::Csv(b'\t')),
            "jsonl" | "ndjson" | "json" | "jsonlines" => Ok(Self::Json),
            "arrow" | "arrows" | "ipc" | "feather" => Ok(Self::Arrow),
            "gz" | "zst" | "bz2" | "xz" | "zip" => {
                Err(bad_file(path, "the whole file is compressed; unpack it first"))
            }
            _ => {
                let known = ".parquet, .csv, .tsv, .jsonl, .ndjson, .json, .arrow, .arrows, .ipc or .feather";
                Err(bad_file(
                    path,
                    format!("its name doesn't say its format; it should end in {known}"),
                ))
            }
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv(b',') => "CSV",
            Self::Csv(_) => "tab-separated text",
            Self::Json => "JSON lines",
            Self::Arrow => "Arrow IPC",
        }
    }
}

/// The format that a file's bytes look like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Parquet,
    ArrowFile,
    ArrowStream,
    Compressed,
    Objects,
    JsonArray,
    Text,
    Binary,
}

impl Contents {
    fn of(head: &[u8]) -> Self {
        const COMPRESSED: [&[u8]; 4] = [b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh"];
        if head.starts_with(b"PAR1") {
            return Self::Parquet;
        }
        if head.starts_with(b"ARROW1") {
            return Self::ArrowFile;
        }
        if head.starts_with(&[0xff; 4]) {
            return Self::ArrowStream;
        }
        if COMPRESSED.iter().any(|magic| head.starts_with(magic)) {
            return Self::Compressed;
        }
        let is_utf8 = match std::str::from_utf8(head) {
            Ok(_) => true,
            // A character may be cut off at the end of the head.
            Err(error) => error.error_len().is_none() && head.len() as u64 == HEAD_BYTES,
        };
        if !is_utf8 || head.contains(&0) {
            return Self::Binary;
        }
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        match text.trim_ascii_start().split_first() {
            Some((b'{', rest)) if matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')) => {
                Self::Objects
            }
            Some((b'[', _)) => Self::JsonArray,
            _ => Self::Text,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::ArrowFile => "an Arrow IPC file",
            Self::ArrowStream => "an Arrow IPC stream",
            Self::Compressed => "compressed data",
            Self::Objects => "JSON objects",
            Self::JsonArray => "a JSON array",
            Self::Text => "other text",
            Self::Binary => "binary data",
        }
    }
}

fn ends(path: &Path) -> Result<(Vec<u8>, [u8; 4])> {
    let read = || -> std::io::Result<_> {
        let mut file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(std::io::Error::other("a folder, not a file"));
        }
        let mut head = Vec::new();
        file.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
        let mut tail = [0; 4];
        if head.len() >= tail.len() {
            file.seek(SeekFrom::End(-4))?;
            file.read_exact(&mut tail)?;
        }
        Ok((head, tail))
    };
    read().map_err(|error| bad_file(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(name: &str, contents: &[u8]) -> std::result::Result<Format, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        Format::detect(&path)
            .map_err(|error| error.to_string().split_once(": ").unwrap().1.to_owned())
    }

    #[test]
    fn names_and_contents_must_agree() {
        assert_eq!(detect("a.parquet", b"PAR1....PAR1"), Ok(Format::Parquet));
        assert_eq!(detect("a.csv", b"a,b\n1,2\n"), Ok(Format::Csv { delimiter: b',' }));
        assert_eq!(detect("a.TSV", b"a\tb\n"), Ok(Format::Csv { delimiter: b'\t' }));
        assert_eq!(detect("a.jsonl", b" {\"a\":1}\n"), Ok(Format::Json));
        assert_eq!(detect("a.arrow", b"ARROW1\0\0"), Ok(Format::ArrowFile));
        assert_eq!(detect("a.arrow", b"\xff\xff\xff\xff\x10\0\0\0"), Ok(Format::ArrowStream));
        let not = |named: &str, holds: &str| {
            Err(format!("not what its name says: named as {named}, but holds {holds}"))
        };
        assert_eq!(detect("a.parquet", b"a,b\n1,2\n"), not("Parquet", "other text"));
        assert_eq!(detect("a.csv", b"PAR1....PAR1"), not("CSV", "Parquet"));
        assert_eq!(detect("a.csv", b"{\"a\": 1}"), not("CSV", "JSON objects"));
        assert_eq!(detect("a.jsonl", b"a,b\n"), not("JSON lines", "other text"));
        assert_eq!(detect("a.arrow", b"PK\x03\x04"), not("Arrow IPC", "compressed data"));
        assert!(detect("a.json", b"[{\"a\":1}]").unwrap_err().contains("jq -c"));
        assert!(detect("a.parquet", b"PAR1....").unwrap_err().contains("cut short"));
        assert!(detect("a.csv", b"").unwrap_err().contains("empty"));
        assert!(detect("a.csv.gz", b"\x1f\x8b").unwrap_err().contains("unpack"));
        assert!(detect("a.xls", b"x").unwrap_err().contains("should end in"));
    }
}
