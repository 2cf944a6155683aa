//! Reads chunks of a fragment, to fill the cache.

use std::ops::Range;

use arrow::array::RecordBatch;

use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::read::columns::Columns;
use crate::read::read_range;
use crate::table::Table;

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
        let file_fragment = self.file_fragment(fragment)?;
        let physical_rows = self.fragment(fragment).map_or(0, |info| info.physical_rows);
        if rows.start > rows.end || rows.end > physical_rows {
            let Range { start, end } = rows;
            return Err(LakeError::RangeOutOfBounds { fragment, start, end, physical_rows });
        }
        let read = async {
            let columns = Columns::resolve(self, columns)?;
            let read = read_range(file_fragment, rows, &columns).await;
            read.map_err(|error| self.blame(error))
        };
        caught(self.uri(), read).await
    }
}
