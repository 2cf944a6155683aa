//! Reads rows by address from the table itself. This is slow; it serves rows that are on no I/O node's drive, or whose
//! I/O node does not answer.

use address::RowAddr;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use futures::{StreamExt, TryStreamExt};

use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::read::columns::Columns;
use crate::read::{read_offsets, scan_addresses};
use crate::table::Table;

/// The maximum number of fragments that one take reads concurrently. Like `FRAGMENTS_OPENING_MAX` in `table.rs`, it
/// leaves most of the requests that a node may have in flight to a store to other tables.
const FRAGMENTS_READ_MAX: usize = 16;

impl Table {
    /// Reads the rows at `addresses`, in the order given; an address may occur several times. `columns` are names of
    /// top-level columns, in the wanted order.
    ///
    /// Errors: `RowNotFound` naming all addresses that this version doesn't have, `ColumnNotFound`, `Corrupt`, and
    /// those of the store.
    pub async fn take(&self, addresses: &[RowAddr], columns: &[String]) -> Result<RecordBatch> {
        let columns = caught(self.uri(), async { Columns::resolve(self, columns) }).await?;
        self.take_columns(addresses, &columns).await
    }

    /// Checks that this version has all rows at `addresses`. Errors: `RowNotFound`, and those of the store.
    pub(crate) async fn check_live(&self, addresses: &[RowAddr]) -> Result<()> {
        let missing = self.missing(addresses).await?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(LakeError::RowNotFound {
                uri: self.uri().to_owned(),
                version: self.version(),
                addresses: missing.into_iter().map(|at| addresses[at]).collect(),
            }),
        }
    }

    /// Reads the rows at `addresses`, as [`take`](Self::take) does.
    pub(crate) async fn take_columns(
        &self,
        addresses: &[RowAddr],
        columns: &Columns,
    ) -> Result<RecordBatch> {
        self.check_live(addresses).await?;
        let mut sorted = addresses.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let batch = caught(self.uri(), self.take_sorted(&sorted, columns)).await?;
        if sorted == addresses {
            return Ok(batch);
        }
        let indices =
            addresses.iter().map(|addr| sorted.binary_search(addr).map_or(0, |at| at as u32));
        let indices = UInt32Array::from_iter_values(indices);
        take_record_batch(&batch, &indices).map_err(|error| self.blame(error.into()))
    }

    /// Returns the positions in `addresses` of the rows that this version doesn't have: the fragment is unknown, the
    /// offset is past its end, or the row is deleted. Loads the deletion vectors of the fragments of `addresses`,
    /// unless they are loaded already. Errors: those of the store.
    pub async fn missing(&self, addresses: &[RowAddr]) -> Result<Vec<usize>> {
        let mut missing = Vec::new();
        let mut last = None;
        for (at, addr) in addresses.iter().enumerate() {
            let Some(info) = self.fragment(addr.fragment()) else {
                missing.push(at);
                continue;
            };
            if addr.offset() >= info.physical_rows {
                missing.push(at);
                continue;
            }
            if info.deleted_rows == 0 {
                continue;
            }
            let deleted = match last {
                Some((fragment, deleted)) if fragment == addr.fragment() => deleted,
                _ => self.deleted(addr.fragment()).await?,
            };
            if deleted.contains(addr.offset()) {
                missing.push(at);
            }
            last = Some((addr.fragment(), deleted));
        }
        Ok(missing)
    }

    /// Returns whether this version doesn't have the row at `addr`, as [`missing`](Self::missing) does, but without
    /// I/O: `None` if the deletions of the row's fragment have not been loaded ([`deleted`](Self::deleted) loads them).
    pub fn is_missing(&self, addr: RowAddr) -> Option<bool> {
        let Some(info) = self.fragment(addr.fragment()) else { return Some(true) };
        if addr.offset() >= info.physical_rows || info.deleted_rows == 0 {
            return Some(addr.offset() >= info.physical_rows);
        }
        Some(self.loaded_deleted(addr.fragment())?.contains(addr.offset()))
    }

    /// Reads the rows at `addresses`, which are ascending, without duplicates, and live.
    async fn take_sorted(&self, addresses: &[RowAddr], columns: &Columns) -> Result<RecordBatch> {
        if addresses.is_empty() {
            return Ok(RecordBatch::new_empty(columns.served.clone()));
        }
        let done = if columns.blob_v2 {
            let raw: Vec<_> = addresses.iter().map(|addr| addr.to_u64()).collect();
            scan_addresses(self.dataset(), &raw, columns).await
        } else {
            // A loop instead of `map`: with a closure the compiler can't prove that the future is `Send`.
            let mut reads = Vec::new();
            for group in addresses.chunk_by(|a, b| a.fragment() == b.fragment()) {
                reads.push(self.take_of_fragment(group, columns));
            }
            let batches: Vec<_> =
                futures::stream::iter(reads).buffered(FRAGMENTS_READ_MAX).try_collect().await?;
            match batches.as_slice() {
                [batch] => Ok(batch.clone()),
                batches => concat_batches(&columns.served, batches).map_err(Into::into),
            }
        };
        done.map_err(|error| self.blame(error))
    }

    async fn take_of_fragment(&self, group: &[RowAddr], columns: &Columns) -> Result<RecordBatch> {
        let fragment = self.file_fragment(group[0].fragment())?;
        let offsets: Vec<_> = group.iter().map(|addr| addr.offset()).collect();
        read_offsets(fragment, &offsets, columns).await.map_err(|error| self.blame(error))
    }
}
