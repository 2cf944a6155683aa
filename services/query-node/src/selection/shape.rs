//! The form of a Search's answer, if it is not simply columns of the table with the best row first.

use arrow_array::RecordBatch;
use lake::OrderBy;
use wire::query::SearchRequest;
use wire::query::search_request::By;

use super::ordering::{Ordering, k_and_offset, requested};
use super::select::{Beside, BlobForm, Columns, ROW_OFFSET, Selection};
use crate::error::Result;
use crate::tables::{Measure, OpenTable, ROW_ADDRESS};

/// The columns of an answer, some of which are computed, and the order of its rows.
pub struct Shape {
    selection: Selection,
    ordering: Option<Ordering>,
}

impl Shape {
    /// Returns the form that a request asks for, and changes the request so that it finds the rows and columns from
    /// which the answer is made. `None` if the request asks only for columns of the table, best row first. This
    /// includes a request by a filter alone, in any order: the table itself puts its rows in that order.
    ///
    /// # Errors
    /// `BadRequest` for a column named twice, or too many columns, and `ColumnNotFound`.
    pub fn of(request: &mut SearchRequest, open: &OpenTable) -> Result<Option<Self>> {
        let is_own = |name: &String| {
            open.is_carried(name) || open.table.schema().field_with_name(name).is_ok()
        };
        // If the request has only a filter, the table puts all rows that pass in order before the first ones are taken.
        let is_search = request.by.is_some();
        if request.columns.iter().all(is_own) && (request.order_by.is_empty() || !is_search) {
            return Ok(None);
        }
        let measure = match (&request.by, &request.fused_with) {
            (Some(_), Some(_)) => Measure::Relevance,
            (Some(By::Vector(_) | By::Like(_)), None) => Measure::Distance,
            (Some(By::Text(_)), None) => Measure::Score,
            (None, _) => Measure::Nothing,
        };
        let mut names: Vec<String> = match request.columns.is_empty() {
            true => open.columns(&[])?,
            false => {
                let named = request.columns.iter().filter(|name| !open.is_carried(name));
                named.cloned().collect()
            }
        };
        if names.iter().any(|name| name == ROW_OFFSET) {
            // The positions of found rows are not known. This fails unless the table has such a column.
            open.columns(&[ROW_OFFSET.to_owned()])?;
        }
        names.push(ROW_ADDRESS.to_owned());
        let names = Some(Columns::Names(names));
        let selection = Selection::new(names, false, BlobForm::Whole, measure, open)?;
        let mut ordering = None;
        if is_search {
            let by = order_of(std::mem::take(&mut request.order_by));
            ordering = Ordering::new(by, request.offset, measure, open)?;
            (request.k, request.offset) =
                k_and_offset(ordering.as_ref(), request.k, request.offset)?;
        }
        request.columns = requested(&selection, ordering.as_ref(), open);
        Ok(Some(Self { selection, ordering }))
    }

    /// Returns `rows`, whose last columns are row addresses and the `measure`, in this form.
    pub async fn apply(&self, rows: RecordBatch, measure: Measure) -> Result<RecordBatch> {
        let rows = match &self.ordering {
            Some(ordering) => ordering.apply(&rows, measure).await?,
            None => rows,
        };
        self.selection.select(&rows, measure, Beside::default(), None).await
    }
}

/// Returns the order that a request asks for.
pub fn order_of(by: Vec<wire::query::OrderBy>) -> Vec<OrderBy> {
    let order = |by: wire::query::OrderBy| OrderBy {
        column: by.column,
        is_descending: by.descending,
        nulls_first: by.nulls_first,
    };
    by.into_iter().map(order).collect()
}
