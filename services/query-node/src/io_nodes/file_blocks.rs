//! The blocks of a table's file: which I/O nodes own them, and the requests to fill them.

use address::ChunkId;
use lake::{FilePath, TableUri};
use placement::{ChunkRun, TableHash};
use tables::{BLOCK_BYTES, TOGETHER_MAX};
use wire::fetch::{ChunkRange, WarmRequest};

use super::owners::{add_chunk, each_chunk};
use super::routes::Routes;

/// Returns the chunk by which a block is placed. Groups of [`TOGETHER_MAX`] neighbouring blocks have the same owner,
/// which can read a group with one request to the store.
pub fn placed(block: u32) -> ChunkId {
    ChunkId { fragment: 0, index: block / TOGETHER_MAX }
}

/// Returns the hash by which the blocks of a file are placed.
pub fn hash_of_file(table: &TableUri, path: &FilePath) -> TableHash {
    TableHash::of(&format!("{table}/{}", path.as_str()))
}

/// Returns the number of blocks of a file; 1 if its size is not known (0).
pub fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64).max(1)
}

/// Returns a request for each node that owns blocks of a file, with the node's number in `routes`. Without a size
/// (`bytes` is 0), only the first block is filled.
pub async fn fill_requests(
    routes: &Routes,
    table: &TableUri,
    path: &FilePath,
    bytes: u64,
) -> Vec<(usize, WarmRequest)> {
    let hash = hash_of_file(table, path);
    let mut ranges: Vec<Vec<ChunkRange>> = vec![Vec::new(); routes.nodes().len()];
    let all = ChunkRun { fragment: 0, chunks: 0..blocks_of(bytes) as u32 };
    each_chunk(vec![all], |block| {
        if let Some(owner) = routes.owner_of(hash, placed(block.index)) {
            add_chunk(&mut ranges[owner], block);
        }
    })
    .await;
    let request = |chunks| WarmRequest {
        table_uri: table.to_string(),
        chunks,
        file: path.as_str().to_owned(),
        file_bytes: bytes,
        ..WarmRequest::default()
    };
    let ranges = ranges.into_iter().enumerate().filter(|(_, chunks)| !chunks.is_empty());
    ranges.map(|(node, chunks)| (node, request(chunks))).collect()
}
