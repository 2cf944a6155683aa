//! Reads chunks of a fragment, to fill the cache.

use std::ops::Range;

use arrow::array::RecordBatch;
use lance::dataset::fragment::FileFragment;
use tables::FragmentInfo;

use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::read::columns::Columns;
use crate::read::{ReadLimits, read_batches, read_range};
use crate::schema::has_fixed_width;
use crate::table::Table;

/// The maximum number of rows of variable width that are decoded at a time, and by which a read can exceed its limit of
/// bytes. Fewer rows would bound the memory more closely, but each batch costs time of its own.
const BATCH_ROWS_MAX: u64 = 256;

/// The bytes of a fragment's files, on average over its rows, that are decoded at a time if rows have variable width.
const BATCH_FILE_BYTES: u64 = 256 << 10;

/// The maximum number of rows with blobs of version 2 that are read at a time. The fragment's own files do not show how
/// long these blobs are.
const BATCH_BLOBS: u32 = 64;

impl Table {
    /// Reads the rows at the physical offsets `rows` of `fragment`. Returns exactly `rows.len()` rows, in order;
    /// deleted rows are included (with their old values, or nulls). `columns` are names of top-level columns, in the
    /// wanted order; a column without data in the fragment is null.
    ///
    /// Errors: `FragmentNotFound`, `RangeOutOfBounds`, `ColumnNotFound`, `Corrupt`, and those of
    /// the store.
    pub async fn read_chunk(
        &self,
        fragment: u32,
        rows: Range<u32>,
        columns: &[String],
    ) -> Result<RecordBatch> {
        let (file_fragment, _) = self.fragment_with(fragment, &rows)?;
        let read = async {
            let columns = Columns::resolve(self, columns)?;
            let read = read_range(file_fragment, rows, &columns).await;
            read.map_err(|error| self.blame(error))
        };
        caught(self.uri(), read).await
    }

    /// Reads the rows at the physical offsets `rows` of `fragment`, like [`read_chunk`](Self::read_chunk), but stops
    /// once those of variable width take more than `bytes_max` bytes in memory. Returns one or more batches of the
    /// first rows, in order. Exceeds the limit by at most a batch of 256 rows.
    ///
    /// Errors: those of [`read_chunk`](Self::read_chunk).
    pub async fn read_chunk_within(
        &self,
        fragment: u32,
        rows: Range<u32>,
        columns: &[String],
        bytes_max: u64,
    ) -> Result<Vec<RecordBatch>> {
        let (file_fragment, info) = self.fragment_with(fragment, &rows)?;
        let read = async {
            let columns = Columns::resolve(self, columns)?;
            let limits = match batch_rows(info, &columns) {
                Some(batch_rows) => ReadLimits { batch_rows, bytes_max },
                None => ReadLimits { batch_rows: rows.len() as u32, bytes_max: u64::MAX },
            };
            let read = read_batches(file_fragment, rows, &columns, limits).await;
            read.map_err(|error| self.blame(error))
        };
        caught(self.uri(), read).await
    }

    /// Returns a fragment that has these rows. Errors: `FragmentNotFound`, `RangeOutOfBounds`.
    fn fragment_with(
        &self,
        fragment: u32,
        rows: &Range<u32>,
    ) -> Result<(&FileFragment, Option<&FragmentInfo>)> {
        let file_fragment = self.file_fragment(fragment)?;
        let info = self.fragment(fragment);
        let physical_rows = info.map_or(0, |info| info.physical_rows);
        if rows.start > rows.end || rows.end > physical_rows {
            let Range { start, end } = *rows;
            return Err(LakeError::RangeOutOfBounds { fragment, start, end, physical_rows });
        }
        Ok((file_fragment, info))
    }
}

/// Returns the number of rows to decode at a time, so that a batch is short even if its rows take many times as much
/// memory as space in the files; `None` if all columns have fixed width, so that the caller knows what rows take.
fn batch_rows(info: Option<&FragmentInfo>, columns: &Columns) -> Option<u32> {
    if columns.served.fields().iter().all(|field| has_fixed_width(field.data_type())) {
        return None;
    }
    if columns.blob_v2 {
        return Some(BATCH_BLOBS);
    }
    let row_bytes =
        info.map_or(0, |info| info.data_bytes.unwrap_or(0) / u64::from(info.physical_rows.max(1)));
    Some((BATCH_FILE_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX) as u32)
}
