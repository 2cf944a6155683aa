//! Searches whose filter is evaluated for single rows, because the rows that pass are not known: for the candidates
//! of a search, or for the rows that it has found (`filter_after`).
//!
//! ```text
//! search ─► candidates ─► filter, on the I/O nodes ─┬─ enough pass ─────► the nearest of them
//!    ▲                                              ├─ too few
//!    └────────── more candidates, partitions ◄──────┤
//!         scan for all rows that pass ◄─────────────┘ more would cost more than a scan
//! ```

use std::sync::Arc;

use address::RowAddr;
use futures::FutureExt;
use lake::Widened;
use predicate::Predicate;
use rustc_hash::FxHashMap;
use spelling::counted;
use tokio::time::timeout;
use tracing::warn;
use wire::DEADLINE_MAX;

use crate::call::Call;
use crate::counters::Stage;
use crate::error::Result;
use crate::fetch::{PredicateFilter, filter_rows};
use crate::stages::{Hits, Question, Unfiltered, find_hits, search_further};
use crate::state::{Ask, ShardState};
use crate::tables::OpenTable;

/// Runs a search, and has its filter evaluated for the candidates if it is not known which of them pass.
pub async fn search_filtered(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    call: &mut Call,
) -> Result<Hits> {
    let mut hits = find_hits(state, open, question, call.context).await?;
    let Some(mut unfiltered) = hits.unfiltered.take() else {
        call.stage(Stage::Search, || hits.detail(question));
        return Ok(hits);
    };
    let filter = PredicateFilter::new(open, &unfiltered.search.filter.predicate)?;
    // A thousand rows are looked up several times each.
    let mut passes: FxHashMap<RowAddr, bool> = FxHashMap::default();
    loop {
        call.stage(Stage::Search, || hits.detail(question));
        let found = hits.rows.iter().map(|(addr, _)| addr).chain(hits.to_score.iter());
        let new: Vec<RowAddr> = found.filter(|addr| !passes.contains_key(addr)).copied().collect();
        if unfiltered.search.is_exceeded(passes.len() + new.len()) {
            let why = format!("more than {} would be compared", counted(passes.len(), "candidate"));
            return scan(state, open, question, call, &why).await;
        }
        let filtered = filter_rows(state, open, &new, &filter, call.context).boxed();
        let (new_passes, cost) = match call.context.bound("filter", filtered).await {
            Err(error) if error.asked_too_much() => {
                let error = open.named_text(&error.to_string());
                let why = format!("the filter could not be evaluated for candidates: {error}");
                return scan(state, open, question, call, &why).await;
            }
            filtered => filtered?,
        };
        state.metrics.filtered(new.len());
        unfiltered.search.filter.record(new.len(), cost.passed.unwrap_or_default());
        // True if more than half of the rows were neither on drives nor in RAM. Reading single rows from the table
        // costs much more than a scan.
        let is_cold = cost.table_rows() > new.len() / 2;
        call.io_stage(Stage::Filter, new.len(), cost);
        passes.extend(new.into_iter().zip(new_passes));
        let passed = hits.rows.iter().filter(|(addr, _)| passes[addr]).count();
        let next = match unfiltered.search.next(hits.rows.len(), passed, passes.len()) {
            Widened::Further if is_cold => Widened::Costly,
            next => next,
        };
        match next {
            Widened::Enough => break,
            Widened::Further => {
                search_further(state, open, &unfiltered, &mut hits, call.context).await?;
            }
            Widened::Costly => {
                let all = counted(passes.len(), "candidate");
                let cold = if is_cold { ", and most rows came from the table" } else { "" };
                let why = format!("only {passed} of {all} passed{cold}");
                return scan(state, open, question, call, &why).await;
            }
        }
    }
    hits.keep(state, question.nprobes, &unfiltered, |addr| passes[addr]);
    if unfiltered.search.filter.is_list_due() {
        make_list(state, open, &unfiltered);
    }
    Ok(hits)
}

/// Returns those of the rows `found` that pass `filter`. The I/O nodes evaluate it, unless the list of all rows that
/// pass is known or costs less, the filter can't be evaluated for single rows, the I/O nodes can't be asked, or they
/// refuse the work as too much.
pub async fn filter_found(
    state: &ShardState,
    open: &Arc<OpenTable>,
    filter: &str,
    found: Vec<(RowAddr, f32)>,
    call: &mut Call,
) -> Result<Vec<(RowAddr, f32)>> {
    let rows: Vec<_> = found.iter().map(|(addr, _)| *addr).collect();
    let ask = Ask { during: "filter", rows: rows.len(), context: call.context };
    // Without an I/O node, each row would be read from the table, and a scan is faster than that.
    let is_available = state.tier.routes().is_available();
    let list = || {
        let (open, filter, rows) = (Arc::clone(open), filter.to_owned(), rows.clone());
        async move { Ok(open.table.passes(&filter, &rows).await?) }.boxed()
    };
    let admission = &state.shared.admission;
    let (table, text, count, listed) = (Arc::clone(open), filter.to_owned(), rows.len(), list());
    let chosen = async move {
        if is_available
            && let Some(predicate) =
                table.table.predicate(&text, count, table.packed_row_bytes).await?
        {
            return Ok(FilterBy::Predicate(predicate));
        }
        Ok(FilterBy::List(listed.await?))
    };
    let passes = match admission.run_in_background(ask, chosen.boxed()).await? {
        FilterBy::List(passes) => passes,
        FilterBy::Predicate(predicate) => {
            let filter = PredicateFilter::new(open, &predicate)?;
            let filtered = filter_rows(state, open, &rows, &filter, call.context).boxed();
            match call.context.bound("filter", filtered).await {
                Ok((passes, cost)) => {
                    state.metrics.filtered(rows.len());
                    call.io_stage(Stage::Filter, rows.len(), cost);
                    passes
                }
                Err(error) if error.asked_too_much() => {
                    admission.run_in_background(ask, list()).await?
                }
                Err(error) => return Err(error),
            }
        }
    };
    let kept = found.into_iter().zip(passes).filter(|(_, passes)| *passes);
    Ok(kept.map(|(row, _)| row).collect())
}

/// The way in which a filter is evaluated for rows that were found.
enum FilterBy {
    /// The filter is still to be evaluated for the rows, by the I/O nodes.
    Predicate(Arc<Predicate>),
    /// The list of all rows that pass says for each row whether it passes.
    List(Vec<bool>),
}

/// Searches with the list of all rows that pass, because of `why`.
async fn scan(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    call: &mut Call,
    why: &str,
) -> Result<Hits> {
    let scanned = Question { filters_candidates: false, ..question.clone() };
    let hits = find_hits(state, open, &scanned, call.context).boxed().await?;
    call.stage(Stage::Search, || format!("{}, because {why}", hits.detail(question)));
    Ok(hits)
}

/// Starts to make the list of rows that pass the filter, for later searches, unless another list is being made. This
/// search does not wait for it. The list takes no permit of the admission queue, because the scan may take minutes,
/// and would keep searches waiting.
fn make_list(state: &ShardState, open: &Arc<OpenTable>, unfiltered: &Unfiltered) {
    let Some(text) = unfiltered.query.filter.clone() else { return };
    let filter = Arc::clone(&unfiltered.search.filter);
    let Ok(permit) = Arc::clone(&state.shared.lists).try_acquire_owned() else {
        filter.list_postponed();
        return;
    };
    let open = Arc::clone(open);
    state.shared.catalog.background().spawn(async move {
        let _permit = permit;
        let problem = match timeout(DEADLINE_MAX, open.table.make_list(&text).boxed()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => open.named_text(&error.to_string()),
            Err(_) => format!("it took more than {} s", DEADLINE_MAX.as_secs()),
        };
        filter.list_failed();
        let table = &open.name;
        warn!(table, "the rows that pass a filter could not be listed: {problem}");
    });
}
