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

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::UInt64Type;
use futures::{StreamExt, TryStreamExt};
use lance::dataset::Dataset;
use lance::dataset::fragment::{FileFragment, FragReadConfig};
use lance_core::datatypes::BlobHandling;
use lance_core::{Error, ROW_ADDR, Result};

use crate::read::columns::Columns;
use crate::schema::conform;

/// Reads the rows `range` of `fragment`, in order, as the served columns.
pub(crate) async fn read_range(
    fragment: &FileFragment,
    range: Range<u32>,
    columns: &Columns,
) -> Result<RecordBatch> {
    if range.is_empty() {
        return Ok(RecordBatch::new_empty(columns.served.clone()));
    }
    let batch = if columns.blob_v2 {
        scan_range(fragment, range.clone(), columns).await?
    } else {
        let reader = fragment.open(&columns.readable, config()).await?;
        let batches: Vec<_> = reader
            .take_range(range.clone(), range.len() as u32)
            .await?
            .buffered(1)
            .try_collect()
            .await?;
        joined(batches)?
    };
    check_positions(&batch, fragment.id() as u32, range.clone(), range.len())?;
    Ok(conform(&batch, &columns.served)?)
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
) -> Result<RecordBatch> {
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
    scanner.try_into_batch().await
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
