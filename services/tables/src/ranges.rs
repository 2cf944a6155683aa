//! Finds the rows of a Warm's ranges.

use wire::Fault;
use wire::fetch::RowRange;

use crate::{FragmentRows, Table};

/// The maximum number of row ranges of a Warm.
pub const RANGES_MAX: usize = 1024;

/// Returns the rows of all `ranges`, by fragment. An end of 0 stands for the table's end.
///
/// # Errors
/// The errors of [`Table::rows_at`](crate::Table::rows_at).
pub async fn rows_of(table: &dyn Table, ranges: &[RowRange]) -> Result<Vec<FragmentRows>, Fault> {
    let mut rows = Vec::new();
    for &RowRange { first, end } in ranges {
        let end = if end == 0 { u64::MAX } else { end };
        rows.extend(table.rows_at(first..end).await?);
    }
    Ok(rows)
}
