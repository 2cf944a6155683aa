//! Writes files of rows into a table: Parquet, CSV, JSON lines, Arrow IPC.
//!
//! In the order data flows: `format.rs` (detects a file's format), `parquet.rs`, `csv.rs`, `json.rs`, `ipc.rs` (read
//! batches from one file), `finite.rs` (finds numbers that are not finite), `target.rs` (the columns of the table, and
//! the conversion of batches to them), `pump.rs` (a thread that reads ahead of the writer), `write.rs` (writes into
//! Lance, all or nothing). Everything streams: memory holds a few batches of about [`BATCH_BYTES`], and the buffers of
//! Lance's writer.

mod counter;
mod csv;
mod file;
mod finite;
mod format;
mod ipc;
mod json;
mod options;
mod parquet;
mod pump;
mod rows;
mod source;
mod target;
mod write;

pub use options::{IngestMode, IngestOptions, IngestProgress, IngestSummary};
pub use rows::{FileRows, read_file, read_keys};
pub use write::ingest;

/// The approximate size of a batch, in bytes. It determines the number of rows.
const BATCH_BYTES: u64 = 8 << 20;

/// The most rows in a batch.
const BATCH_ROWS_MAX: u64 = 8192;

/// The number of rows in a batch, for rows of `row_bytes`.
fn batch_rows(row_bytes: u64) -> usize {
    (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX) as usize
}
