//! Placement: answers which I/O nodes own a table's chunks now.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::Permission;
use address::ChunkId;
use futures::FutureExt;
use placement::ChunkRun;
use wire::fetch::ChunkRange;
use wire::query::{NodePlacement, PlacementRequest, PlacementResponse};

use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::io_nodes::{Node, Routes, add_chunk, all_runs, each_chunk};
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, OpenTable};

/// Maximum number of chunks that an answer names: about 2 MB if none of them are consecutive.
const CHUNKS_NAMED_MAX: u64 = 131_072;

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
    call: &mut Call,
) -> Result<PlacementResponse> {
    let PlacementRequest { table, branch, version, .. } = &request;
    let asked = AskedVersion { table, branch, version: *version };
    let open = call.open(asked, Permission::Observe).boxed().await?;
    let context = call.context;
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
    let ask = Ask { during: "placement", rows: 1, context: context.as_batch() };
    let dealt = admission.run_in_background(ask, dealt).await?;
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
                add_chunk(&mut owned.ranges, chunk);
            }
        })
        .await;
    }
    owned
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
            let problem = format!("names fragment {fragment}, which version {version} lacks");
            Err(QueryError::BadRequest { field: "fragments", problem })
        }
    }
}

/// Returns the number of a chunk's rows, deleted ones included. The last chunk of a fragment may have fewer than the
/// others.
fn rows_in(open: &OpenTable, chunk: ChunkId) -> u64 {
    let fragments = open.table.fragments();
    let Ok(at) = fragments.binary_search_by_key(&chunk.fragment, |info| info.id) else { return 0 };
    let Some(rows) = open.chunk_rows_of(chunk.fragment) else { return 0 };
    let rows = u64::from(rows.get());
    let before = u64::from(chunk.index) * rows;
    u64::from(fragments[at].physical_rows).saturating_sub(before).min(rows)
}
