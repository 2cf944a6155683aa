//! Rows by their position in the table: the order in which a scan brings them, deleted ones not counted.

use std::ops::Range;

use crate::error::{LakeError, Result};
use crate::table::Table;

/// Consecutive physical rows of one fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentRows {
    /// The fragment's id.
    pub fragment: u32,
    /// Offsets in it; deleted rows among them are no part of what was asked for.
    pub offsets: Range<u32>,
}

impl Table {
    /// Where the rows at `positions` are, half-open and counted from 0 in the table's order; `u64::MAX` stands
    /// for the table's end. Reads the deletion vectors of the first and the last fragment, where they have some.
    ///
    /// Errors: `PositionsOutOfBounds`, and those of the store.
    pub async fn rows_at(&self, positions: Range<u64>) -> Result<Vec<FragmentRows>> {
        let rows = self.row_count();
        let end = if positions.end == u64::MAX { rows } else { positions.end };
        let positions = positions.start..end;
        if positions.start >= end || end > rows {
            let uri = self.uri().to_owned();
            return Err(LakeError::PositionsOutOfBounds { uri, positions, rows });
        }
        let mut found = Vec::new();
        let mut begin = 0;
        // Lance keeps them by ascending id, and so brings their rows.
        for info in self.fragments() {
            let live = u64::from(info.physical_rows - info.deleted_rows);
            let from = positions.start.max(begin) - begin;
            let to = positions.end.min(begin + live).saturating_sub(begin);
            begin += live;
            if from < to {
                let offsets = match (from, to) {
                    (0, to) if to == live => 0..info.physical_rows,
                    (from, to) => {
                        let first = self.offset_of(info.id, from).await?;
                        first..self.offset_of(info.id, to - 1).await? + 1
                    }
                };
                found.push(FragmentRows { fragment: info.id, offsets });
            }
        }
        Ok(found)
    }

    /// The physical offset of a fragment's live row number `live`; there is one.
    async fn offset_of(&self, fragment: u32, live: u64) -> Result<u32> {
        let deleted = self.deleted(fragment).await?;
        if deleted.is_empty() {
            return Ok(live as u32);
        }
        let rows = self.fragment(fragment).map_or(0, |info| info.physical_rows);
        let mut live_rows = (0..rows).filter(|&offset| !deleted.contains(offset));
        Ok(live_rows.nth(live as usize).unwrap_or(rows.saturating_sub(1)))
    }
}
