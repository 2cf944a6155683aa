//! Readable: fetches the rows that can be read, and reports the others, for callers that want some rows rather than
//! none.
//!
//! Rows fail together: those of an I/O node that refuses work, those of a file that is damaged. Each slice of the rows
//! therefore fails by itself. A slice that may have failed because of a few of its rows is divided and fetched again,
//! first at the bounds of its data files. After [`DIVISIONS_MAX`] divisions, all rows of a slice count as unreadable. If
//! the table was read in place of an I/O node that reported an error, the parts of the slice are read from the table too:
//! the node would report the error again.

use std::sync::Arc;

use address::RowAddr;
use futures::FutureExt;
use futures::future::join_all;

use super::cost::Cost;
use super::join::{SliceRows, join};
use super::plan::NodeSlice;
use super::rows::{Fetched, fetch_rows, may_be_of_few_rows};
use super::slice_fetch::{SliceAnswer, StageFetch};
use crate::error::{QueryError, Result};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::{OpenTable, Projection};

/// Maximum number of times that the slices of one fetch are divided. Each division costs two more reads, so one bad row
/// of 10,000 is found (14 divisions), and a request whose rows all fail costs at most 64 reads more than the first.
const DIVISIONS_MAX: usize = 32;

/// Rows that could not be read.
pub struct UnreadRows {
    /// Their addresses, ascending.
    pub addrs: Vec<RowAddr>,
    /// The error of one of them.
    pub error: QueryError,
}

/// Fetches the rows at `addrs`, which have no repeats, like [`fetch_rows`]. Rows that can't be read are among the
/// missing ones, and are returned beside. If rows of the table are hidden from the caller, one row that can't be read
/// still fails the fetch: to name it would tell that it exists.
///
/// # Errors
/// The errors of [`fetch_rows`], if rows are hidden.
pub async fn fetch_readable(
    state: &ShardState,
    open: &Arc<OpenTable>,
    addrs: &[RowAddr],
    projection: &Projection,
    context: RequestContext,
) -> Result<(Fetched, Option<UnreadRows>)> {
    if addrs.is_empty() || open.hides_rows() {
        let fetched = fetch_rows(state, open, addrs, projection, context).boxed().await?;
        return Ok((fetched, None));
    }
    let (routes, columns) = (&state.tier.routes(), projection.columns.as_slice());
    let stage = StageFetch { state, routes, open, columns, rerank: None, context };
    let mut cost = Cost::default();
    let mut waiting = stage.plan(addrs, &mut cost);
    let (mut read, mut unread, mut first_error) = (Vec::new(), Vec::new(), None);
    let mut divisions = 0;
    while !waiting.is_empty() {
        let asked = waiting.drain(..).map(|slice| stage.fetch(slice).try_rows());
        for SliceAnswer { slice, source, answer } in join_all(asked).await {
            match answer {
                Ok((rows, missing)) => {
                    cost.account(routes, &slice, source);
                    read.push(SliceRows { places: slice.places, rows, missing });
                }
                Err(error) => {
                    cost.add_work(source);
                    if slice.addrs.len() > 1
                        && divisions < DIVISIONS_MAX
                        && may_be_of_few_rows(&error)
                    {
                        divisions += 1;
                        waiting.extend(halves(slice));
                    } else {
                        unread.extend(slice.addrs);
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
    }
    let (rows, missing) = join(&read, addrs.len(), &projection.wire_schema)?;
    unread.sort_unstable();
    let unread = first_error.map(|error| UnreadRows { addrs: unread, error });
    Ok((Fetched { rows, missing, cost }, unread))
}

/// Divides a slice of several rows by their addresses: where a fragment begins or ends, if it has rows of several.
fn halves(NodeSlice { owner, places, addrs }: NodeSlice) -> [NodeSlice; 2] {
    let mut rows: Vec<(RowAddr, u32)> = addrs.into_iter().zip(places).collect();
    rows.sort_unstable();
    let half = rows.len() / 2;
    let middle = rows[half].0.fragment();
    let begins = rows.partition_point(|(addr, _)| addr.fragment() < middle);
    let ends = rows.partition_point(|(addr, _)| addr.fragment() <= middle);
    let cut = match begins {
        0 if ends == rows.len() => half,
        0 => ends,
        begins => begins,
    };
    let rest = rows.split_off(cut);
    [rows, rest].map(|rows| {
        let (addrs, places) = rows.into_iter().unzip();
        NodeSlice { owner, places, addrs }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(rows: &[(u32, u32)]) -> NodeSlice {
        let addrs = rows.iter().map(|&(fragment, offset)| RowAddr::new(fragment, offset)).collect();
        NodeSlice { owner: Some(3), places: (10..).take(rows.len()).collect(), addrs }
    }

    #[test]
    fn slices_are_divided_between_fragments_and_then_between_rows() {
        let divided =
            |rows: &[(u32, u32)]| halves(slice(rows)).map(|half| (half.places, half.addrs));
        let rows = |rows: &[(u32, u32)]| slice(rows).addrs;
        assert_eq!(
            divided(&[(2, 7), (1, 9), (2, 1), (2, 4)]),
            [(vec![11], rows(&[(1, 9)])), (vec![12, 13, 10], rows(&[(2, 1), (2, 4), (2, 7)]))]
        );
        assert_eq!(
            divided(&[(1, 1), (1, 2), (1, 3), (4, 0)]),
            [(vec![10, 11, 12], rows(&[(1, 1), (1, 2), (1, 3)])), (vec![13], rows(&[(4, 0)]))]
        );
        assert_eq!(
            divided(&[(1, 3), (1, 1), (1, 2)]),
            [(vec![11], rows(&[(1, 1)])), (vec![12, 10], rows(&[(1, 2), (1, 3)]))]
        );
        assert!(halves(slice(&[(1, 1), (2, 2)])).iter().all(|half| half.owner == Some(3)));
    }
}
