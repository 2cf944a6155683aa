//! Fetch: fetches rows from the I/O nodes that own them, concurrently.

use std::sync::Arc;

use address::{RowAddr, without};
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::take::take;
use futures::FutureExt;
use wire::{Reason, memory_of};

use super::cost::Cost;
use super::filter::filter_rows;
use super::join::{SliceRows, join, present};
use super::predicate_filter::PredicateFilter;
use super::slice_fetch::StageFetch;
use crate::error::{QueryError, Result};
use crate::request_context::RequestContext;
use crate::state::{HeldRows, ShardState};
use crate::tables::{OpenTable, Projection, bytes_of_rows, row_bytes};

/// Fetched rows, with wire types.
#[derive(Debug)]
pub struct Fetched {
    /// The rows that were found, in the request's order.
    pub rows: RecordBatch,
    /// Positions in the request of missing rows, ascending.
    pub missing: Vec<u32>,
    /// The cost of the fetch.
    pub cost: Cost,
}

impl Fetched {
    /// Returns `rows` rows without columns, none of them missing.
    pub fn of_no_columns(rows: usize) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::empty());
        let rows = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        Ok(Self { rows, missing: Vec::new(), cost: Cost::default() })
    }
}

/// Fetches the rows at `addrs`. A row that is hidden from the callers of `open` is missing, like one that does not exist.
/// All rows of answers are fetched here.
pub async fn fetch_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    projection: &Projection,
    context: RequestContext,
) -> Result<Fetched> {
    let columns = RowColumns { columns: &projection.columns, schema: &projection.wire_schema };
    match open.table.row_condition() {
        None => fetch_stored(state, open, addrs, columns, context).await,
        Some(condition) => {
            let condition = PredicateFilter::new(open, condition)?;
            fetch_shown(state, open, addrs, columns, &condition, context).boxed().await
        }
    }
}

/// The columns of rows to fetch, and their schema with wire types.
#[derive(Clone, Copy)]
struct RowColumns<'a> {
    columns: &'a [String],
    schema: &'a SchemaRef,
}

/// Fetches rows, and leaves out those that `condition` hides. Hidden rows never fail the fetch.
async fn fetch_shown(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    wanted: RowColumns<'_>,
    condition: &PredicateFilter,
    context: RequestContext,
) -> Result<Fetched> {
    match fetch_with_hidden(state, open, addrs, wanted, condition, context).boxed().await {
        // All rows together may also need more memory than those that are shown.
        Err(error) if may_be_of_few_rows(&error) || error.asked_too_much() => {
            fetch_passing(state, open, addrs, wanted, condition, context).boxed().await
        }
        fetched => fetched,
    }
}

/// Fetches rows, hidden ones too, together with the columns of `condition`, and then leaves out those that it hides.
async fn fetch_with_hidden(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    wanted: RowColumns<'_>,
    condition: &PredicateFilter,
    context: RequestContext,
) -> Result<Fetched> {
    let added = condition.columns.iter().filter(|name| !wanted.columns.contains(name));
    let added: Vec<String> = added.cloned().collect();
    // The caller of `fetch_rows` holds memory for the wanted columns.
    let mut held = HeldRows::new(&state.row_memory);
    let bytes = bytes_of_rows(row_bytes(open.wire_schema_of(&added)?.as_ref()), addrs.len());
    held.hold(bytes, context.flow())?;
    let columns = [wanted.columns, &added].concat();
    let schema = &open.wire_schema_of(&columns)?;
    let all = RowColumns { columns: &columns, schema };
    let Fetched { rows, missing, cost } = fetch_stored(state, open, addrs, all, context).await?;
    let of_added = &rows.columns()[wanted.columns.len()..];
    held.hold(memory_of(of_added), context.flow())?;
    let of_condition = condition.columns.iter().map(|name| Ok(rows.schema_ref().index_of(name)?));
    let of_condition = rows.project(&of_condition.collect::<Result<Vec<usize>>>()?)?;
    // Positions among `addrs`, as `missing` has them.
    let shown = condition.passing(addrs.len(), &missing, &of_condition)?;
    let fetched = (0_u32..).zip(without(0..addrs.len() as u32, &missing));
    let found = fetched.filter(|(_, at)| shown.binary_search(at).is_ok()).map(|(row, _)| row);
    let found: UInt32Array = found.collect();
    let wanted_columns = &rows.columns()[..wanted.columns.len()];
    let columns = wanted_columns.iter().map(|column| Ok(take(column, &found, None)?));
    let options = RecordBatchOptions::new().with_row_count(Some(shown.len()));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let rows = RecordBatch::try_new_with_options(Arc::clone(wanted.schema), columns, &options)?;
    let missing = without(0..addrs.len() as u32, &shown).collect();
    Ok(Fetched { rows, missing, cost })
}

/// Returns whether a fetch may have failed with `error` because of a few of its rows, which a smaller fetch may leave
/// out: they are large or damaged, or refer to a file that may not be read. Errors of overload and of stores that don't
/// answer are not of this kind: more requests would make them worse.
pub fn may_be_of_few_rows(error: &QueryError) -> bool {
    use lake::LakeError::{Corrupt, Internal, OutsideTable, StoreRefuses};
    match error {
        QueryError::TooLarge { .. } | QueryError::Pack(_) => true,
        QueryError::Lake(error) => matches!(
            error,
            Corrupt { .. } | Internal { .. } | OutsideTable { .. } | StoreRefuses { .. }
        ),
        QueryError::Fault(fault) => matches!(
            fault.reason,
            Reason::TooLarge | Reason::StoreRefused | Reason::TableDamaged | Reason::Internal
        ),
        _ => false,
    }
}

/// Like [`fetch_with_hidden`], but reads of hidden rows only the columns of `condition`, and these piece by piece, so
/// that hidden rows don't fail the fetch, whatever their size. It waits for I/O nodes twice. The cost is that of the
/// second time.
async fn fetch_passing(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    wanted: RowColumns<'_>,
    condition: &PredicateFilter,
    context: RequestContext,
) -> Result<Fetched> {
    let (passes, _) = filter_rows(state, open, addrs, condition, context).await?;
    let shown: Vec<u32> = (0..).zip(passes).filter(|(_, passes)| *passes).map(|it| it.0).collect();
    let passing: Vec<RowAddr> = shown.iter().map(|&at| addrs[at as usize]).collect();
    let Fetched { rows, missing, cost } =
        fetch_stored(state, open, &passing, wanted, context).await?;
    let found: Vec<u32> = present(shown.len(), &missing).map(|at| shown[at]).collect();
    let missing = without(0..addrs.len() as u32, &found).collect();
    Ok(Fetched { rows, missing, cost })
}

/// Fetches the rows at `addrs`, hidden or not.
async fn fetch_stored(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    RowColumns { columns, schema: wire_schema }: RowColumns<'_>,
    context: RequestContext,
) -> Result<Fetched> {
    let mut cost = Cost::default();
    if addrs.is_empty() {
        let rows = RecordBatch::new_empty(Arc::clone(wire_schema));
        return Ok(Fetched { rows, missing: vec![], cost });
    }
    let routes = &state.tier.routes();
    let stage = StageFetch { state, routes, open, columns, rerank: None, context };
    let fetched = stage.each(addrs, &mut cost, |slice| slice.rows().boxed()).await?;
    let fetched: Vec<_> = fetched
        .into_iter()
        .map(|(slice, (rows, missing))| SliceRows { places: slice.places, rows, missing })
        .collect();
    let (rows, missing) = join(&fetched, addrs.len(), wire_schema)?;
    Ok(Fetched { rows, missing, cost })
}
