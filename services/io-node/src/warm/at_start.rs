//! What is filled before the node's health says that it serves: it answers all the same, from the table.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use placement::{Member, Members, TableHash};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::Fault;
use wire::fetch::{StartWarm, WarmProgress};

use super::{Which, Work};
use crate::config::StartWarmConfig;
use crate::error::fault_of;
use crate::fill::Pace;
use crate::node::NodeState;

/// Between two lines of the log about how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Before a table that can't be opened is tried again: at first, and at most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// How far it is, for other threads to see.
pub struct StartWarms {
    /// In the configuration's order. Read by Describe alone.
    warms: Mutex<Vec<StartWarm>>,
    ready: watch::Sender<bool>,
}

impl StartWarms {
    /// Of what is configured; without any the node is ready.
    pub fn new(configs: &[StartWarmConfig]) -> Self {
        let warm = |config: &StartWarmConfig| StartWarm {
            table: config.label(),
            version: config.version,
            ..Default::default()
        };
        let warms = configs.iter().map(warm).collect();
        Self { warms: Mutex::new(warms), ready: watch::Sender::new(configs.is_empty()) }
    }

    /// Turns true when the node may say that it serves.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// How far each is.
    pub fn warms(&self) -> Vec<StartWarm> {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<StartWarm>> {
        self.warms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extents that are not there yet, of tables that are open.
    fn extents_left(&self) -> u64 {
        let warms = self.locked();
        let progress = warms.iter().filter_map(|warm| warm.progress.as_ref());
        progress.map(|it| it.extents_total - it.extents_done).sum()
    }
}

/// Fills what is configured, and lets the node say that it serves: when all is there, or after as long as that
/// may take.
pub async fn run(shared: Arc<NodeState>) {
    let configs = &shared.config.warm_at_start;
    if configs.is_empty() {
        return;
    }
    let (began, limit) = (Instant::now(), shared.config.warm_at_start_max);
    // All at once: one whose table can't be opened holds up none of the others, and the filler bounds the work.
    let each = configs.iter().enumerate().map(|(at, config)| warm(&shared, at, config));
    let warms = futures::future::join_all(each);
    tokio::pin!(warms);
    let in_time = tokio::time::timeout(limit, &mut warms).await.is_ok();
    match (in_time, shared.start_warms.extents_left()) {
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
                "the start's warm is not done within `warm_at_start_max`: it is not waited for any longer, and goes on"
            );
        }
    }
    let _ = shared.start_warms.ready.send(true);
    if !in_time {
        warms.await;
    }
}

async fn warm(shared: &NodeState, at: usize, config: &StartWarmConfig) {
    let work = opened(shared, at, config).await;
    let table = &config.uri;
    tracing::info!(%table, extents = work.extents(), "warming before the node says that it serves");
    let mut told = Instant::now();
    let report = |now: &WarmProgress| {
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            tracing::info!(%table, done = now.extents_done, of = now.extents_total, failed = now.extents_failed, "warming");
        }
        shared.start_warms.locked()[at].progress = Some(now.clone());
        true
    };
    let pace = Pace::new(0, Instant::now());
    let last = work.fill(&shared.fills, shared.config.fills, pace, report).await;
    if last.extents_failed > 0 {
        tracing::warn!(%table, failed = last.extents_failed, why = %last.last_error, "not all of the start's warm could be filled");
    }
    let mut warms = shared.start_warms.locked();
    warms[at].progress = Some(last);
    warms[at].done = true;
}

/// What there is to fill, once the table can be opened.
async fn opened(shared: &NodeState, at: usize, config: &StartWarmConfig) -> Work {
    let mut pause = RETRY_MIN;
    let mut said = String::new();
    loop {
        match open(shared, config).await {
            Ok((version, work)) => {
                let mut warms = shared.start_warms.locked();
                warms[at].version = version;
                let extents_total = work.extents();
                warms[at].progress = Some(WarmProgress { extents_total, ..Default::default() });
                return work;
            }
            Err(fault) => {
                if fault.message != said {
                    tracing::warn!(table = %config.uri, %fault, "the start's warm can't begin; it is tried again");
                    said = fault.message;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

async fn open(shared: &NodeState, config: &StartWarmConfig) -> Result<(u64, Work), Fault> {
    let said = |error| fault_of(&error);
    let version = match config.version {
        0 => shared.tables.latest_version(&config.uri).await.map_err(said)?,
        version => version,
    };
    let table = shared.tables.open(&config.uri, version, "").await;
    let table = table.map_err(|error| fault_of(&error))?;
    let hash = TableHash::of(table.table().uri().as_str());
    let work = Work::new(table, &config.columns, Which::All).await?;
    let own = &shared.config.name;
    let names = shared.config.warm_members.iter().filter(|name| *name != own);
    let member =
        |name: &String| Member { name: name.clone(), endpoint: String::new(), weight: 1.0 };
    let mut members: Vec<Member> = names.map(member).collect();
    if members.is_empty() {
        return Ok((version, work));
    }
    members.push(member(own));
    let this = members.len() - 1;
    match Members::new(members) {
        Ok(members) => Ok((version, work.only(|chunk| members.owner(hash, chunk) == this))),
        // Checked when the node started.
        Err(_) => Ok((version, work)),
    }
}
