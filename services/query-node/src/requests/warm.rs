//! Warm: has a table's chunks, or the files of its indexes, filled by the I/O nodes that own them.

use std::sync::Arc;
use std::time::Duration;

use access::Permission;
use futures::future::{join_all, ready};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use key_runs::{RunFile, RunFiles};
use lake::{Table, TableFile, quoted};
use placement::ChunkRun;
use spelling::counted;
use tables::{FragmentRows, RANGES_MAX, rows_of};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::warn;
use wire::fetch::{ChunkRange, RowRange, WarmProgress as NodeProgress, WarmRequest as NodeRequest};
use wire::query::{WarmProgress, WarmRequest};
use wire::{Fault, Reason};

use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::io_nodes::{Routes, all_runs, blocks_of, fill_requests, ranges_by_owner};
use crate::request_context::RequestContext;
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, OpenTable};

/// The number of files that an I/O node fills at the same time for one Warm without a limited rate. With one, it fills
/// one file after the other, because the requests for files do not know of each other's bytes.
const FILES_PER_NODE: usize = 4;

/// The maximum number of blocks of files that a Warm fills: 2 TiB.
const BLOCKS_MAX: u64 = 1 << 22;

/// The channel of progress reports to the caller.
pub type Progress = mpsc::Sender<std::result::Result<WarmProgress, Fault>>;

/// A validated Warm request: what each I/O node is to fill.
pub struct Warm {
    open: Arc<OpenTable>,
    /// The routes when the Warm began. Chunks that move to other nodes in the meantime are filled when they are read.
    routes: Arc<Routes>,
    /// The requests to each I/O node.
    requests: Vec<Vec<NodeRequest>>,
    /// The rate at which each I/O node may write, in bytes per second; 0 for no limit.
    bytes_per_s: u64,
}

impl Warm {
    /// Validates a request and assigns its chunks to I/O nodes.
    pub async fn new(state: &ShardState, request: WarmRequest, call: &mut Call) -> Result<Self> {
        let WarmRequest { table, branch, version, .. } = &request;
        let asked = AskedVersion { table, branch, version: *version };
        let open = call.open(asked, Permission::Warm).await?;
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
                let (open, routes) = (Arc::clone(&open), Arc::clone(&routes));
                let requests = requests_for_files(open, routes, indexes.names.clone()).boxed();
                state.shared.admission.run_in_background(ask, requests).await?
            }
            None => requests_for_rows(state, &open, &routes, &request, ask).await?,
        };
        let asked = requests.iter().filter(|requests| !requests.is_empty()).count().max(1) as u64;
        let bytes_per_s = request.bytes_per_s.div_ceil(asked);
        for request_to_node in requests.iter_mut().flatten() {
            request_to_node.bytes_per_s = bytes_per_s;
        }
        Ok(Self { open, routes, requests, bytes_per_s })
    }

    /// Runs on all I/O nodes that have chunks to fill, concurrently, and reports the sum of their progress. A node that
    /// fails does not stop the other nodes, and a file that can't be filled does not stop the other files. The last
    /// message is the final sum, if no node failed.
    ///
    /// # Errors
    /// The fault of one of the nodes that failed, which the caller of this function sends as the last message.
    pub async fn run(self, progress: &Progress, context: RequestContext) -> Result<()> {
        let (open, routes, bytes_per_s) = (&self.open, &self.routes, self.bytes_per_s);
        let files_at_once = if bytes_per_s == 0 { FILES_PER_NODE } else { 1 };
        let mut total = Total::new(self.requests.iter().flatten().map(expected_progress).collect());
        let (steps, mut stepped) = mpsc::channel(64);
        let steps = &steps;
        let mut first = 0;
        let runs = self.requests.into_iter().enumerate().map(|(node, requests)| {
            let (numbers, client) = (first.., &routes.nodes()[node].client);
            first += requests.len();
            let last = first;
            let runs = numbers.zip(requests).map(move |(number, request)| async move {
                let began = Instant::now();
                let mut bytes_written = 0;
                let expected = expected_progress(&request);
                let is_file = !request.file.is_empty();
                let run = async {
                    let mut reports = client.warm(request).await?;
                    while let Some(report) = reports.try_next().await? {
                        bytes_written = report.bytes_written;
                        // Never fails: the receiver outlives the runs.
                        let _ = steps.send((number, report)).await;
                    }
                    Ok::<_, Fault>(())
                };
                let ended = run.await;
                if bytes_per_s > 0 && number + 1 < last {
                    // A node does not wait after its last bytes.
                    let took =
                        Duration::try_from_secs_f64(bytes_written as f64 / bytes_per_s as f64);
                    let until = took.ok().and_then(|took| began.checked_add(took));
                    if let Some(until) = until {
                        sleep_until(until).await;
                    }
                }
                match ended {
                    Err(fault) if is_file => {
                        let extents_failed = expected.extents_total;
                        let last_error = fault.message;
                        let failed = NodeProgress { extents_failed, last_error, ..expected };
                        let _ = steps.send((number, failed)).await;
                        None
                    }
                    done => done.err(),
                }
            });
            stream::iter(runs).buffer_unordered(files_at_once).filter_map(ready).collect::<Vec<_>>()
        });
        let runs = join_all(runs);
        tokio::pin!(runs);
        let ended = loop {
            tokio::select! {
                biased;
                step = stepped.recv() => {
                    let Some((number, report)) = step else { continue };
                    total.update(open, number, report);
                    if progress.send(Ok(total.sum.clone())).await.is_err() {
                        return Ok(());
                    }
                }
                () = progress.closed() => return Ok(()),
                ended = &mut runs => break ended,
            }
        };
        // Take the reports that arrived together with the end of the last request.
        while let Ok((number, report)) = stepped.try_recv() {
            total.update(open, number, report);
        }
        let log = |fault: &Fault| warn!(trace_id = context.trace_id(), "warm: {fault}");
        if let Some(fault) = ended.into_iter().flatten().inspect(log).next() {
            return Err(fault.into());
        }
        // The caller may be gone.
        let _ = progress.send(Ok(total.sum)).await;
        Ok(())
    }
}

/// The sum of the progress of all requests to I/O nodes.
struct Total {
    /// The latest progress of each request. Files that are still waiting count with the blocks that they will fill.
    latest: Vec<NodeProgress>,
    sum: WarmProgress,
}

impl Total {
    fn new(latest: Vec<NodeProgress>) -> Self {
        let extents_total = latest.iter().map(|it| it.extents_total).sum();
        Self { latest, sum: WarmProgress { extents_total, ..WarmProgress::default() } }
    }

    /// Takes the progress of request `number` into the sum. An error names the table as the caller does, not by its
    /// URI.
    fn update(&mut self, open: &OpenTable, number: usize, now: NodeProgress) {
        let (before, sum) = (&mut self.latest[number], &mut self.sum);
        let counts = |it: &NodeProgress| {
            let NodeProgress { extents_total, extents_done, extents_found, .. } = *it;
            [extents_total, extents_done, extents_found, it.extents_failed, it.bytes_written]
        };
        let [total, done, found, failed, written] = counts(&now);
        let old = counts(before);
        sum.extents_total = sum.extents_total + total - old[0];
        sum.extents_done = sum.extents_done + done - old[1];
        sum.extents_found = sum.extents_found + found - old[2];
        sum.extents_failed = sum.extents_failed + failed - old[3];
        sum.bytes_written = sum.bytes_written + written - old[4];
        if !now.last_error.is_empty() {
            sum.last_error = open.named_text(&now.last_error);
        }
        *before = now;
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
    let mut columns = Vec::new();
    if !warm.columns.is_empty() {
        columns = open.columns(&warm.columns)?;
        // I/O nodes fill all columns if a request names none.
        if columns.is_empty() {
            let problem =
                "names no column of the table; name one, or leave it out to fill all columns";
            return Err(QueryError::BadRequest { field: "columns", problem: problem.into() });
        }
    }
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
        branch: open.branch().to_owned(),
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

/// Returns the files of the persisted runs of the table's key index.
async fn key_files(table: &Table) -> Result<Vec<TableFile>> {
    let runs = RunFiles::of(table).await?;
    let file = |file: RunFile| {
        Some(TableFile { path: runs.file_path(&file.name)?, bytes: Some(file.bytes) })
    };
    Ok(runs.list().await?.into_iter().filter_map(file).collect())
}

/// Returns the requests to each node for the files of the indexes named `names`. Without names, it returns the requests
/// for the files of all indexes, for deletion files, and for the files of the key index.
async fn requests_for_files(
    open: Arc<OpenTable>,
    routes: Arc<Routes>,
    names: Vec<String>,
) -> Result<Vec<Vec<NodeRequest>>> {
    let bad = |problem: String| QueryError::BadRequest { field: "indexes", problem };
    if open.table.canonical_uri().folder().is_some() {
        return Err(bad("are read from the table's folder, which no I/O node caches".to_owned()));
    }
    let known = open.table.indexes().await?;
    if let Some(name) = names.iter().find(|name| known.iter().all(|it| it.name != **name)) {
        let known: Vec<_> = known.iter().map(|it| it.name.as_str()).collect();
        let (name, known) = (quoted(name), known.join(", "));
        return Err(bad(format!("have no {name}; the table's indexes are: {known}")));
    }
    let mut files = open.table.files(&names).await?;
    if names.is_empty() {
        files.extend(key_files(&open.table).await?);
    }
    let mut requests = vec![Vec::new(); routes.nodes().len()];
    let mut blocks_left = BLOCKS_MAX;
    for file in files {
        // The size of a deletion file is not recorded. Most are small, so only the first block is filled.
        let bytes = file.bytes.unwrap_or(0);
        blocks_left = blocks_left.checked_sub(blocks_of(bytes)).ok_or_else(|| {
            bad(format!(
                "have more than {} of 512 KiB; name some of them",
                counted(BLOCKS_MAX, "block")
            ))
        })?;
        let table = open.table.canonical_uri();
        for (node, request) in fill_requests(&routes, table, &file.path, bytes).await {
            requests[node].push(request);
        }
    }
    Ok(requests)
}

/// Returns the progress of a request before it is sent. For rows, the number of extents is not known yet.
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
