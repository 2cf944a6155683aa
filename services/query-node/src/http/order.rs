//! Puts the rows that a search found in the order of some columns, instead of best first.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_ord::sort::{SortColumn, SortOptions, lexsort_to_indices};
use arrow_select::take::take_record_batch;

use super::query_body::{Columns, ORDER_MAX, Order, QueryBody};
use super::selection::Selection;
use crate::error::{QueryError, Result};
use crate::tables::{Measure, OpenTable};

/// An order of found rows.
pub struct Ordering {
    by: Vec<Order>,
    /// The columns that rows are ordered by.
    keys: Selection,
    /// The number of rows to leave out at the start.
    offset: usize,
}

impl Ordering {
    /// Takes the order that a query asks for, if it asks for one. Its columns may be nested ones, or the `measure`.
    ///
    /// # Errors
    /// `BadRequest` for too many columns or for `_rowoffset`, and `ColumnNotFound`.
    pub fn new(body: &mut QueryBody, measure: Measure, open: &OpenTable) -> Result<Option<Self>> {
        let by = body.order_by.take().unwrap_or_default();
        if by.is_empty() {
            return Ok(None);
        }
        check_order(&by)?;
        let mut names: Vec<String> = by.iter().map(|it| it.column_name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let mut keys = QueryBody { columns: Some(Columns::Names(names)), ..Default::default() };
        let keys = Selection::new(&mut keys, measure, open)?;
        if keys.has_positions() {
            let problem = "names `_rowoffset`, by which found rows are not ordered".into();
            return Err(QueryError::BadRequest { field: "order_by", problem });
        }
        let offset = usize::try_from(body.offset.unwrap_or(0)).unwrap_or(usize::MAX);
        Ok(Some(Self { by, keys, offset }))
    }

    /// Returns the columns of the table that are needed, as a request names them.
    pub fn requested(&self, open: &OpenTable) -> Vec<String> {
        self.keys.requested(open)
    }

    /// Puts `rows`, whose last columns are row addresses and the `measure`, in this order. Rows that tie stay best
    /// first. Leaves out the first `offset` rows.
    pub async fn apply(&self, rows: &RecordBatch, measure: Measure) -> Result<RecordBatch> {
        let keys = self.keys.select(rows, measure, None, None).await?;
        let mut columns = Vec::with_capacity(self.by.len() + 1);
        for Order { column_name, ascending, nulls_first } in &self.by {
            let options = SortOptions { descending: !ascending, nulls_first: *nulls_first };
            let values = Arc::clone(keys.column(keys.schema_ref().index_of(column_name)?));
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

/// Refuses an order by too many columns.
pub fn check_order(by: &[Order]) -> Result<()> {
    match by.len() > ORDER_MAX {
        true => Err(QueryError::BadRequest {
            field: "order_by",
            problem: format!("has {} columns; order by {ORDER_MAX} at most", by.len()),
        }),
        false => Ok(()),
    }
}
