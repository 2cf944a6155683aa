//! The start warm: the chunks of `warm_at_start` are filled before the node reports that it is ready. Until a chunk is
//! filled, its rows come from the table.

use std::sync::Arc;
use std::time::Duration;

use placement::{Member, Members, TableHash};
use tokio::time::Instant;
use wire::Fault;
use wire::fetch::WarmProgress;

use crate::cache::{ChunkSelection, Pace, WarmPlan};
use crate::config::StartWarmConfig;
use crate::error::fault_of;
use crate::fetch::NodeState;
use crate::serve::{ServiceState, StartWarms};

/// The time between log lines about the progress.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The first delay before the node tries again to open a table. The delay doubles with each failure.
const RETRY_MIN: Duration = Duration::from_millis(500);

/// The maximum delay before the node tries again to open a table. A table that cannot be opened costs its store two
/// attempts a minute.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Fills the chunks that `warm_at_start` selects. The node's readiness waits for them until `start_max` has passed;
/// fills that have not ended by then continue.
pub async fn run_at_start(shared: Arc<ServiceState>) {
    let ServiceState { node, start_warms, .. } = &*shared;
    let configs = &node.config.warm_at_start;
    if configs.is_empty() {
        return;
    }
    let (began, limit) = (Instant::now(), node.config.start_max);
    // All warms run at once: one whose table can't be opened delays no other, and the filler bounds the work.
    let each = configs.iter().enumerate().map(|(at, config)| warm(node, start_warms, at, config));
    let warms = futures::future::join_all(each);
    tokio::pin!(warms);
    let in_time = tokio::time::timeout(limit, &mut warms).await.is_ok();
    match (in_time, start_warms.extents_left()) {
        (true, 0) => {
            tracing::info!(took = ?began.elapsed(), "the start's warm is done")
        }
        (true, extents_left) => {
            tracing::warn!(
                extents_left,
                "the start's warm is done but for extents that could not be filled: their rows come from the table"
            );
        }
        (false, extents_left) => {
            tracing::warn!(
                ?limit,
                extents_left,
                "the start's warm is not done within `start_max`: the node is ready, and the warm continues"
            );
        }
    }
    start_warms.end();
    if !in_time {
        warms.await;
    }
}

async fn warm(node: &NodeState, start_warms: &StartWarms, at: usize, config: &StartWarmConfig) {
    let plan = opened(node, start_warms, at, config).await;
    let table = &config.uri;
    tracing::info!(%table, extents = plan.extents(), "warming before the node is ready");
    let mut logged = Instant::now();
    let report = |now: &WarmProgress| {
        if logged.elapsed() >= LOG_EVERY {
            logged = Instant::now();
            tracing::info!(%table, done = now.extents_done, of = now.extents_total, failed = now.extents_failed, "warming");
        }
        start_warms.locked()[at].progress = Some(now.clone());
        true
    };
    let pace = Pace::new(0, Instant::now());
    let last = plan.fill(&node.fills, node.config.fills, pace, report).await;
    if last.extents_failed > 0 {
        tracing::warn!(%table, failed = last.extents_failed, why = %last.last_error, "not all of the start's warm could be filled");
    }
    let mut warms = start_warms.locked();
    warms[at].progress = Some(last);
    warms[at].done = true;
}

/// Opens the table, trying again until it succeeds, and returns the plan of its fills.
async fn opened(
    node: &NodeState,
    start_warms: &StartWarms,
    at: usize,
    config: &StartWarmConfig,
) -> WarmPlan {
    let mut pause = RETRY_MIN;
    let mut last_message = String::new();
    loop {
        match open(node, config).await {
            Ok((version, plan)) => {
                let mut warms = start_warms.locked();
                warms[at].version = version;
                let extents_total = plan.extents();
                warms[at].progress = Some(WarmProgress { extents_total, ..Default::default() });
                return plan;
            }
            Err(fault) => {
                if fault.message != last_message {
                    tracing::warn!(table = %config.uri, %fault, "the start's warm can't begin; it is tried again");
                    last_message = fault.message;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

async fn open(node: &NodeState, config: &StartWarmConfig) -> Result<(u64, WarmPlan), Fault> {
    let to_fault = |error| fault_of(&error);
    let version = match config.version {
        0 => node.tables.latest_version(&config.uri).await.map_err(to_fault)?,
        version => version,
    };
    let table = node.tables.open(&config.uri, "", version, "").await;
    let table = table.map_err(|error| fault_of(&error))?;
    let hash = TableHash::of(table.table().uri().as_str());
    let plan = WarmPlan::new(table, &config.columns, ChunkSelection::All).await?;
    let own = &node.config.name;
    let names = node.config.warm_members.iter().filter(|name| *name != own);
    let member =
        |name: &String| Member { name: name.clone(), endpoint: String::new(), weight: 1.0 };
    let mut members: Vec<Member> = names.map(member).collect();
    if members.is_empty() {
        return Ok((version, plan));
    }
    members.push(member(own));
    let this = members.len() - 1;
    match Members::new(members) {
        Ok(members) => Ok((version, plan.only(|chunk| members.owner(hash, chunk) == this))),
        // The names were checked when the node started.
        Err(_) => Ok((version, plan)),
    }
}
