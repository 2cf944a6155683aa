//! Finds the first live row of each key directly in a BTREE, without the scanner.
//!
//! Each key is one search, because the answer for several keys does not say which key a row has. A search compares the
//! key with every page of the index (4,096 rows each) that may hold the key, in memory if Lance's cache has the page.
//! The search does not yield meanwhile, so a key that many rows have blocks the thread for a long time.

use std::collections::{HashMap, HashSet};

use address::RowAddr;
use datafusion::scalar::ScalarValue;
use futures::{StreamExt, TryStreamExt, stream};
use lance_core::Error;
use tokio::task::yield_now;

use super::btree::KeyBtree;
use crate::error::Result;
use crate::table::Table;

/// Maximum number of keys of one direct look-up. Each key's search reads its pages by itself if they are not in memory,
/// whereas a plan for all keys reads adjacent pages together. In memory, both cost the same at about 40 keys with an
/// index of one page, and at 150 keys with one of 25 pages.
pub const DIRECT_KEYS_MAX: usize = 64;

/// Number of keys that are searched concurrently, and after which the task yields. In memory, a key takes less than the
/// 86 µs of a whole Get (`docs/performance.md`), so the task yields after a millisecond or so.
const KEYS_AT_ONCE: usize = 16;

/// The task yields after an answer of more than this number of rows, and each time that it has examined this number of
/// rows of an answer.
const ROWS_AT_ONCE: usize = 1024;

impl Table {
    /// Returns for each value the first live row that has it, or `None` if there is none or the value is null. `index`
    /// is the column's BTREE.
    pub(crate) async fn first_rows(
        &self,
        index: &KeyBtree,
        values: &[ScalarValue],
    ) -> Result<Vec<Option<RowAddr>>> {
        let mut distinct = HashSet::with_capacity(values.len());
        let mut searches = Vec::with_capacity(values.len());
        for value in values {
            if !value.is_null() && distinct.insert(value) {
                searches.push(self.first_row(index, value));
            }
        }
        // Searches in memory complete one by one, so the task can yield between two keys.
        let mut searches = stream::iter(searches).buffer_unordered(KEYS_AT_ONCE);
        let mut rows = HashMap::with_capacity(distinct.len());
        while let Some(FirstRow { value, row, is_large }) = searches.try_next().await? {
            rows.insert(value, row);
            let is_turn_over = is_large || rows.len() % KEYS_AT_ONCE == 0;
            if is_turn_over && rows.len() < distinct.len() {
                yield_now().await;
            }
        }
        Ok(values.iter().map(|value| rows.get(value).copied().flatten()).collect())
    }

    async fn first_row<'a>(
        &self,
        index: &KeyBtree,
        value: &'a ScalarValue,
    ) -> Result<FirstRow<'a>> {
        let found = index.search(value).await.map_err(|error| self.blame(error))?;
        let rows = found.row_addrs().selected_rows();
        let inexact = || self.blame(Error::internal("a BTREE index returned inexact rows"));
        let is_large = rows.row_addrs().is_some_and(|mut it| it.nth(ROWS_AT_ONCE).is_some());
        let addresses = rows.row_addrs().filter(|_| found.is_exact()).ok_or_else(inexact)?;
        for (seen, row) in (1..).zip(addresses) {
            let addr = RowAddr::from_u64(row.into());
            // The index still has rows that were deleted after it was built.
            if self.missing(&[addr]).await?.is_empty() {
                return Ok(FirstRow { value, row: Some(addr), is_large });
            }
            if seen % ROWS_AT_ONCE == 0 {
                yield_now().await;
            }
        }
        Ok(FirstRow { value, row: None, is_large })
    }
}

/// The first row of one key.
struct FirstRow<'a> {
    value: &'a ScalarValue,
    row: Option<RowAddr>,
    /// Whether the index has more than [`ROWS_AT_ONCE`] rows with the key.
    is_large: bool,
}
