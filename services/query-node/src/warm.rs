//! Warm: has a table's chunks filled by the I/O nodes that own them.

use std::sync::Arc;

use access::Permission;
use futures::future::join_all;
use futures::{FutureExt, TryStreamExt};
use placement::ChunkRun;
use tables::{FragmentRows, RANGES_MAX, rows_of};
use tokio::sync::mpsc;
use tracing::warn;
use wire::fetch::{ChunkRange, RowRange, WarmProgress as NodeProgress, WarmRequest as NodeRequest};
use wire::query::{WarmProgress, WarmRequest};
use wire::{Fault, Reason};

use crate::admission::Ask;
use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::io_tier::{Routes, all_runs, ranges_by_owner};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The channel of progress reports to the caller.
pub type Progress = mpsc::Sender<std::result::Result<WarmProgress, Fault>>;

/// A validated Warm request: the chunks that each I/O node is to fill.
pub struct Warm {
    open: Arc<OpenTable>,
    /// The routes when the Warm began. Chunks that move to other nodes in the meantime are filled when they are read.
    routes: Arc<Routes>,
    requests: Vec<Option<NodeRequest>>,
}

impl Warm {
    /// Validates a request and assigns its chunks to I/O nodes.
    pub async fn new(state: &ShardState, request: WarmRequest, call: &mut Call) -> Result<Self> {
        let open = call.open(&request.table, request.version, Permission::Warm).await?;
        let admission = &state.shared.admission;
        let ask = Ask { during: "warm", rows: 1, context: call.context.as_batch() };
        let columns = match request.columns.is_empty() {
            true => Vec::new(),
            false => open.columns(&request.columns)?,
        };
        let bytes_per_s = request.bytes_per_s;
        let runs = match request.rows.as_slice() {
            [] => None,
            rows => {
                let runs = runs_holding(Arc::clone(&open), rows.to_vec());
                // Finding the rows means counting deleted ones, which may take long. It must not block a core that
                // serves connections.
                Some(admission.run_in_background(ask, runs.boxed()).await?)
            }
        };
        let request = |chunks: Vec<ChunkRange>| NodeRequest {
            table_uri: open.table.uri().to_owned(),
            version: open.version(),
            columns: columns.clone(),
            chunks,
            identity: open.identity.clone(),
            bytes_per_s: 0,
            rows: Vec::new(),
        };
        let routes = state.tier.routes();
        let mut requests: Vec<Option<NodeRequest>> = match routes.nodes().len() {
            0 => {
                let source = state.shared.io_nodes.source();
                let message = format!("there is no I/O node to fill; see {source}");
                return Err(Fault::new(Reason::NodeUnavailable, message).into());
            }
            // A request without a list of chunks fills all chunks of the version.
            1 if runs.is_none() => vec![Some(request(Vec::new()))],
            _ => {
                let runs = runs.unwrap_or_else(|| all_runs(&open));
                let dealt = ranges_by_owner(Arc::clone(&open), Arc::clone(&routes), runs);
                let dealt = async { Ok(dealt.await) }.boxed();
                let ranges = admission.run_in_background(ask, dealt).await?.into_iter();
                ranges.map(|chunks| (!chunks.is_empty()).then(|| request(chunks))).collect()
            }
        };
        let asked = requests.iter().flatten().count().max(1) as u64;
        for request in requests.iter_mut().flatten() {
            request.bytes_per_s = bytes_per_s.div_ceil(asked);
        }
        Ok(Self { open, routes, requests })
    }

    /// Runs on all I/O nodes that have chunks to fill, concurrently, and reports the sum of their progress. A node that
    /// fails does not stop the other nodes. The last message is one of the faults, or the final sum if no node failed.
    pub async fn run(self, progress: &Progress, context: RequestContext) {
        let nodes = self.requests.len();
        let (open, routes) = (&self.open, &self.routes);
        let (steps, mut stepped) = mpsc::channel(64);
        let steps = &steps;
        let runs = self.requests.into_iter().enumerate().filter_map(|(node, request)| {
            let (request, client) = (request?, &routes.nodes()[node].client);
            Some(async move {
                let run = async {
                    let mut reports = client.warm(request).await?;
                    while let Some(report) = reports.try_next().await? {
                        if steps.send((node, report)).await.is_err() {
                            break;
                        }
                    }
                    Ok::<_, Fault>(())
                };
                run.await.err()
            })
        });
        let runs = join_all(runs);
        tokio::pin!(runs);
        let mut latest = vec![NodeProgress::default(); nodes];
        let faults = loop {
            tokio::select! {
                biased;
                step = stepped.recv() => {
                    let Some((node, report)) = step else { continue };
                    latest[node] = report;
                    if progress.send(Ok(sum(open, &latest))).await.is_err() {
                        return;
                    }
                }
                faults = &mut runs => break faults,
            }
        };
        // Take the reports that arrived at the same moment as the last node's end.
        while let Ok((node, report)) = stepped.try_recv() {
            latest[node] = report;
        }
        let log = |fault: &Fault| warn!(trace_id = context.trace_id(), "warm: {fault}");
        let first = faults.into_iter().flatten().inspect(log).next();
        let last = first.map_or_else(|| Ok(sum(open, &latest)), |fault| Err(open.named(fault)));
        // The caller may be gone.
        let _ = progress.send(last).await;
    }
}

/// Returns the chunks that hold the rows at the positions `ranges`.
async fn runs_holding(open: Arc<OpenTable>, ranges: Vec<RowRange>) -> Result<Vec<ChunkRun>> {
    if ranges.len() > RANGES_MAX {
        let problem = format!("has {} ranges; give at most {RANGES_MAX}", ranges.len());
        return Err(QueryError::BadRequest { field: "rows", problem });
    }
    let rows = rows_of(&open.table, &ranges).await?;
    let run = |rows: FragmentRows| {
        let chunk_rows = open.chunk_rows_of(rows.fragment)?;
        Some(ChunkRun::holding(rows.fragment, rows.offsets, chunk_rows))
    };
    Ok(ChunkRun::merged(rows.into_iter().filter_map(run).collect()))
}

/// Returns the summed progress of all nodes. An error names the table as the caller does, not by its URI.
fn sum(open: &OpenTable, nodes: &[NodeProgress]) -> WarmProgress {
    let mut total = WarmProgress::default();
    for node in nodes {
        total.extents_total += node.extents_total;
        total.extents_done += node.extents_done;
        total.extents_found += node.extents_found;
        total.extents_failed += node.extents_failed;
        total.bytes_written += node.bytes_written;
        if !node.last_error.is_empty() {
            total.last_error = open.named_text(&node.last_error);
        }
    }
    total
}
