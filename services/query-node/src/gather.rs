//! Gathers the Gets that wait on one core: those for the same columns of the same version share a look-up and a fetch.
//!
//! The first Get to arrive yields once, so that all tasks that are ready run, and then takes the Gets that have arrived
//! meanwhile. So Gets whose requests are ready when the core polls its tasks leave together, a lone Get leaves at once,
//! and nothing waits for a timer.
//!
//! A Get is gathered only with Gets of the same grant and priority, because the order in the queues and the limits
//! depend on these. If the shared work fails, its error is not passed on; each Get is done alone instead. A caller that
//! gives up does not affect the others.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::Array;
use arrow_select::concat::concat;
use futures::FutureExt;
use key_proof::FoundRows;
use scheduler::Flow;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::call::Call;
use crate::counters::Stage;
use crate::error::Result;
use crate::find::{Callers, find_for, find_rows};
use crate::held_rows::HeldRows;
use crate::io_tier::Cost;
use crate::stages::Keys;
use crate::state::ShardState;
use crate::tables::Projection;
use crate::waiting_gets::{GroupPart, WaitingGet, groups};

/// Maximum number of keys of a Get that is gathered with other Gets. A Get with more keys gains nothing from it.
const GET_KEYS_MAX: usize = 16;

/// The rows of a Get. Rows that were found for several Gets hold their memory until all those Gets are answered.
pub struct Gathered {
    pub found: FoundRows,
    _held: Option<Arc<HeldRows>>,
}

/// Finds the rows of keys like [`find_rows`], together with other Gets that wait on the core.
///
/// # Errors
/// The errors of [`find_rows`].
pub async fn find_gathered(
    keys: Keys<'_>,
    wanted: &Arc<Projection>,
    call: &mut Call,
) -> Result<Gathered> {
    let state = Arc::clone(call.shard());
    if keys.keys.len() <= GET_KEYS_MAX && !call.is_observed() {
        let (answer, answered) = oneshot::channel();
        let waiting = WaitingGet {
            table: Arc::clone(keys.open),
            column: keys.column.to_owned(),
            wanted: Arc::clone(wanted),
            keys: Arc::clone(keys.keys),
            context: call.context,
            answer,
        };
        if state.waiting_gets.join(waiting) {
            let first = First(&state);
            yield_now().await;
            drop(first);
        }
        let answered = async { Ok(answered.await.ok().flatten()) }.boxed();
        if let Some(GroupPart(found, held)) = call.context.bound("fetch", answered).await? {
            call.stage(Stage::Fetch, || "together with other Gets".into());
            return Ok(Gathered { found, _held: Some(held) });
        }
    }
    let found = find_rows(&state, keys, wanted, Stage::Fetch, call).await?;
    Ok(Gathered { found, _held: None })
}

/// A guard of the first Get that waits. Dropping it starts the groups: after the Get has yielded once, or when its
/// caller goes away.
struct First<'a>(&'a Arc<ShardState>);

impl Drop for First<'_> {
    fn drop(&mut self) {
        for group in groups(self.0.waiting_gets.take()) {
            // A lone Get goes on by itself: its sender is dropped here.
            if group.len() > 1 {
                self.0.runtime.spawn(answer(Arc::clone(self.0), group));
            }
        }
    }
}

/// Answers the Gets of a group. If that fails, each Get is done alone.
async fn answer(state: Arc<ShardState>, group: Vec<WaitingGet>) {
    let parts = found(&state, &group).await.unwrap_or_default();
    state.metrics.gathered(parts.len());
    let mut parts = parts.into_iter();
    for get in group {
        // A caller that has gone away does not take its rows.
        let _ = get.answer.send(parts.next());
    }
}

async fn found(state: &ShardState, group: &[WaitingGet]) -> Result<Vec<GroupPart>> {
    let keys = concat(&group.iter().map(|get| get.keys.as_ref()).collect::<Vec<_>>())?;
    // The group has the context of the Get with the least time left. If an I/O node hangs, the group ends at that Get's
    // deadline, and the others are then done alone.
    let Some(hasty) = group.iter().min_by_key(|get| get.context.left()) else {
        return Ok(Vec::new());
    };
    let asked = Keys { open: &hasty.table, column: &hasty.column, keys: &keys };
    let flow = hasty.context.flow();
    let mut several = SeveralGets { held: HeldRows::new(&state.row_memory), flow };
    let found = find_for(state, asked, &hasty.wanted, hasty.context, &mut several).await?;
    let held = Arc::new(several.held);
    let (mut start, mut row) = (0, 0);
    let part = |get: &WaitingGet| {
        let end = start + get.keys.len() as u32;
        let rows = found.keys[row..].partition_point(|&key| key < end);
        let addrs: Vec<RowAddr> = found.addrs[row..row + rows].to_vec();
        let keys = found.keys[row..row + rows].iter().map(|key| key - start).collect();
        let part = FoundRows { rows: found.rows.slice(row, rows), keys, addrs };
        (start, row) = (end, row + rows);
        GroupPart(part, Arc::clone(&held))
    };
    Ok(group.iter().map(part).collect())
}

/// Several Gets that need rows. Their stages are not recorded, because Gets whose stages are observed are not gathered.
struct SeveralGets {
    held: HeldRows,
    flow: Flow,
}

impl Callers for SeveralGets {
    fn looked_up(&mut self, _: impl FnOnce() -> String) {}

    fn fetched(&mut self, _: usize, _: Cost) {}

    fn hold_rows(&mut self, bytes: usize) -> Result<()> {
        self.held.hold(bytes, self.flow)
    }
}
