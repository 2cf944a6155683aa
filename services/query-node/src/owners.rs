//! Which I/O node owns which chunks of a table: for a Warm, and for whoever asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use placement::ChunkRun;
use tokio::task::yield_now;
use wire::fetch::ChunkRange;
use wire::query::{NodePlacement, PlacementRequest, PlacementResponse};

use crate::error::{QueryError, Result};
use crate::io_tier::{Node, Routes};
use crate::state::State;
use crate::tables::OpenTable;
use crate::terms::Terms;

/// The most chunks that an answer names, each perhaps by itself: about 2 MB.
const CHUNKS_NAMED_MAX: u64 = 131_072;

/// Who owns a table's chunks now.
///
/// # Errors
/// A table, version or fragment that there isn't; more chunks to name than an answer has room for.
pub async fn placement(
    state: &State,
    request: PlacementRequest,
    terms: Terms,
) -> Result<PlacementResponse> {
    let opened = state.shared.catalog.open(&request.table, request.version).boxed();
    let open = terms.bound("open", opened).await?;
    let runs = runs_of(&open, &request.fragments)?;
    let chunks = runs.iter().map(|run| run.chunks.len() as u64).sum::<u64>();
    if request.name_chunks && chunks > CHUNKS_NAMED_MAX {
        let problem = format!(
            "asks for the names of {chunks} chunks, and {CHUNKS_NAMED_MAX} is the most; name fewer fragments"
        );
        return Err(QueryError::BadRequest { field: "name_chunks", problem });
    }
    let routes = state.tier.routes();
    let dealt = ranges_by_owner(Arc::clone(&open), Arc::clone(&routes), runs);
    // Every chunk is hashed for every node, which may take seconds: not on a core that has connections.
    let dealt = terms.bound("placement", state.shared.turns.beside(dealt).boxed()).await?;
    let placed = |(node, ranges): (&Arc<Node>, Vec<ChunkRange>)| NodePlacement {
        name: node.seat.name.clone(),
        zone: node.seat.zone.clone().unwrap_or_default(),
        share: node.seat.share,
        chunks: ranges.iter().map(|range| u64::from(range.count)).sum(),
        rows: ranges.iter().map(|range| rows_in(&open, range)).sum(),
        ranges: if request.name_chunks { ranges } else { Vec::new() },
    };
    let nodes = routes.nodes().iter().zip(dealt).map(placed).collect();
    Ok(PlacementResponse { version: open.version(), nodes })
}

/// All chunks.
pub fn all_runs(open: &OpenTable) -> Vec<ChunkRun> {
    let fragments = open.table.fragments().iter();
    let runs = fragments.filter_map(|info| {
        let chunks = open.chunk_rows_of(info.id)?.chunks_in(info.physical_rows);
        Some(ChunkRun { fragment: info.id, chunks: 0..chunks })
    });
    runs.collect()
}

/// The chunks of these runs, as runs of each I/O node; none while there is nobody. Whoever drops it stops it.
///
/// # Errors
/// None.
pub async fn ranges_by_owner(
    open: Arc<OpenTable>,
    routes: Arc<Routes>,
    runs: Vec<ChunkRun>,
) -> Result<Vec<Vec<ChunkRange>>> {
    let mut ranges: Vec<Vec<ChunkRange>> = vec![Vec::new(); routes.nodes().len()];
    if ranges.is_empty() {
        return Ok(ranges);
    }
    for run in runs {
        for chunk in run.ids() {
            let (fragment, index) = (chunk.fragment, chunk.index);
            let owner = routes.owner_of_chunk(&open, chunk);
            match ranges[owner].last_mut() {
                Some(last) if last.fragment == fragment && last.first + last.count == index => {
                    last.count += 1;
                }
                _ => ranges[owner].push(ChunkRange { fragment, first: index, count: 1 }),
            }
        }
        yield_now().await;
    }
    Ok(ranges)
}

/// The chunks of these fragments; of all of them if none are named.
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

/// Its rows; the last chunk of a fragment may have fewer than the others.
fn rows_in(open: &OpenTable, range: &ChunkRange) -> u64 {
    let fragments = open.table.fragments();
    let Ok(at) = fragments.binary_search_by_key(&range.fragment, |info| info.id) else { return 0 };
    let Some(rows) = open.chunk_rows_of(range.fragment) else { return 0 };
    let before = |chunk: u32| {
        (u64::from(chunk) * u64::from(rows.get())).min(fragments[at].physical_rows.into())
    };
    before(range.first + range.count) - before(range.first)
}
