//! How to ingest, how far it is, what came of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::index::IndexInfo;

/// What to do about a table that exists, or doesn't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IngestMode {
    /// Make a new table; fail if there is one.
    #[default]
    Create,
    /// Add the rows to the table; fail if there is none, or if the columns differ.
    Append,
    /// Replace all rows (and columns) by the new ones, as a new version; make the table if there
    /// is none. Indexes are gone with the old rows.
    Overwrite,
}

impl fmt::Display for IngestMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Append => "append",
            Self::Overwrite => "overwrite",
        })
    }
}

impl FromStr for IngestMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "create" => Ok(Self::Create),
            "append" => Ok(Self::Append),
            "overwrite" => Ok(Self::Overwrite),
            _ => Err(format!("{text:?} is no mode: create, append or overwrite")),
        }
    }
}

/// How to ingest.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// About a table that exists.
    pub mode: IngestMode,
    /// The column whose values name rows. It must be there and never null. That its values are
    /// unique is not checked here, but when the key is indexed: of several rows with a key,
    /// look-ups find the first.
    pub key: Option<String>,
    /// Columns of float lists that are to become vectors (fixed-size lists of `float32`), with
    /// their dimension. Needed where the file can't say so itself: a Parquet list written without
    /// Arrow's schema. In JSON lines, lists of floats that have the same length of at least 8 in
    /// all sampled rows become vectors without being named.
    pub vectors: Vec<(String, usize)>,
    /// Rows that a fragment has at most.
    pub max_rows_per_file: usize,
    /// Bytes that a data file has at most, about.
    pub max_bytes_per_file: u64,
    /// Lance's file format, as "2.0" or "2.1"; `None`: the stable one of this Lance, or the
    /// table's own when it exists.
    pub storage_version: Option<String>,
    /// Whether a new table gets stable row ids. Addresses change by compaction either way.
    pub stable_row_ids: bool,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            mode: IngestMode::default(),
            key: None,
            vectors: Vec::new(),
            max_rows_per_file: 1 << 20,
            max_bytes_per_file: 90 << 30,
            storage_version: None,
            stable_row_ids: false,
        }
    }
}

/// How far an ingest is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngestProgress {
    /// Rows handed to the writer.
    pub rows: u64,
    /// Bytes of the files that are read (for Parquet estimated by rows).
    pub bytes_read: u64,
    /// Bytes of all files.
    pub bytes_total: u64,
}

/// What an ingest did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestSummary {
    /// Rows written.
    pub rows: u64,
    /// Bytes of the files read.
    pub bytes: u64,
    /// The version of the table that has them.
    pub version: u64,
    /// The table's columns.
    pub columns: Vec<String>,
    /// The one whose values name rows.
    pub key: Option<String>,
    /// The indexes that went with the rows they were on, of a table that was overwritten.
    pub dropped_indexes: Vec<IndexInfo>,
    /// How long it took.
    pub took: Duration,
}
