//! The data of a fill: the rows of one chunk of one pack, encoded.

use std::ops::Range;
use std::sync::Arc;

use address::{ChunkId, ExtentKey};
use arrow_array::RecordBatch;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::NodeError;
use crate::table::{BoundedRows, Excess, OpenTable};

/// A chunk of one of a table's packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FillKey {
    /// The pack's number in the table.
    pub pack: usize,
    pub chunk: ChunkId,
}

/// The source of a chunk's data. It hides the table from the filler.
pub trait Chunk: Send {
    /// Returns the chunk's encoded rows. `bytes_max` is the length of a segment. Reading a blob column stops with
    /// [`NodeError::ChunkTooLarge`] once its rows take more bytes than that.
    fn encoded(
        self: Box<Self>,
        bytes_max: u64,
    ) -> BoxFuture<'static, Result<pack::Extent, NodeError>>;

    /// Returns the approximate number of bytes of a scan of the chunk, or `None` if it can't be scanned together with
    /// its neighbours (the previous and next chunks of the same fragment and pack).
    fn scan_bytes(&self) -> Option<u64> {
        None
    }

    /// Reads this chunk and those after it, `chunks` in all, in one scan, and returns an extent for each. Call it only
    /// if [`scan_bytes`](Self::scan_bytes) returns a number.
    fn encoded_together(
        &self,
        chunks: u32,
    ) -> BoxFuture<'static, Result<Vec<pack::Extent>, NodeError>> {
        let problem = format!("{chunks} chunks can't be scanned together");
        let source = std::io::Error::other(problem);
        async { Err(NodeError::Os { doing: "scanning", source }) }.boxed()
    }
}

/// A chunk of an open table.
pub struct TableChunk {
    table: Arc<OpenTable>,
    key: FillKey,
}

impl TableChunk {
    /// Returns the chunk and its extent's name; `None` if the table has no such fragment.
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
                let too_large = |Excess { rows, bytes_max, bytes }| NodeError::ChunkTooLarge {
                    rows,
                    bytes_max,
                    bytes,
                };
                let mut read = BoundedRows::new(rows.len(), 1, bytes_max, too_large);
                while let Some(piece) = read.next() {
                    let piece = rows.start + piece.start as u32..rows.start + piece.end as u32;
                    read.push(table.table().read_chunk(chunk.fragment, piece, columns).await?)?;
                }
                read.joined()?
            } else {
                table.table().read_chunk(chunk.fragment, rows, columns).await?
            };
            let mut extents = encoded(&table, pack, &[batch]).await?;
            Ok(extents.swap_remove(0))
        }
        .boxed()
    }

    fn scan_bytes(&self) -> Option<u64> {
        let FillKey { pack, chunk } = self.key;
        let fragment = self.table.fragment(chunk.fragment)?;
        let rows = fragment.rows_of(chunk.index).len() as u64;
        let row_bytes = self.table.packs()[pack].scanned_row_bytes(fragment.row_bytes)?;
        Some(rows.saturating_mul(row_bytes))
    }

    fn encoded_together(
        &self,
        chunks: u32,
    ) -> BoxFuture<'static, Result<Vec<pack::Extent>, NodeError>> {
        let (table, FillKey { pack, chunk }) = (Arc::clone(&self.table), self.key);
        async move {
            let rows_of =
                |index| table.fragment(chunk.fragment).map_or(0..0, |it| it.rows_of(index));
            let each: Vec<_> = (chunk.index..chunk.index + chunks).map(rows_of).collect();
            let start = rows_of(chunk.index).start;
            let rows = start..rows_of(chunk.index + chunks - 1).end;
            let columns = &table.packs()[pack].columns;
            let batch = table.table().read_chunk(chunk.fragment, rows, columns).await?;
            let slice = |rows: &Range<u32>| batch.slice((rows.start - start) as usize, rows.len());
            let slices: Vec<_> = each.iter().map(slice).collect();
            encoded(&table, pack, &slices).await
        }
        .boxed()
    }
}

/// Encodes chunks of one of a table's packs. Returns an extent for each.
async fn encoded(
    table: &OpenTable,
    pack: usize,
    chunks: &[RecordBatch],
) -> Result<Vec<pack::Extent>, NodeError> {
    let layout = &table.packs()[pack].layout;
    let mut extents = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        // Encoding a chunk takes milliseconds of CPU. It runs on the threads of fills, and yields between chunks.
        extents.push(layout.encode(chunk.columns())?);
        tokio::task::yield_now().await;
    }
    Ok(extents)
}
