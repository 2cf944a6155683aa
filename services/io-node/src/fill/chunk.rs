//! What a fill brings: the rows of one chunk of one pack, encoded.

use std::sync::Arc;

use address::{ChunkId, ExtentKey};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::NodeError;
use crate::table::{BoundedRows, OpenTable};

/// A chunk of one of a table's packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FillKey {
    /// The pack's number in the table.
    pub pack: usize,
    /// The chunk.
    pub chunk: ChunkId,
}

/// Where the filler has a chunk from: all that it knows of tables.
pub trait Chunk: Send {
    /// Its rows, as they go to the drive; of a blob column only as far as they fit `bytes_max`, a segment.
    fn encoded(
        self: Box<Self>,
        bytes_max: u64,
    ) -> BoxFuture<'static, Result<pack::Extent, NodeError>>;
}

/// A chunk of an open table.
pub struct TableChunk {
    table: Arc<OpenTable>,
    key: FillKey,
}

impl TableChunk {
    /// The chunk with its extent's name; `None` if the table has no such fragment.
    pub fn new(table: &Arc<OpenTable>, key: FillKey) -> Option<(ExtentKey, Self)> {
        let fragment = table.fragment(key.chunk.fragment)?;
        let name = fragment.extent(key.pack, key.chunk.index);
        Some((name, Self { table: Arc::clone(table), key }))
    }
}

impl Chunk for TableChunk {
    fn encoded(
        self: Box<Self>,
        bytes_max: u64,
    ) -> BoxFuture<'static, Result<pack::Extent, NodeError>> {
        async move {
            let Self { table, key: FillKey { pack, chunk } } = *self;
            let rows = table.fragment(chunk.fragment).map_or(0..0, |f| f.rows_of(chunk.index));
            let columns = &table.packs()[pack].columns;
            let batch = if table.packs()[pack].is_blob {
                let mut read = BoundedRows::new(rows.len(), bytes_max);
                for piece in read.pieces() {
                    let piece = rows.start + piece.start as u32..rows.start + piece.end as u32;
                    read.push(table.table().read_chunk(chunk.fragment, piece, columns).await?)?;
                }
                read.joined()?
            } else {
                table.table().read_chunk(chunk.fragment, rows, columns).await?
            };
            // Encoding a chunk is milliseconds of pure CPU.
            let encode = move || table.packs()[pack].layout.encode(batch.columns());
            match tokio::task::spawn_blocking(encode).await {
                Ok(extent) => Ok(extent?),
                Err(error) => {
                    Err(NodeError::Os { doing: "encoding a chunk", source: error.into() })
                }
            }
        }
        .boxed()
    }
}
