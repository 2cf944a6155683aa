//! Finds all rows of keys, through Lance's scanner.

use std::collections::HashMap;

use address::RowAddr;
use arrow::array::ArrayRef;
use datafusion::scalar::ScalarValue;
use futures::TryStreamExt;
use lance_table::format::Fragment;

use super::KEYS_PER_QUERY_MAX;
use crate::error::Result;
use crate::search::hit::addresses;
use crate::table::Table;

/// The rows of keys: the position of a key, and the address of a row that has it.
type KeyRows = Vec<(u32, RowAddr)>;

/// The distinct keys of a look-up that are not null, with their positions.
type Positions = HashMap<ScalarValue, Vec<u32>>;

impl Table {
    /// Returns all rows of `keys`, ascending. `keys` are of the column's type; null is no row's key. With `within`, only
    /// rows of these fragments are returned. Uses the column's scalar indexes, and scans what they do not cover. If
    /// there are more than `rows_max` rows, it stops early and returns some of them, but more than `rows_max`.
    ///
    /// Errors: `ColumnNotFound`, `FragmentNotFound`, and those of the store.
    pub async fn lookup_all(
        &self,
        column: &str,
        keys: &ArrayRef,
        within: Option<&[u32]>,
        rows_max: usize,
    ) -> Result<KeyRows> {
        let position = self.column_position(column)?;
        let name = self.stored_schema().field(position).name();
        let within = within.map(|ids| self.fragments_of(ids)).transpose()?;
        let mut positions = Positions::new();
        for (at, key) in (0..).zip(self.scalars(keys)?) {
            if !key.is_null() {
                positions.entry(key).or_default().push(at);
            }
        }
        let values: Vec<ScalarValue> = positions.keys().cloned().collect();
        let mut found = Vec::new();
        for group in values.chunks(KEYS_PER_QUERY_MAX) {
            let rows = self.rows_of(name, group, within.as_deref(), &positions, rows_max);
            found.extend(self.caught(rows).await?);
            if found.len() > rows_max {
                break;
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    async fn rows_of(
        &self,
        column: &str,
        values: &[ScalarValue],
        within: Option<&[Fragment]>,
        positions: &Positions,
        rows_max: usize,
    ) -> lance::Result<KeyRows> {
        let mut batches = self.key_scanner(column, values, within)?.try_into_stream().await?;
        let mut found = Vec::new();
        while let Some(batch) = batches.try_next().await? {
            let keys = batch.column(0);
            for (at, addr) in addresses(&batch)?.enumerate() {
                let key = ScalarValue::try_from_array(keys, at)?;
                let positions = positions.get(&key).map(Vec::as_slice).unwrap_or_default();
                found.extend(positions.iter().map(|&position| (position, addr)));
                if found.len() > rows_max {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}
