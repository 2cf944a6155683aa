//! Puts the rows that a search found in the order of some columns, instead of best first.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_ord::sort::{SortColumn, SortOptions, lexsort_to_indices};
use arrow_select::take::take_record_batch;
use lake::OrderBy;

use super::select::{Beside, BlobForm, Hold, Selection};
use crate::error::{QueryError, Result};
use crate::tables::{Measure, OpenTable};

/// Maximum number of rows that a search finds.
const FOUND_MAX: u32 = 10_000;

/// Maximum number of columns that rows are ordered by.
const ORDER_MAX: usize = 16;

/// An order of found rows.
pub struct Ordering {
    by: Vec<OrderBy>,
    /// The columns that rows are ordered by.
    keys: Selection,
    /// The number of rows to leave out at the start.
    offset: usize,
}

impl Ordering {
    /// Creates the order that a query asks for; `None` if `by` is empty. `offset` is the number of rows to leave out at
    /// the start. The columns in `by` may be nested, or the `measure`.
    ///
    /// # Errors
    /// `BadRequest` for too many columns, `_rowoffset` or a column of blobs, and `ColumnNotFound`.
    pub fn new(
        by: Vec<OrderBy>,
        offset: u32,
        measure: Measure,
        open: &OpenTable,
    ) -> Result<Option<Self>> {
        if by.is_empty() {
            return Ok(None);
        }
        check_order(&by)?;
        let mut names: Vec<String> = by.iter().map(|it| it.column.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let keys = Selection::new(Some(names), BlobForm::Described, measure, open)?;
        if keys.has_positions() {
            let problem = "names `_rowoffset`, by which found rows are not ordered".into();
            return Err(QueryError::BadRequest { field: "order_by", problem });
        }
        if let Some(blob) = keys.blob_columns().first() {
            let problem = format!("names `{blob}`, which holds blobs: these have no order");
            return Err(QueryError::BadRequest { field: "order_by", problem });
        }
        Ok(Some(Self { by, keys, offset: offset as usize }))
    }

    /// Returns the columns of the table that rows are ordered by, as a request names them.
    pub fn requested(&self, open: &OpenTable) -> Vec<String> {
        self.keys.requested(open)
    }

    /// Puts `rows`, whose last columns are row addresses and the `measure`, in this order. Rows that tie stay best
    /// first. Leaves out the first `offset` rows. Memory for nested columns by which they are ordered is passed to
    /// `hold`.
    pub async fn apply(
        &self,
        rows: &RecordBatch,
        measure: Measure,
        hold: &mut Hold<'_>,
    ) -> Result<RecordBatch> {
        let keys = self.keys.select(rows, measure, Beside::default(), None, hold).await?;
        let mut columns = Vec::with_capacity(self.by.len() + 1);
        for OrderBy { column, is_descending, nulls_first } in &self.by {
            let options = SortOptions { descending: *is_descending, nulls_first: *nulls_first };
            let values = Arc::clone(keys.column(keys.schema_ref().index_of(column)?));
            columns.push(SortColumn { values, options: Some(options) });
        }
        let rank: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..rows.num_rows() as u32));
        columns.push(SortColumn { values: rank, options: None });
        let sorted =
            lexsort_to_indices(&columns, None).map_err(|error| QueryError::BadRequest {
                field: "order_by",
                problem: format!("names a column whose values have no order: {error}"),
            })?;
        let kept =
            sorted.slice(self.offset.min(sorted.len()), sorted.len().saturating_sub(self.offset));
        Ok(take_record_batch(rows, &kept)?)
    }
}

/// Returns the number of rows that a search has to find so that it can return `k` of them after the best `offset` ones.
///
/// # Errors
/// `BadRequest`.
pub fn rows_to_find(k: u32, offset: u32) -> Result<u32> {
    let (field, problem) = if k == 0 || k > FOUND_MAX {
        ("k", format!("is {k}; ask for 1 to {FOUND_MAX} rows"))
    } else if offset > FOUND_MAX - k {
        let most = format!("ask for the best {FOUND_MAX} rows at most, both added");
        ("offset", format!("is {offset}, and k is {k}; {most}"))
    } else {
        return Ok(k + offset);
    };
    Err(QueryError::BadRequest { field, problem })
}

/// Refuses an order by too many columns.
///
/// # Errors
/// `BadRequest`.
pub fn check_order(by: &[OrderBy]) -> Result<()> {
    match by.len() > ORDER_MAX {
        true => Err(QueryError::BadRequest {
            field: "order_by",
            problem: format!("has {} columns; order by {ORDER_MAX} at most", by.len()),
        }),
        false => Ok(()),
    }
}
