//! Assigns a table's chunks to the I/O nodes that own them, for Warm and Placement.

use std::collections::BTreeSet;
use std::sync::Arc;

use address::ChunkId;
use futures::FutureExt;
use placement::ChunkRun;
use tokio::task::yield_now;
use wire::fetch::ChunkRange;
use wire::query::{NodePlacement, PlacementRequest, PlacementResponse};

use crate::error::{QueryError, Result};
use crate::io_tier::{Node, Routes};
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// Maximum number of chunks that an answer names: about 2 MB if none of them are consecutive.
const CHUNKS_NAMED_MAX: u64 = 131_072;

/// Number of chunks after which other tasks of the thread may run. With hundreds of nodes they take milliseconds.
const CHUNKS_AT_ONCE: usize = 4096;

/// The part of a table that an I/O node owns.
#[derive(Clone, Default)]
struct Owned {
    chunks: u64,
    rows: u64,
    /// The chunks' names, if they were requested.
    ranges: Vec<ChunkRange>,
}

/// Answers a Placement request: which I/O nodes own a table's chunks now.
///
/// # Errors
/// If the table, version or fragment does not exist, or too many chunks are to be named.
pub async fn placement(
    state: &ShardState,
    request: PlacementRequest,
    context: RequestContext,
) -> Result<PlacementResponse> {
    let opened = state.shared.catalog.open(&request.table, request.version).boxed();
    let open = context.bound("open", opened).await?;
    let runs = runs_of(&open, &request.fragments)?;
    let chunks = runs.iter().map(|run| run.chunks.len() as u64).sum::<u64>();
    if request.name_chunks && chunks > CHUNKS_NAMED_MAX {
        let problem = format!(
            "asks for the names of {chunks} chunks, and {CHUNKS_NAMED_MAX} is the most; name fewer fragments"
        );
        return Err(QueryError::BadRequest { field: "name_chunks", problem });
    }
    let routes = state.tier.routes();
    let dealt = owned(Arc::clone(&open), Arc::clone(&routes), runs, request.name_chunks);
    // Every chunk is hashed for every node. This may take seconds, so it must not block a core that serves
    // connections.
    let dealt = async { Ok(dealt.await) }.boxed();
    let admission = &state.shared.admission;
    let dealt = admission.run_in_background("placement", context.as_batch(), dealt).await?;
    let placed = |(node, owned): (&Arc<Node>, Owned)| NodePlacement {
        name: node.member.name.clone(),
        zone: node.member.zone.clone().unwrap_or_default(),
        share: node.member.share,
        chunks: owned.chunks,
        rows: owned.rows,
        ranges: owned.ranges,
        state: node.state().into(),
        connected: node.client.is_connected(),
    };
    let nodes = routes.nodes().iter().zip(dealt).map(placed).collect();
    Ok(PlacementResponse { version: open.version(), nodes })
}

/// Returns all chunks of a table.
pub fn all_runs(open: &OpenTable) -> Vec<ChunkRun> {
    let fragments = open.table.fragments().iter();
    let runs = fragments.filter_map(|info| {
        let chunks = open.chunk_rows_of(info.id)?.chunks_in(info.physical_rows);
        Some(ChunkRun { fragment: info.id, chunks: 0..chunks })
    });
    runs.collect()
}

/// Returns the chunks of `runs` as ranges for each I/O node; empty if there are no nodes. Dropping the future stops
/// the work.
pub async fn ranges_by_owner(
    open: Arc<OpenTable>,
    routes: Arc<Routes>,
    runs: Vec<ChunkRun>,
) -> Vec<Vec<ChunkRange>> {
    let mut ranges = vec![Vec::new(); routes.nodes().len()];
    if !ranges.is_empty() {
        each_chunk(runs, |chunk| add(&mut ranges[routes.owner_of_chunk(&open, chunk)], chunk))
            .await;
    }
    ranges
}

/// Returns what each I/O node owns of `runs`.
async fn owned(
    open: Arc<OpenTable>,
    routes: Arc<Routes>,
    runs: Vec<ChunkRun>,
    are_named: bool,
) -> Vec<Owned> {
    let mut owned = vec![Owned::default(); routes.nodes().len()];
    if !owned.is_empty() {
        each_chunk(runs, |chunk| {
            let owned = &mut owned[routes.owner_of_chunk(&open, chunk)];
            owned.chunks += 1;
            owned.rows += rows_in(&open, chunk);
            if are_named {
                add(&mut owned.ranges, chunk);
            }
        })
        .await;
    }
    owned
}

/// Calls `find` with each chunk of `runs`, in order, and yields to other tasks from time to time.
async fn each_chunk(runs: Vec<ChunkRun>, mut find: impl FnMut(ChunkId)) {
    for (at, chunk) in runs.into_iter().flat_map(ChunkRun::ids).enumerate() {
        if at > 0 && at % CHUNKS_AT_ONCE == 0 {
            yield_now().await;
        }
        find(chunk);
    }
}

/// Adds the next chunk to `ranges`, which are in order.
fn add(ranges: &mut Vec<ChunkRange>, chunk: ChunkId) {
    let ChunkId { fragment, index } = chunk;
    match ranges.last_mut() {
        Some(last) if last.fragment == fragment && last.first + last.count == index => {
            last.count += 1;
        }
        _ => ranges.push(ChunkRange { fragment, first: index, count: 1 }),
    }
}

/// Returns the chunks of the named fragments, or of all fragments if none is named.
fn runs_of(open: &OpenTable, fragments: &[u32]) -> Result<Vec<ChunkRun>> {
    let mut runs = all_runs(open);
    if fragments.is_empty() {
        return Ok(runs);
    }
    let mut wanted: BTreeSet<u32> = fragments.iter().copied().collect();
    runs.retain(|run| wanted.remove(&run.fragment));
    match wanted.first() {
        None => Ok(runs),
        Some(fragment) => {
            let version = open.version();
            let problem = format!("names fragment {fragment}, which version {version} has not");
            Err(QueryError::BadRequest { field: "fragments", problem })
        }
    }
}

/// Returns the number of a chunk's rows. The last chunk of a fragment may have fewer rows than the others.
fn rows_in(open: &OpenTable, chunk: ChunkId) -> u64 {
    let fragments = open.table.fragments();
    let Ok(at) = fragments.binary_search_by_key(&chunk.fragment, |info| info.id) else { return 0 };
    let Some(rows) = open.chunk_rows_of(chunk.fragment) else { return 0 };
    let rows = u64::from(rows.get());
    let before = u64::from(chunk.index) * rows;
    u64::from(fragments[at].physical_rows).saturating_sub(before).min(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pass_over_many_chunks_yields_within_a_fragment_too() {
        let chunks = CHUNKS_AT_ONCE as u32;
        let runs = [(3, 0..2 * chunks), (4, 7..9)];
        let runs = runs.map(|(fragment, chunks)| ChunkRun { fragment, chunks }).to_vec();
        let mut ranges = Vec::new();
        let mut steps = 0;
        {
            let mut each = std::pin::pin!(each_chunk(runs, |chunk| add(&mut ranges, chunk)));
            while futures::poll!(&mut each).is_pending() {
                steps += 1;
            }
        }
        assert_eq!(steps, 2);
        let range = |fragment, first, count| ChunkRange { fragment, first, count };
        assert_eq!(ranges, [range(3, 0, 2 * chunks), range(4, 7, 2)]);
    }
}
