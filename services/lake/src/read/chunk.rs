//! Reads chunks of a fragment, to fill the cache.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::FieldRef;
use lance::dataset::fragment::FileFragment;
use lance_file::version::ConcreteFileVersion;
use lance_table::format::{DataFile, Fragment};
use tables::{FragmentInfo, fixed_bytes};

use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::read::columns::Columns;
use crate::read::{ReadLimits, read_batches, read_range};
use crate::table::Table;

/// The maximum number of rows of variable width that are decoded at a time, and by which a read can exceed its limit of
/// bytes. Fewer rows would bound the memory more closely, but each batch costs time of its own. Encoding casts the
/// Arrow dictionaries of a batch to plain values before it checks their length, so it can exceed its limit by the plain
/// values of as many rows.
const BATCH_ROWS_MAX: u64 = 256;

/// The bytes of a fragment's files, on average over its rows, that are decoded at a time if rows have variable width.
const BATCH_FILE_BYTES: u64 = 256 << 10;

/// The maximum number of rows of variable width that are decoded at a time if Lance sends requests for each batch
/// ([`sends_requests_by_batch`]). A batch of a legacy file ends with its group too, which has 1,024 rows by default.
const REQUESTED_ROWS_MAX: u64 = 4096;

/// As [`BATCH_FILE_BYTES`], if Lance sends requests for each batch. Blobs and values of legacy files take as much
/// memory as space in the file, so this bounds the memory of a batch, except for Arrow dictionaries. The bound is
/// looser for fragments with overlays, whose files may be compressed.
const REQUESTED_FILE_BYTES: u64 = 8 << 20;

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
    /// first rows, in order. Exceeds the limit by at most one batch: of 256 rows, or of up to 4,096 if Lance sends
    /// requests for each batch. Arrow dictionaries count as they are read, not by the plain values that they stand for.
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
            let limits = match batch_rows(file_fragment, info, &columns) {
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
fn batch_rows(
    fragment: &FileFragment,
    info: Option<&FragmentInfo>,
    columns: &Columns,
) -> Option<u32> {
    let is_fixed = |field: &FieldRef| fixed_bytes(field.data_type()).is_some();
    if columns.served.fields().iter().all(is_fixed) {
        return None;
    }
    if columns.blob_v2 {
        return Some(BATCH_BLOBS);
    }
    let row_bytes = info.map_or(0, FragmentInfo::row_bytes);
    // An I/O node reads at most 64 rows of a column of blobs at a time, so a batch stays bounded if its blobs are far
    // longer than the average. It reads more rows of a column with nested blobs, so these do not count.
    let has_blobs = columns.stored.fields.iter().any(|field| field.is_blob());
    let (file_bytes, rows_max) = match sends_requests_by_batch(fragment.metadata(), has_blobs) {
        true => (REQUESTED_FILE_BYTES, REQUESTED_ROWS_MAX),
        false => (BATCH_FILE_BYTES, BATCH_ROWS_MAX),
    };
    Some((file_bytes / row_bytes.max(1)).clamp(1, rows_max) as u32)
}

/// Returns whether Lance sends requests to the store for each batch: for each column of a file of the legacy format,
/// for the blobs of a file of version 2.0, and for each overlay. It reads other files ahead, however short the batches
/// are.
fn sends_requests_by_batch(fragment: &Fragment, has_blobs: bool) -> bool {
    let is_read_by_batch = |file: &DataFile| match file.file_version() {
        Ok(ConcreteFileVersion::V1) => true,
        Ok(ConcreteFileVersion::V2_0) => has_blobs,
        _ => false,
    };
    fragment.files.iter().any(is_read_by_batch) || !fragment.overlays.is_empty()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, FixedSizeListArray, Float32Array, Int32Array, LargeBinaryArray,
        RecordBatchIterator, StringArray,
    };
    use arrow::datatypes::{DataType, Field, Schema};
    use lance::Dataset;
    use lance::dataset::WriteParams;
    use lance_arrow::BLOB_META_KEY;
    use lance_file::version::LanceFileVersion;
    use lance_table::format::overlay::{DataOverlayFile, OverlayCoverage};
    use tempfile::TempDir;

    use super::*;
    use crate::{Lake, LakeOptions};

    const ROWS: u32 = 4096;

    /// Opens a new table with [`ROWS`] rows of the columns `id`, `text` and `vector`.
    async fn table(folder: &TempDir, version: LanceFileVersion) -> Table {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS as i32));
        let texts = StringArray::from_iter_values((0..ROWS).map(|row| format!("row {row}")));
        let texts: ArrayRef = Arc::new(texts);
        let values = Arc::new(Float32Array::from(vec![0.5; ROWS as usize * 16]));
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(item, 16, values, None));
        let columns = [("id", ids), ("text", texts), ("vector", vectors)];
        table_of(RecordBatch::try_from_iter(columns).unwrap(), folder, version).await
    }

    /// Opens a new table with the rows of `batch`.
    async fn table_of(batch: RecordBatch, folder: &TempDir, version: LanceFileVersion) -> Table {
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        let params = WriteParams { data_storage_version: Some(version), ..Default::default() };
        Dataset::write(batches, &uri, Some(params)).await.unwrap();
        Lake::new(LakeOptions::default()).open(&uri).await.unwrap()
    }

    /// Checks that a bounded read of the first `rows` rows sends no more requests than one without a limit.
    async fn check_requests(table: &Table, rows: u32, columns: &[String]) {
        let store = table.dataset().object_store(None).await.unwrap();
        // The requests since the last call.
        let requests = || store.io_stats_incremental().read_iops;
        // The first read also reads the metadata of the file.
        table.read_chunk(0, 0..rows, columns).await.unwrap();
        requests();
        table.read_chunk(0, 0..rows, columns).await.unwrap();
        let unbounded = requests();
        table.read_chunk_within(0, 0..rows, columns, u64::MAX).await.unwrap();
        let bounded = requests();
        assert!(bounded > 0 && bounded <= unbounded, "{bounded} requests, not {unbounded}");
    }

    #[tokio::test]
    async fn a_bounded_read_of_a_legacy_file_sends_no_more_requests_than_one_without_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&folder, LanceFileVersion::Legacy).await;
        check_requests(&table, ROWS, &["id", "text", "vector"].map(str::to_owned)).await;
    }

    #[tokio::test]
    async fn a_bounded_read_of_blobs_sends_no_more_requests_than_one_without_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = HashMap::from([(BLOB_META_KEY.to_owned(), "true".to_owned())]);
        let field = Field::new("blob", DataType::LargeBinary, true).with_metadata(metadata);
        let blobs = LargeBinaryArray::from_iter_values((0..64_u8).map(|row| vec![row; 100 << 10]));
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(blobs)]).unwrap();
        let table = table_of(batch, &folder, LanceFileVersion::V2_0).await;
        check_requests(&table, 64, &["blob".to_owned()]).await;
    }

    #[tokio::test]
    async fn batches_of_a_fragment_with_overlays_are_longer() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&folder, LanceFileVersion::V2_1).await;
        let columns = Columns::resolve(&table, &["text".to_owned()]).unwrap();
        let (plain, info) = table.fragment_with(0, &(0..ROWS)).unwrap();
        assert_eq!(batch_rows(plain, info, &columns), Some(256));
        let mut metadata = plain.metadata().clone();
        metadata.overlays.push(DataOverlayFile {
            data_file: metadata.files[0].clone(),
            coverage: OverlayCoverage::Shared(Arc::default()),
            committed_version: 2,
        });
        let overlaid = FileFragment::new(Arc::clone(table.dataset()), metadata);
        assert_eq!(batch_rows(&overlaid, info, &columns), Some(4096));
    }
}
