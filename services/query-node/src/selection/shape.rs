//! The form of a Search's answer, if it is not simply columns of the table with the best row first.

use arrow_array::RecordBatch;
use futures::FutureExt;
use lake::OrderBy;
use wire::memory_of;
use wire::query::SearchRequest;
use wire::query::search_request::By;

use super::beside::beside;
use super::ordering::{Ordering, rows_to_find};
use super::select::{BlobForm, Selection};
use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::state::ShardState;
use crate::tables::{Measure, OpenTable, ROW_ADDRESS};

/// The columns of an answer, some of which are computed, and the order of its rows.
pub struct Shape {
    selection: Selection,
    ordering: Option<Ordering>,
}

impl Shape {
    /// Creates the form that has the columns of `selection`. Without an `ordering` the best row comes first.
    pub fn new(selection: Selection, ordering: Option<Ordering>) -> Self {
        Self { selection, ordering }
    }

    /// Refuses the form for the answer to several vectors if it has a column that is called like the one with their
    /// positions.
    ///
    /// # Errors
    /// `BadRequest`.
    pub fn check_query_index(&self) -> Result<()> {
        self.selection.check_query_index()
    }

    /// Returns the columns that a search has to find, as a request names them.
    pub fn requested(&self, open: &OpenTable) -> Vec<String> {
        let mut columns = self.selection.requested(open);
        for column in self.ordering.iter().flat_map(|ordering| ordering.requested(open)) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// Returns the `k` and `offset` of the search for a request with these numbers. If the found rows are put in another
    /// order afterwards, the first `offset` rows in that order are left out only then, so the search returns `k +
    /// offset` rows.
    ///
    /// # Errors
    /// The errors of [`rows_to_find`].
    pub fn k_and_offset(&self, k: u32, offset: u32) -> Result<(u32, u32)> {
        match self.ordering {
            Some(_) => Ok((rows_to_find(k, offset)?, 0)),
            None => Ok((k, offset)),
        }
    }

    /// Returns the form that a request asks for, and changes the request so that it finds the rows and columns from
    /// which the answer is made. `None` if the request asks only for columns of the table, best row first, for one
    /// vector. This includes a request by a filter alone, in any order: the table itself puts its rows in that order.
    ///
    /// # Errors
    /// The errors of [`Selection::new`], [`Selection::compute`] and [`Ordering::new`].
    pub fn of(request: &mut SearchRequest, open: &OpenTable) -> Result<Option<Self>> {
        let is_own = |name: &String| {
            open.is_carried(name) || open.table.schema().field_with_name(name).is_ok()
        };
        // If the request has only a filter, the table puts all rows that pass in order before the first ones are taken.
        let is_search = request.by.is_some();
        let is_one = !matches!(request.by, Some(By::Vectors(_)));
        if is_one
            && request.expressions.is_empty()
            && request.columns.iter().all(is_own)
            && (request.order_by.is_empty() || !is_search)
        {
            return Ok(None);
        }
        let measure = match (&request.by, &request.fused_with) {
            (Some(_), Some(_)) => Measure::Relevance,
            (Some(By::Vector(_) | By::Vectors(_) | By::Like(_)), None) => Measure::Distance,
            (Some(By::Text(_)), None) => Measure::Score,
            (None, _) => Measure::Nothing,
        };
        let selection = selection(request, measure, open)?;
        let mut ordering = None;
        if is_search {
            let by = order_of(std::mem::take(&mut request.order_by));
            ordering = Ordering::new(by, request.offset, measure, open)?;
        }
        let shape = Self { selection, ordering };
        (request.k, request.offset) = shape.k_and_offset(request.k, request.offset)?;
        request.columns = shape.requested(open);
        Ok(Some(shape))
    }

    /// Returns `rows`, whose last columns are row addresses and the `measure`, in this form. `query_index` is the
    /// position of the query vector, if there are several. `call` holds the memory of computed columns while they are
    /// computed, and its deadline ends the computation.
    pub async fn apply(
        &self,
        state: &ShardState,
        open: &OpenTable,
        rows: RecordBatch,
        measure: Measure,
        query_index: Option<i32>,
        call: &mut Call,
    ) -> Result<RecordBatch> {
        let (context, found) = (call.context, memory_of(rows.columns()));
        let mut hold = |computed: usize| {
            context.check("assemble")?;
            call.hold_rows(found + computed)
        };
        let rows = match &self.ordering {
            Some(ordering) => ordering.apply(&rows, measure, &mut hold).await?,
            None => rows,
        };
        let beside = beside(state, &self.selection, open, &rows, measure, context).boxed().await?;
        self.selection.select(&rows, measure, beside, query_index, &mut hold).await
    }
}

/// Returns the columns of the answer to a request: the named ones, or else those by default if there is no expression
/// either, then the expressions, then the row's address and the `measure`. Takes the expressions from the request.
fn selection(request: &mut SearchRequest, measure: Measure, open: &OpenTable) -> Result<Selection> {
    let expressions = std::mem::take(&mut request.expressions);
    let named = request.columns.iter().filter(|name| !open.is_carried(name));
    let names = match request.columns.is_empty() && expressions.is_empty() {
        true => open.columns(&[])?,
        false => named.cloned().collect(),
    };
    if let Some(taken) = expressions.iter().find(|it| open.is_carried(&it.name)) {
        let problem = format!("has `{}`, a column of each answer; rename it", taken.name);
        return Err(QueryError::BadRequest { field: "expressions", problem });
    }
    let mut selection = Selection::new(Some(names), BlobForm::Whole, measure, open)?;
    selection.compute("expressions", expressions, open)?;
    for name in [ROW_ADDRESS].into_iter().chain(measure.name()) {
        selection.append(name, open)?;
    }
    Ok(selection)
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
