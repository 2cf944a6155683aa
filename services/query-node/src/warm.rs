//! Warm: has a table's chunks, or the files of its indexes, filled by the I/O nodes that own them.

use std::sync::Arc;

use access::Permission;
use address::{ChunkId, SECTOR_BYTES};
use futures::future::join_all;
use futures::{FutureExt, TryStreamExt};
use lake::{FilePath, quoted};
use placement::ChunkRun;
use tables::{BLOCK_SECTORS, FragmentRows, RANGES_MAX, rows_of};
use tokio::sync::mpsc;
use tracing::warn;
use wire::fetch::{ChunkRange, RowRange, WarmProgress as NodeProgress, WarmRequest as NodeRequest};
use wire::query::{WarmProgress, WarmRequest};
use wire::{Fault, Reason};

use crate::admission::Ask;
use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::io_tier::{Routes, add_chunk, all_runs, hash_of_file, ranges_by_owner};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The channel of progress reports to the caller.
pub type Progress = mpsc::Sender<std::result::Result<WarmProgress, Fault>>;

/// A validated Warm request: what each I/O node is to fill.
pub struct Warm {
    open: Arc<OpenTable>,
    /// The routes when the Warm began. Chunks that move to other nodes in the meantime are filled when they are read.
    routes: Arc<Routes>,
    /// The requests to each I/O node, which are sent one after the other.
    requests: Vec<Vec<NodeRequest>>,
}

impl Warm {
    /// Validates a request and assigns its chunks to I/O nodes.
    pub async fn new(state: &ShardState, request: WarmRequest, call: &mut Call) -> Result<Self> {
        let open = call.open(&request.table, request.version, Permission::Warm).await?;
        let routes = state.tier.routes();
        if routes.nodes().is_empty() {
            let source = state.shared.io_nodes.source();
            let message = format!("there is no I/O node to fill; see {source}");
            return Err(Fault::new(Reason::NodeUnavailable, message).into());
        }
        let ask = Ask { during: "warm", rows: 1, context: call.context.as_batch() };
        let mut requests = match &request.indexes {
            Some(indexes) => {
                if !request.columns.is_empty() || !request.rows.is_empty() {
                    let problem = "can't be combined with columns or rows".to_owned();
                    return Err(QueryError::BadRequest { field: "indexes", problem });
                }
                let files = files(Arc::clone(&open), indexes.names.clone()).boxed();
                let files = state.shared.admission.run_in_background(ask, files).await?;
                requests_for_files(&open, &routes, &files)
            }
            None => requests_for_rows(state, &open, &routes, &request, ask).await?,
        };
        let asked = requests.iter().filter(|requests| !requests.is_empty()).count().max(1) as u64;
        for request_to_node in requests.iter_mut().flatten() {
            request_to_node.bytes_per_s = request.bytes_per_s.div_ceil(asked);
        }
        Ok(Self { open, routes, requests })
    }

    /// Runs on all I/O nodes that have chunks to fill, concurrently, and reports the sum of their progress. A node that
    /// fails does not stop the other nodes. The last message is one of the faults, or the final sum if no node failed.
    pub async fn run(self, progress: &Progress, context: RequestContext) {
        let (open, routes) = (&self.open, &self.routes);
        // The progress of each request. Files that are still waiting count with the blocks that they will fill.
        let mut latest: Vec<NodeProgress> =
            self.requests.iter().flatten().map(expected_progress).collect();
        let (steps, mut stepped) = mpsc::channel(64);
        let steps = &steps;
        let mut first = 0;
        let runs = self.requests.into_iter().enumerate().map(|(node, requests)| {
            let (number, client) = (first, &routes.nodes()[node].client);
            first += requests.len();
            async move {
                for (number, request) in (number..).zip(requests) {
                    let mut reports = client.warm(request).await?;
                    while let Some(report) = reports.try_next().await? {
                        if steps.send((number, report)).await.is_err() {
                            return Ok(());
                        }
                    }
                }
                Ok::<_, Fault>(())
            }
        });
        let runs = join_all(runs);
        tokio::pin!(runs);
        let ended = loop {
            tokio::select! {
                biased;
                step = stepped.recv() => {
                    let Some((number, report)) = step else { continue };
                    latest[number] = report;
                    if progress.send(Ok(sum(open, &latest))).await.is_err() {
                        return;
                    }
                }
                ended = &mut runs => break ended,
            }
        };
        // Take the reports that arrived at the same moment as the last node's end.
        while let Ok((number, report)) = stepped.try_recv() {
            latest[number] = report;
        }
        let log = |fault: &Fault| warn!(trace_id = context.trace_id(), "warm: {fault}");
        let first = ended.into_iter().filter_map(std::result::Result::err).inspect(log).next();
        let last = first.map_or_else(|| Ok(sum(open, &latest)), |fault| Err(open.named(fault)));
        // The caller may be gone.
        let _ = progress.send(last).await;
    }
}

/// Returns the requests to each node for the rows of a Warm.
async fn requests_for_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    routes: &Arc<Routes>,
    warm: &WarmRequest,
    ask: Ask,
) -> Result<Vec<Vec<NodeRequest>>> {
    let admission = &state.shared.admission;
    let columns = match warm.columns.is_empty() {
        true => Vec::new(),
        false => open.columns(&warm.columns)?,
    };
    let runs = match warm.rows.as_slice() {
        [] => None,
        rows => {
            let runs = runs_holding(Arc::clone(open), rows.to_vec());
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
        ..NodeRequest::default()
    };
    if routes.nodes().len() == 1 && runs.is_none() {
        // A request without a list of chunks fills all chunks of the version.
        return Ok(vec![vec![request(Vec::new())]]);
    }
    let runs = runs.unwrap_or_else(|| all_runs(open));
    let dealt = ranges_by_owner(Arc::clone(open), Arc::clone(routes), runs);
    let dealt = async { Ok(dealt.await) }.boxed();
    let ranges = admission.run_in_background(ask, dealt).await?.into_iter();
    let requests = |chunks: Vec<ChunkRange>| match chunks.is_empty() {
        true => Vec::new(),
        false => vec![request(chunks)],
    };
    Ok(ranges.map(requests).collect())
}

/// A file, with its size.
type SizedFile = (FilePath, u64);

/// Returns the files of the indexes named `names`, or of all indexes, and their sizes.
async fn files(open: Arc<OpenTable>, names: Vec<String>) -> Result<Vec<SizedFile>> {
    if open.table.canonical_uri().folder().is_some() {
        let problem = "are read from the table's folder, which no I/O node caches".to_owned();
        return Err(QueryError::BadRequest { field: "indexes", problem });
    }
    let known = open.table.indexes().await?;
    if let Some(name) = names.iter().find(|name| known.iter().all(|it| it.name != **name)) {
        let known: Vec<_> = known.iter().map(|it| it.name.as_str()).collect();
        let (name, known) = (quoted(name), known.join(", "));
        let problem = format!("have no {name}; the table's indexes are: {known}");
        return Err(QueryError::BadRequest { field: "indexes", problem });
    }
    let mut sized = Vec::new();
    for file in open.table.files(&names).await? {
        // The size of a deletion file is not recorded. It is small: its first block is filled.
        sized.push((file.path, file.bytes.unwrap_or(0)));
    }
    Ok(sized)
}

/// Returns the requests to each node for the blocks of files.
fn requests_for_files(
    open: &OpenTable,
    routes: &Routes,
    files: &[SizedFile],
) -> Vec<Vec<NodeRequest>> {
    let mut requests = vec![Vec::new(); routes.nodes().len()];
    for (path, bytes) in files {
        let hash = hash_of_file(open.table.canonical_uri(), path);
        let block_bytes = u64::from(BLOCK_SECTORS.get()) * SECTOR_BYTES as u64;
        let blocks = u32::try_from(bytes.div_ceil(block_bytes)).unwrap_or(u32::MAX).max(1);
        let mut ranges = vec![Vec::new(); requests.len()];
        for index in 0..blocks {
            let block = ChunkId { fragment: 0, index };
            if let Some(owner) = routes.owner_of(hash, block) {
                add_chunk(&mut ranges[owner], block);
            }
        }
        for (node, chunks) in ranges.into_iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            requests[node].push(NodeRequest {
                table_uri: open.table.uri().to_owned(),
                chunks,
                file: path.as_str().to_owned(),
                file_bytes: *bytes,
                ..NodeRequest::default()
            });
        }
    }
    requests
}

/// Returns the progress of a request before it is sent. The chunks of rows are not known yet.
fn expected_progress(request: &NodeRequest) -> NodeProgress {
    let blocks = request.chunks.iter().map(|range| u64::from(range.count)).sum();
    let extents_total = if request.file.is_empty() { 0 } else { blocks };
    NodeProgress { extents_total, ..NodeProgress::default() }
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
