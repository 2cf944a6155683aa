//! Fetch: fetches rows from the I/O nodes that own them, concurrently.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use futures::FutureExt;

use super::cost::Cost;
use super::join::{SliceRows, join};
use super::slice_fetch::StageFetch;
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::{OpenTable, Projection};

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

/// Fetches the rows at `addrs`.
pub async fn fetch_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    projection: &Projection,
    context: RequestContext,
) -> Result<Fetched> {
    let Projection { columns, wire_schema, .. } = projection;
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
