//! Assigns a table's chunks to the I/O nodes that own them, for Warm and Placement.

use std::sync::Arc;

use address::ChunkId;
use placement::ChunkRun;
use tokio::task::yield_now;
use wire::fetch::ChunkRange;

use super::routes::Routes;
use crate::tables::OpenTable;

/// Number of chunks after which other tasks of the thread may run. With hundreds of nodes, finding the owners of so
/// many chunks takes milliseconds.
const CHUNKS_AT_ONCE: usize = 4096;

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
        each_chunk(runs, |chunk| {
            add_chunk(&mut ranges[routes.owner_of_chunk(&open, chunk)], chunk)
        })
        .await;
    }
    ranges
}

/// Calls `find` with each chunk of `runs`, in order, and yields to other tasks from time to time.
pub async fn each_chunk(runs: Vec<ChunkRun>, mut find: impl FnMut(ChunkId)) {
    for (at, chunk) in runs.into_iter().flat_map(ChunkRun::ids).enumerate() {
        if at > 0 && at % CHUNKS_AT_ONCE == 0 {
            yield_now().await;
        }
        find(chunk);
    }
}

/// Appends a chunk to `ranges`: lengthens the last range if the chunk directly follows it, or else adds a range.
pub fn add_chunk(ranges: &mut Vec<ChunkRange>, chunk: ChunkId) {
    let ChunkId { fragment, index } = chunk;
    match ranges.last_mut() {
        Some(last) if last.fragment == fragment && last.first + last.count == index => {
            last.count += 1;
        }
        _ => ranges.push(ChunkRange { fragment, first: index, count: 1 }),
    }
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
            let mut each = std::pin::pin!(each_chunk(runs, |chunk| add_chunk(&mut ranges, chunk)));
            while futures::poll!(&mut each).is_pending() {
                steps += 1;
            }
        }
        assert_eq!(steps, 2);
        let range = |fragment, first, count| ChunkRange { fragment, first, count };
        assert_eq!(ranges, [range(3, 0, 2 * chunks), range(4, 7, 2)]);
    }
}
