//! Gathers the requests for rows by key that wait on one core: those for the same columns of the same version share a
//! look-up and a fetch. A request is a Get, or a group of batches of one Lookup stream.
//!
//! The first request to arrive yields once, so that all tasks that are ready run, and then takes the requests that have
//! arrived meanwhile. So requests that are ready when the core polls its tasks leave together, and nothing waits for a
//! timer. A request that is alone on its core does not wait for the next turn of the runtime: it goes to the end of the
//! queue of ready tasks once, and leaves if none of them was a request.
//!
//! A request is gathered only with requests of the same grant and priority, because the order in the queues and the
//! limits depend on these. The members of a group wait for each other. If the shared work fails, its error is not
//! passed on; each request is done alone instead. A caller that gives up does not affect the others.
//!
//! Only tasks wait here, which the core polls whether their clients read or not: a first request that is not polled
//! would hold up all others of its core.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use address::RowAddr;
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_select::concat::concat;
use arrow_select::take::take_record_batch;
use futures::FutureExt;
use key_proof::FoundRows;
use scheduler::Flow;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use wire::{bytes_of_arrays, memory_of};

use super::find::{Callers, UnreadKeys, find_for, find_readable, find_rows};
use crate::call::Call;
use crate::counters::{ShardMetrics, Stage};
use crate::error::Result;
use crate::fetch::Cost;
use crate::stages::Keys;
use crate::state::{HeldRows, MemberRows, ShardState, WaitingRequest, groups};
use crate::tables::Projection;

/// Maximum number of keys of a request that is gathered with others. Sharing saves the fixed cost of a look-up and a
/// fetch, which weighs less the more keys a request has. It was measured with Gets of one key
/// (`docs/performance.md`), but not which number of keys is too large.
const REQUEST_KEYS_MAX: usize = 128;

/// The rows of a request. Rows that were found for several requests hold their memory until none of these requests
/// needs them.
pub struct Gathered {
    pub found: FoundRows,
    /// The keys whose rows could not be read, if the request wants the other rows nevertheless.
    pub unread: UnreadKeys,
    held: Option<Arc<HeldRows>>,
}

impl Gathered {
    /// Makes `call` hold the memory of its own rows, if they were found for several requests.
    ///
    /// # Errors
    /// The errors of [`Call::hold_rows`]. The rows are then dropped.
    pub fn held_by(self, call: &mut Call) -> Result<Self> {
        if self.held.is_some() {
            call.hold_rows(bytes_of_arrays(self.found.rows.columns()))?;
        }
        Ok(self)
    }

    /// Returns rows whose memory `call` holds. Rows that were found for several requests are copied: otherwise an
    /// answer whose caller is slow to read it would keep the rows of the others in memory.
    ///
    /// # Errors
    /// The errors of [`held_by`](Self::held_by).
    pub fn into_own(self, call: &mut Call) -> Result<Self> {
        let this = self.held_by(call)?;
        if this.held.is_none() {
            return Ok(this);
        }
        let Self { found, unread, held: _shared } = this;
        let rows = copied(&found.rows)?;
        call.hold_rows(memory_of(rows.columns()))?;
        Ok(Self { found: FoundRows { rows, ..found }, unread, held: None })
    }
}

/// Returns a copy of `rows`, which may be a slice. The copy shares no memory with the batch that `rows` are part of.
fn copied(rows: &RecordBatch) -> Result<RecordBatch> {
    if rows.num_columns() == 0 {
        return Ok(rows.clone());
    }
    let all = UInt32Array::from_iter_values(0..rows.num_rows() as u32);
    Ok(take_record_batch(rows, &all)?)
}

impl From<(FoundRows, UnreadKeys)> for Gathered {
    /// Returns the rows of a request that shared no work, and its unread keys. Its call holds the memory of the rows.
    fn from((found, unread): (FoundRows, UnreadKeys)) -> Self {
        Self { found, unread, held: None }
    }
}

impl From<FoundRows> for Gathered {
    /// Returns the rows of a request that shared no work. Its call holds their memory.
    fn from(found: FoundRows) -> Self {
        (found, UnreadKeys::default()).into()
    }
}

/// Finds the rows of keys like [`find_rows`], or with `partial` like [`find_readable`], together with other requests
/// that wait on the core.
///
/// # Errors
/// The errors of [`find_rows`], or of [`find_readable`].
pub async fn find_gathered(
    keys: Keys<'_>,
    wanted: &Arc<Projection>,
    partial: bool,
    call: &mut Call,
) -> Result<Gathered> {
    let state = Arc::clone(call.shard());
    if keys.keys.len() <= REQUEST_KEYS_MAX
        && !call.is_observed()
        && others_are_under_way(&state.metrics).await
    {
        let (answer, answered) = oneshot::channel();
        let waiting = WaitingRequest {
            table: Arc::clone(keys.open),
            column: keys.column.to_owned(),
            wanted: Arc::clone(wanted),
            keys: Arc::clone(keys.keys),
            context: call.context,
            answer,
        };
        if state.waiting_requests.join(waiting) {
            let first = First(&state);
            yield_now().await;
            drop(first);
        }
        let answered = async { Ok(answered.await.ok().flatten()) }.boxed();
        if let Some(MemberRows(found, held)) = call.context.bound("fetch", answered).await? {
            call.stage(Stage::Fetch, || "together with other requests".into());
            return Ok(Gathered { found, unread: UnreadKeys::default(), held: Some(held) });
        }
    }
    if partial {
        let found = find_readable(&state, keys, wanted, Stage::Fetch, call);
        return Ok(found.boxed().await?.into());
    }
    Ok(find_rows(&state, keys, wanted, Stage::Fetch, call).await?.into())
}

/// Returns whether the core has other requests under way than the one that calls this. If there are none yet, first
/// lets the tasks run that are ready: they may be requests that arrived at the same time and have not begun.
async fn others_are_under_way(metrics: &ShardMetrics) -> bool {
    if !metrics.are_several_under_way() {
        ready_tasks_first().await;
    }
    metrics.are_several_under_way()
}

/// Lets the core's tasks run that are ready now. After [`yield_now`], tokio also asks the kernel for events and looks
/// at its timers before the task goes on.
async fn ready_tasks_first() {
    let mut have_run = false;
    poll_fn(|cx| {
        if have_run {
            return Poll::Ready(());
        }
        have_run = true;
        // The task goes to the end of the core's queue.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A guard of the first request that waits. Dropping it starts the groups: after the request has yielded once, or when
/// its caller goes away.
struct First<'a>(&'a Arc<ShardState>);

impl Drop for First<'_> {
    fn drop(&mut self) {
        for group in groups(self.0.waiting_requests.take()) {
            // A lone request goes on by itself: its sender is dropped here.
            if group.len() > 1 {
                self.0.runtime.spawn(answer(Arc::clone(self.0), group));
            }
        }
    }
}

/// Answers the requests of a group. If that fails, each request is done alone.
async fn answer(state: Arc<ShardState>, group: Vec<WaitingRequest>) {
    let found = found(&state, &group).await.unwrap_or_default();
    state.metrics.gathered(found.len());
    let mut found = found.into_iter();
    for request in group {
        // A caller that has gone away does not take its rows.
        let _ = request.answer.send(found.next());
    }
}

async fn found(state: &ShardState, group: &[WaitingRequest]) -> Result<Vec<MemberRows>> {
    let keys = concat(&group.iter().map(|it| it.keys.as_ref()).collect::<Vec<_>>())?;
    // The group has the context of the request with the least time left. If an I/O node hangs, the group ends at that
    // request's deadline, and the others are then done alone.
    let Some(hasty) = group.iter().min_by_key(|it| it.context.left()) else {
        return Ok(Vec::new());
    };
    let asked = Keys { open: &hasty.table, column: &hasty.column, keys: &keys };
    let flow = hasty.context.flow();
    let mut several = SeveralRequests { held: HeldRows::new(&state.row_memory), flow };
    let found = find_for(state, asked, &hasty.wanted, hasty.context, &mut several).await?;
    let held = Arc::new(several.held);
    let (mut start, mut row) = (0, 0);
    let member = |request: &WaitingRequest| {
        let end = start + request.keys.len() as u32;
        let rows = found.keys[row..].partition_point(|&key| key < end);
        let addrs: Vec<RowAddr> = found.addrs[row..row + rows].to_vec();
        let keys = found.keys[row..row + rows].iter().map(|key| key - start).collect();
        let own = FoundRows { rows: found.rows.slice(row, rows), keys, addrs };
        (start, row) = (end, row + rows);
        MemberRows(own, Arc::clone(&held))
    };
    Ok(group.iter().map(member).collect())
}

/// Several requests that need rows. Their stages are not recorded, because requests whose stages are observed are not
/// gathered.
struct SeveralRequests {
    held: HeldRows,
    flow: Flow,
}

impl Callers for SeveralRequests {
    fn looked_up(&mut self, _: impl FnOnce() -> String) {}

    fn fetched(&mut self, _: usize, _: Cost) {}

    fn hold_rows(&mut self, bytes: usize) -> Result<()> {
        self.held.hold(bytes, self.flow)
    }

    /// If a row can't be read, each request is done alone.
    fn unread_keys(&mut self) -> Option<&mut UnreadKeys> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use futures::future::{BoxFuture, join_all};

    use super::*;
    use crate::counters::Rpc;

    #[tokio::test]
    async fn a_request_that_is_ready_is_under_way_beside_the_first() {
        let metrics = Arc::new(ShardMetrics::default());
        metrics.started(Rpc::Get);
        assert!(!others_are_under_way(&metrics).await);
        let other = Arc::clone(&metrics);
        tokio::spawn(async move { other.started(Rpc::Get) });
        assert!(others_are_under_way(&metrics).await);
    }

    #[tokio::test]
    async fn a_lone_request_waits_for_ready_tasks_but_not_for_those_that_yield() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let task = |name: &'static str, first: BoxFuture<'static, ()>| {
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                first.await;
                order.lock().unwrap().push(name);
            })
        };
        join_all([
            task("yields", yield_now().boxed()),
            task("lone", ready_tasks_first().boxed()),
            task("yields", yield_now().boxed()),
            task("ready", async {}.boxed()),
        ])
        .await;
        assert_eq!(*order.lock().unwrap(), ["ready", "lone", "yields", "yields"]);
    }

    #[test]
    fn a_copy_has_only_its_own_rows() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["some text"; 10_000]));
        let all = RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap();
        for part in [all.slice(0, 2), all.slice(9_000, 3)] {
            let copy = copied(&part).unwrap();
            assert_eq!(copy, part);
            assert!(memory_of(copy.columns()) < 2_000, "{}", memory_of(copy.columns()));
        }
        let no_columns = copied(&all.project(&[]).unwrap().slice(7, 5)).unwrap();
        assert_eq!((no_columns.num_rows(), no_columns.num_columns()), (5, 0));
    }
}
