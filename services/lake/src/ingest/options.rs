//! The options, progress and result of an ingest.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::table::index_info::IndexInfo;

/// Whether an ingest creates, extends or replaces the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IngestMode {
    /// Create the table; fail if it exists.
    #[default]
    Create,
    /// Add the rows to the table; fail if it doesn't exist, or if the columns differ. Files may omit nullable columns.
    Append,
    /// Replace all rows (and columns) with the new ones, as a new version; create the table if it doesn't exist. The
    /// indexes are dropped with the old rows.
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

/// The options of an ingest.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// Whether to create, extend or replace the table.
    pub mode: IngestMode,
    /// The column whose values identify rows. It must exist and never be null. Whether its values are unique is checked
    /// when the key is indexed, not here. Of several rows with the same key, look-ups find the first.
    pub key: Option<String>,
    /// Columns of float lists that become vectors (fixed-size lists of `float32`), with their dimension. Needed if the
    /// file itself does not declare them as vectors, such as a Parquet list written without Arrow's schema. In JSON
    /// lines, lists of floats that have the same length, at least 8, in all sampled rows become vectors without being
    /// named.
    pub vectors: Vec<(String, usize)>,
    /// The most rows in a fragment.
    pub max_rows_per_file: usize,
    /// The approximate maximum size of a data file.
    pub max_bytes_per_file: u64,
    /// Lance's file format, such as "2.0" or "2.1"; `None`: the table's own if it exists, otherwise the stable format
    /// of this version of Lance.
    pub storage_version: Option<String>,
    /// Whether a new table gets stable row ids. Compaction changes addresses either way.
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

/// The progress of an ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngestProgress {
    /// Rows passed to the writer.
    pub rows: u64,
    /// Bytes read so far (for Parquet estimated from rows).
    pub bytes_read: u64,
    /// Size of all files.
    pub bytes_total: u64,
}

/// The result of an ingest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestSummary {
    /// Rows written.
    pub rows: u64,
    /// Size of the files.
    pub bytes: u64,
    /// The last version of the table that the ingest committed, or a later one if another writer recorded the same key
    /// column meanwhile. It has the rows, and the key column if there is one.
    pub version: u64,
    /// The table's columns.
    pub columns: Vec<String>,
    /// The column whose values identify rows.
    pub key: Option<String>,
    /// The indexes of a table that was overwritten, which were dropped with its rows.
    pub dropped_indexes: Vec<IndexInfo>,
    /// The duration.
    pub took: Duration,
}
