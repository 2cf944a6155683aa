//! Reads the lines of a file that aren't blank, with their numbers.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use crate::error::Result;
use crate::ingest::file::{bad_file, open_file};

/// A reader of lines.
pub(super) struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    number: u64,
    line: String,
}

impl<'a> Lines<'a> {
    /// Opens a file. Errors: `BadFile`.
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        let mut reader = BufReader::new(open_file(path)?);
        skip_mark(&mut reader, path)?;
        Ok(Self { path, reader, number: 0, line: String::new() })
    }

    /// Reads the next line that isn't blank. Returns its number, counted from 1, and the line, or `None` at the end of
    /// the file. Errors: `BadFile`.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &str)>> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.reader.read_line(&mut self.line).map_err(|error| {
                let why = match error.kind() {
                    ErrorKind::InvalidData => "it isn't UTF-8".to_owned(),
                    _ => error.to_string(),
                };
                bad_file(self.path, format!("line {}: {why}", self.number))
            })?;
            if read == 0 {
                return Ok(None);
            }
            if !self.line.trim().is_empty() {
                return Ok(Some((self.number, self.line.trim_end())));
            }
        }
    }
}

/// Skips a byte order mark, which is no part of the first line.
pub(super) fn skip_mark(reader: &mut impl BufRead, path: &Path) -> Result<()> {
    let head = reader.fill_buf().map_err(|error| bad_file(path, error.to_string()))?;
    if head.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    Ok(())
}
