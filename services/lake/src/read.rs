//! Reads rows of one fragment by their physical offsets, deleted or not, and live rows by their addresses.
//!
//! This module uses Lance's fragment reader instead of the scanner, because the reader needs no query plan and does not
//! read the deletion vector. Each row comes with its address, by which its position is checked. Only blobs of version 2
//! need the scanner: nothing else in Lance 14 returns rows with the contents of such blobs instead of their
//! descriptors. To scan a range with its deleted rows, the deletions are removed from a copy of the manifest, as in
//! Lance's own `read_physical_slice`.

pub(crate) mod blobs;
pub(crate) mod chunk;
pub(crate) mod columns;
pub(crate) mod take;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::UInt64Type;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::dataset::Dataset;
use lance::dataset::fragment::{FileFragment, FragReadConfig};
use lance_core::datatypes::BlobHandling;
use lance_core::{Error, ROW_ADDR, Result};
use wire::HeldMemory;

use crate::read::columns::Columns;
use crate::schema::conform;

/// The limits of a read of a range.
#[derive(Clone, Copy)]
pub(crate) struct ReadLimits {
    /// The maximum number of rows that are decoded at a time.
    pub batch_rows: u32,
    /// The read stops once its rows take more than this number of bytes in memory.
    pub bytes_max: u64,
}

/// Reads the rows `range` of `fragment`, in order, as the served columns.
pub(crate) async fn read_range(
    fragment: &FileFragment,
    range: Range<u32>,
    columns: &Columns,
) -> Result<RecordBatch> {
    let limits = ReadLimits { batch_rows: range.len() as u32, bytes_max: u64::MAX };
    // Boxed, because futures that are nested deeper are too deep for the compiler in tests of other crates.
    joined(read_batches(fragment, range, columns, limits).boxed().await?)
}

/// Reads the first rows of `range` of `fragment`, in order, as the served columns: all of them, unless the limit of
/// bytes ends the read. Returns at least one batch.
pub(crate) async fn read_batches(
    fragment: &FileFragment,
    range: Range<u32>,
    columns: &Columns,
    limits: ReadLimits,
) -> Result<Vec<RecordBatch>> {
    if range.is_empty() {
        return Ok(vec![RecordBatch::new_empty(columns.served.clone())]);
    }
    let rows = limits.batch_rows.clamp(1, range.len() as u32);
    let mut batches = if columns.blob_v2 {
        scan_range(fragment, range.clone(), columns, rows).await?
    } else {
        let reader = fragment.open(&columns.readable, config()).await?;
        reader.take_range(range.clone(), rows).await?.buffered(1).boxed()
    };
    let (mut read, mut held, mut next) = (Vec::new(), HeldMemory::default(), range.start);
    while held.bytes() as u64 <= limits.bytes_max
        && let Some(batch) = batches.try_next().await?
    {
        let end = next + batch.num_rows() as u32;
        check_positions(&batch, fragment.id() as u32, next..end, batch.num_rows())?;
        let served = conform(&batch, &columns.served)?;
        drop(batch);
        // A batch of all rows is used at once, so shortening its buffers would only cost time.
        let is_last = end >= range.end;
        let batch = if read.is_empty() && is_last { served } else { shrunk(served)? };
        held.add(batch.columns());
        read.push(batch);
        next = end;
    }
    let is_cut = held.bytes() as u64 > limits.bytes_max && next < range.end;
    if read.is_empty() || next != range.end && !is_cut {
        return Err(Error::internal(format!(
            "fragment {}: asked for the rows {}..{}, and those up to {next} came",
            fragment.id(),
            range.start,
            range.end
        )));
    }
    Ok(read)
}

/// Returns the batch with buffers that are no longer than their contents. Those that Lance decodes may be several times
/// as long.
fn shrunk(batch: RecordBatch) -> Result<RecordBatch> {
    let (schema, mut columns, rows) = batch.into_parts();
    for column in &mut columns {
        column.shrink_to_fit();
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// Reads the rows at `offsets` (ascending, without duplicates, all in the fragment) as the served columns. Blobs of
/// version 2 need [`scan_addresses`] instead.
pub(crate) async fn read_offsets(
    fragment: &FileFragment,
    offsets: &[u32],
    columns: &Columns,
) -> Result<RecordBatch> {
    let reader = fragment.open(&columns.readable, config()).await?;
    let batch = reader.take_as_batch(offsets, None).await?;
    check_positions(&batch, fragment.id() as u32, offsets.iter().copied(), offsets.len())?;
    Ok(conform(&batch, &columns.served)?)
}

/// Reads the live rows at `addresses` (ascending, without duplicates) through the scanner, in that order.
pub(crate) async fn scan_addresses(
    dataset: &Arc<Dataset>,
    addresses: &[u64],
    columns: &Columns,
) -> Result<RecordBatch> {
    let list = addresses.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let mut scanner = dataset.scan();
    scanner.project_with_schema(&columns.stored)?;
    scanner.blob_handling(BlobHandling::AllBinary).with_row_address().scan_in_order(true);
    scanner.filter(&format!("{ROW_ADDR} IN ({list})"))?;
    let batch = scanner.try_into_batch().await?;
    if row_addresses(&batch)? != addresses {
        return Err(Error::internal(format!(
            "asked for {} rows by address, got other rows",
            addresses.len()
        )));
    }
    Ok(conform(&batch, &columns.served)?)
}

async fn scan_range(
    fragment: &FileFragment,
    range: Range<u32>,
    columns: &Columns,
    batch_rows: u32,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let mut undeleted = fragment.metadata().clone();
    undeleted.deletion_file = None;
    let mut dataset = fragment.dataset().clone();
    let mut manifest = dataset.manifest.as_ref().clone();
    manifest.fragments = Arc::new(vec![undeleted.clone()]);
    dataset.manifest = Arc::new(manifest);
    let mut scanner = FileFragment::new(Arc::new(dataset), undeleted).scan();
    scanner.project_with_schema(&columns.stored)?;
    scanner.blob_handling(BlobHandling::AllBinary).with_row_address().scan_in_order(true);
    scanner.limit(Some(range.len() as i64), Some(i64::from(range.start)))?;
    scanner.batch_size(batch_rows as usize).batch_readahead(1);
    Ok(scanner.try_into_stream().await?.boxed())
}

fn config() -> FragReadConfig {
    // With the address as a column, the reader works even if the fragment has no data for any of the other columns.
    FragReadConfig::default().with_ignore_deletions(true).with_row_address(true)
}

fn joined(mut batches: Vec<RecordBatch>) -> Result<RecordBatch> {
    match batches.len() {
        0 => Err(Error::internal("a fragment's reader returned no batch")),
        1 => Ok(batches.remove(0)),
        _ => Ok(concat_batches(&batches[0].schema(), &batches)?),
    }
}

fn row_addresses(batch: &RecordBatch) -> Result<&[u64]> {
    let column =
        batch.column_by_name(ROW_ADDR).and_then(|column| column.as_primitive_opt::<UInt64Type>());
    Ok(column.ok_or_else(|| Error::internal("a read came without row addresses"))?.values())
}

fn check_positions(
    batch: &RecordBatch,
    fragment: u32,
    offsets: impl Iterator<Item = u32>,
    expected: usize,
) -> Result<()> {
    let got = row_addresses(batch)?;
    let right = got.len() == expected
        && got
            .iter()
            .zip(offsets)
            .all(|(addr, offset)| *addr == u64::from(fragment) << 32 | u64::from(offset));
    if right {
        return Ok(());
    }
    Err(Error::internal(format!(
        "fragment {fragment}: asked for {expected} rows, got {} or others",
        got.len()
    )))
}
