//! The first rows of a file, from which its types are inferred.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::Value;

use super::key_order::KeyOrder;
use super::lines::Lines;
use crate::error::Result;
use crate::ingest::file::bad_file;

/// The maximum number of rows from which types are inferred. They are fewer than for CSV, because they are kept in
/// memory.
const ROWS_SAMPLED: usize = 1_000;

/// No more rows are sampled once the sampled rows have this number of bytes.
const BYTES_SAMPLED: u64 = 64 << 20;

/// The first rows of a file.
pub(super) struct Sample {
    /// Objects, at least one.
    pub rows: Vec<Value>,
    /// The order of their keys.
    pub order: KeyOrder,
    bytes: u64,
}

impl Sample {
    /// Reads the first rows. Errors: `BadFile` if a line is not a JSON object, with the line's number, or if there are
    /// no rows.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut sample = Self { rows: Vec::new(), order: KeyOrder::default(), bytes: 0 };
        let mut lines = Lines::open(path)?;
        while sample.rows.len() < ROWS_SAMPLED && sample.bytes < BYTES_SAMPLED {
            let Some((number, line)) = lines.next()? else { break };
            sample.add(line).map_err(|why| bad_file(path, format!("line {number} {why}")))?;
        }
        if sample.rows.is_empty() {
            return Err(bad_file(path, "no rows"));
        }
        Ok(sample)
    }

    fn add(&mut self, line: &str) -> std::result::Result<(), String> {
        let value = serde_json::from_str(line).map_err(|error| not_an_object(&error))?;
        if !matches!(value, Value::Object(_)) {
            return Err("isn't a JSON object, but another value".to_owned());
        }
        self.order.learn(line).map_err(|error| not_an_object(&error))?;
        self.rows.push(value);
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Returns the mean size of a row, in bytes.
    pub(super) fn row_bytes(&self) -> u64 {
        self.bytes / (self.rows.len() as u64).max(1)
    }

    /// Returns the keys whose values are all whole numbers, at least one of them beyond `int64`. As floats, these
    /// numbers would lose digits.
    ///
    /// Errors: such a key also has a number below 0, so that no type can hold all its numbers.
    pub(super) fn whole_numbers(&self) -> std::result::Result<HashSet<&str>, String> {
        let (mut large, mut small, mut others) = (HashSet::new(), HashMap::new(), HashSet::new());
        for (key, value) in self.rows.iter().filter_map(Value::as_object).flatten() {
            match value {
                Value::Null => {}
                Value::Number(number) if number.is_i64() => {
                    if number.as_i64().is_some_and(|it| it < 0) {
                        small.entry(key.as_str()).or_insert(number);
                    }
                }
                Value::Number(number) if number.is_u64() => drop(large.insert(key.as_str())),
                _ => drop(others.insert(key.as_str())),
            }
        }
        large.retain(|key| !others.contains(key));
        match large.iter().find_map(|key| Some((key, small.get(key)?))) {
            Some((key, number)) => Err(format!(
                "column {key:?} has {number} and numbers beyond 9223372036854775807, for which there is no type; \
                 write them as text"
            )),
            None => Ok(large),
        }
    }

    /// Returns the length of the lists of each key that has lists; `None` if their lengths differ.
    pub(super) fn list_lengths(&self) -> HashMap<&str, Option<usize>> {
        let mut lengths: HashMap<&str, Option<usize>> = HashMap::new();
        for (key, value) in self.rows.iter().filter_map(Value::as_object).flatten() {
            if let Some(list) = value.as_array() {
                let same = lengths.entry(key).or_insert(Some(list.len()));
                *same = same.filter(|length| *length == list.len());
            }
        }
        lengths
    }
}

/// Converts the parser's message. The parser was given one line, so the line number in its message is always 1. It is
/// replaced by the position in the line.
fn not_an_object(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    format!("isn't a JSON object: {what} (character {})", error.column())
}
