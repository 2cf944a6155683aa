//! Rows by key straight through a BTREE, without the scanner.
//!
//! One search a key, as an answer for several doesn't say which key a row has. A search compares every page of
//! the index (4,096 rows each) that may hold the key, in memory if Lance's cache has it, and lets nobody have a turn
//! meanwhile: of a column with many rows a key that takes long.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use address::RowAddr;
use datafusion::scalar::ScalarValue;
use futures::{StreamExt, TryStreamExt, stream};
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_core::Error;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::{SargableQuery, ScalarIndex, SearchOptions};
use tokio::task::yield_now;

use super::direct::sole_segment;
use crate::error::Result;
use crate::table::Table;

/// Keys of one look-up, at most: each reads its page alone if it isn't in memory, where a plan for all keys reads
/// neighbours together. In memory both cost the same at about 40 keys of an index of one page, and 150 of 25.
pub(crate) const KEYS_MAX: usize = 64;

/// Keys that are searched for at the same time, and before others on the thread get their turn.
const KEYS_AT_ONCE: usize = 16;

/// Rows of one answer, and rows of it that are looked at, before others get their turn.
const ROWS_AT_ONCE: usize = 1024;

/// How Lance's details of a BTREE are named.
const BTREE_DETAILS: &str = "BTreeIndexDetails";

/// A BTREE that covers the whole version, opened.
#[derive(Clone)]
pub(crate) struct Keys {
    index: Arc<dyn ScalarIndex>,
}

impl Keys {
    /// The first BTREE on the column at `position` that is all that a look-up needs; `None` if there is none. One
    /// that doesn't say that it is a BTREE, as an old Lance left them, is none.
    pub async fn open(table: &Table, position: usize) -> lance_core::Result<Option<Self>> {
        let dataset = table.dataset();
        let field = &dataset.schema().fields[position];
        for index in dataset.load_indices().await?.iter() {
            let details = index.index_details.as_ref();
            let is_btree = details.is_some_and(|it| it.type_url.ends_with(BTREE_DETAILS));
            if !is_btree || index.fields != [field.id] {
                continue;
            }
            if let Some(segment) = sole_segment(table, &index.name).await? {
                let metrics = NoOpMetricsCollector;
                let index = dataset.open_scalar_index(&field.name, &segment.uuid, &metrics).await?;
                return Ok(Some(Self { index }));
            }
        }
        Ok(None)
    }

    /// For each value (none of them null) the first row of `table` that has it.
    pub async fn first_rows(
        &self,
        table: &Table,
        values: &[ScalarValue],
    ) -> Result<Vec<Option<RowAddr>>> {
        let mut asked = HashSet::with_capacity(values.len());
        let mut searches = Vec::with_capacity(values.len());
        for value in values {
            if asked.insert(value) {
                searches.push(self.first(table, value));
            }
        }
        // What is in memory is found one by one, so that there is a place between two keys to yield at.
        let mut searches = stream::iter(searches).buffer_unordered(KEYS_AT_ONCE);
        let mut rows = HashMap::with_capacity(asked.len());
        while let Some(First { value, row, is_large }) = searches.try_next().await? {
            rows.insert(value, row);
            let is_turn_over = is_large || rows.len() % KEYS_AT_ONCE == 0;
            if is_turn_over && rows.len() < asked.len() {
                yield_now().await;
            }
        }
        Ok(values.iter().map(|value| rows.get(value).copied().flatten()).collect())
    }

    async fn first<'a>(&self, table: &Table, value: &'a ScalarValue) -> Result<First<'a>> {
        let query = SargableQuery::Equals(value.clone());
        // Null is no key, and its pages needn't be looked at.
        let options = SearchOptions::default().with_track_nulls(false);
        let found = self.index.search_with_options(&query, options, &NoOpMetricsCollector).await;
        let found = found.map_err(|error| table.blame(error))?;
        let rows = found.row_addrs().selected_rows();
        let inexact = || table.blame(Error::internal("a BTREE answered with no exact rows"));
        let is_large = rows.row_addrs().is_some_and(|mut it| it.nth(ROWS_AT_ONCE).is_some());
        let addresses = rows.row_addrs().filter(|_| found.is_exact()).ok_or_else(inexact)?;
        for (seen, row) in (1..).zip(addresses) {
            let addr = RowAddr::from_u64(row.into());
            // The index keeps rows that were deleted since it was built.
            if table.missing(&[addr]).await?.is_empty() {
                return Ok(First { value, row: Some(addr), is_large });
            }
            if seen % ROWS_AT_ONCE == 0 {
                yield_now().await;
            }
        }
        Ok(First { value, row: None, is_large })
    }
}

/// What was found of one key.
struct First<'a> {
    value: &'a ScalarValue,
    row: Option<RowAddr>,
    /// Whether the index has more than [`ROWS_AT_ONCE`] rows of it.
    is_large: bool,
}
