//! Files of rows into a table: Parquet, CSV, JSON lines, Arrow IPC.
//!
//! In the order data flows: `format.rs` (what a file is), `parquet.rs`, `csv.rs`, `json.rs`,
//! `ipc.rs` (batches out of one file), `finite.rs` (numbers that were too large in text),
//! `target.rs` (the columns that the table is to have, and batches brought into them), `pump.rs`
//! (a reading thread ahead of the writer), `write.rs` (into Lance, all or nothing). Everything
//! streams: what is in memory is a few batches of about [`BATCH_BYTES`], and what Lance's writer
//! buffers.

mod counter;
mod csv;
mod finite;
mod format;
mod ipc;
mod json;
mod options;
mod parquet;
mod pump;
mod source;
mod target;
mod write;

pub use options::{IngestMode, IngestOptions, IngestProgress, IngestSummary};
pub use write::ingest;

/// Bytes that a batch should have, about; its number of rows follows from their size.
const BATCH_BYTES: u64 = 8 << 20;

/// Rows that a batch has at most.
const BATCH_ROWS_MAX: u64 = 8192;

/// Rows of `row_bytes` each that a batch should have.
fn batch_rows(row_bytes: u64) -> usize {
    (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX) as usize
}
