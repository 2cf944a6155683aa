//! Rows by key straight through a BTREE, without the scanner.
//!
//! One search a key, as an answer for several doesn't say which key a row has. A search compares a whole page
//! of the index (4,096 rows), in memory if Lance's cache has it.

use std::sync::Arc;

use address::RowAddr;
use datafusion::scalar::ScalarValue;
use futures::future::try_join_all;
use lance::index::DatasetIndexInternalExt;
use lance_core::Error;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::{SargableQuery, ScalarIndex, SearchOptions};
use tokio::task::yield_now;

use super::direct::sole_segment;
use crate::error::Result;
use crate::table::Table;

/// Keys that are searched for at the same time, and before others on the thread get their turn.
const KEYS_AT_ONCE: usize = 16;

/// A plan for all keys compares them with each page once, by their hashes. It costs as much as so many
/// searches...
const PLAN_SEARCHES: usize = 32;

/// ...and as many more for each page of the index: both ways cost the same at about 40 keys of an index of
/// one page, 150 of 25 pages, and 1,500 of 245.
const PAGE_SEARCHES: usize = 4;

/// A BTREE that covers the whole version, opened.
#[derive(Clone)]
pub(crate) struct Keys {
    index: Arc<dyn ScalarIndex>,
    keys_max: usize,
}

impl Keys {
    /// The BTREE `name` of `column`; `None` where a look-up needs more than it.
    pub async fn open(table: &Table, column: &str, name: &str) -> lance_core::Result<Option<Self>> {
        let Some(segment) = sole_segment(table, name).await? else { return Ok(None) };
        let dataset = table.dataset();
        let index = dataset.open_scalar_index(column, &segment.uuid, &NoOpMetricsCollector).await?;
        let pages = index.statistics()?["num_pages"].as_u64().unwrap_or(0) as usize;
        Ok(Some(Self { index, keys_max: PLAN_SEARCHES + PAGE_SEARCHES * pages }))
    }

    /// For how many keys at most this is cheaper than a plan.
    pub fn keys_max(&self) -> usize {
        self.keys_max
    }

    /// For each value (none of them null) the first row of `table` that has it.
    pub async fn first_rows(
        &self,
        table: &Table,
        values: &[ScalarValue],
    ) -> Result<Vec<Option<RowAddr>>> {
        let mut found = Vec::with_capacity(values.len());
        for group in values.chunks(KEYS_AT_ONCE) {
            if !found.is_empty() {
                yield_now().await;
            }
            found.extend(try_join_all(group.iter().map(|value| self.first(table, value))).await?);
        }
        Ok(found)
    }

    async fn first(&self, table: &Table, value: &ScalarValue) -> Result<Option<RowAddr>> {
        let query = SargableQuery::Equals(value.clone());
        // Null is no key, and its pages needn't be looked at.
        let options = SearchOptions::default().with_track_nulls(false);
        let found = self.index.search_with_options(&query, options, &NoOpMetricsCollector).await;
        let found = found.map_err(|error| table.blame(error))?;
        let rows = found.row_addrs().selected_rows().row_addrs().filter(|_| found.is_exact());
        let inexact = || table.blame(Error::internal("a BTREE answered with no exact rows"));
        for row in rows.ok_or_else(inexact)? {
            let addr = RowAddr::from_u64(row.into());
            // The index keeps rows that were deleted since it was built.
            if table.missing(&[addr]).await?.is_empty() {
                return Ok(Some(addr));
            }
        }
        Ok(None)
    }
}
