//! Finds what an answer has besides the columns that I/O nodes serve: the rows' positions, and descriptors of blobs.

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use futures::FutureExt;

use super::select::{Beside, Selection};
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::state::{Ask, ShardState};
use crate::tables::{Measure, OpenTable};

/// Finds what `selection` needs in addition to the columns of `rows`, whose last columns are row addresses and the
/// `measure`.
pub async fn beside(
    state: &ShardState,
    selection: &Selection,
    open: &OpenTable,
    rows: &RecordBatch,
    measure: Measure,
    context: RequestContext,
) -> Result<Beside> {
    let blobs = selection.blob_columns();
    if !selection.has_positions() && blobs.is_empty() {
        return Ok(Beside::default());
    }
    let behind = if measure == Measure::Nothing { 1 } else { 2 };
    let addresses = rows.column(rows.num_columns() - behind).as_primitive::<UInt64Type>();
    let addrs: Vec<_> = addresses.values().iter().copied().map(RowAddr::from_u64).collect();
    let positions = match selection.has_positions() {
        false => None,
        true => {
            let positions = async { Ok(Some(open.table.positions_of(&addrs).await?)) }.boxed();
            context.bound("assemble", positions).await?
        }
    };
    let descriptors = match blobs.is_empty() {
        true => None,
        false => {
            // I/O nodes have the blobs themselves, so the descriptors come from the table.
            let ask = Ask { during: "assemble", rows: addrs.len(), context };
            let table = open.table.clone();
            let read = async move { Ok(table.descriptors(&addrs, &blobs).await?) }.boxed();
            Some(state.shared.admission.run_in_background(ask, read).await?)
        }
    };
    Ok(Beside { positions, descriptors })
}
