//! The data of a fill: the rows of one chunk of one pack, encoded.

use std::ops::Range;
use std::sync::Arc;

use address::{ChunkId, ExtentKey};
use arrow_array::{ArrayRef, RecordBatch};
use futures::FutureExt;
use futures::future::BoxFuture;
use pack::PackError;
use wire::memory_of;

use crate::cache::books::SCAN_PART;
use crate::error::NodeError;
use crate::table::{BoundedRows, Excess, OpenTable, Pack};

/// A chunk of one of a table's packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FillKey {
    /// The pack's number in the table.
    pub pack: usize,
    pub chunk: ChunkId,
}

/// A scan of several chunks ends before its extents take this many times as many bytes as its columns may take in
/// memory. This suffices for rows with padding, which takes at most half as many bytes as the rows, but not always for
/// dictionaries, whose values are longer in extents. Chunks that do not fit are left to later scans.
const ENCODED_PER_READ: u64 = 2;

// The extents of a scan take at most a segment, as the memory plan assumes.
const _: () = assert!(ENCODED_PER_READ <= SCAN_PART);

/// The source of a chunk's data. It hides the table from the filler.
pub trait Chunk: Send {
    /// Returns the chunk's encoded rows. `bytes_max` is the length of a segment. Stops with
    /// [`NodeError::ChunkTooLarge`] or [`PackError::TooLong`] once the rows take more bytes than that in memory, or
    /// encoded.
    fn encoded(
        self: Box<Self>,
        bytes_max: u64,
    ) -> BoxFuture<'static, Result<pack::Extent, NodeError>>;

    /// Returns the approximate number of bytes of a scan of the chunk, or `None` if it can't be scanned together with
    /// its neighbours (the previous and next chunks of the same fragment and pack).
    fn scan_bytes(&self) -> Option<u64> {
        None
    }

    /// Reads this chunk and those after it, `chunks` in all, in one scan, and returns an extent for each of the first
    /// of them: as many as take at most `bytes_max` bytes in memory, and twice as many encoded. Call it only if
    /// [`scan_bytes`](Self::scan_bytes) returns a number.
    fn encoded_together(
        &self,
        chunks: u32,
        _bytes_max: u64,
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
            let Pack { columns, layout, is_blob, fixed_bytes, .. } = &table.packs()[pack];
            let too_large = |Excess { rows, bytes_max, bytes }| NodeError::ChunkTooLarge {
                rows,
                bytes_max,
                bytes,
            };
            let bytes = fixed_bytes.saturating_mul(rows.len() as u64);
            if bytes > bytes_max {
                return Err(too_large(Excess { rows: rows.len(), bytes_max, bytes }));
            }
            let read = |rows| table.table().read_chunk(chunk.fragment, rows, columns, bytes_max);
            let batches = if *is_blob {
                let mut blobs = BoundedRows::new(rows.len(), 1, bytes_max, too_large);
                while let Some(piece) = blobs.next() {
                    let piece = rows.start + piece.start as u32..rows.start + piece.end as u32;
                    blobs.push(read(piece).await?)?;
                }
                vec![blobs.joined()?]
            } else {
                let batches = read(rows.clone()).await?;
                let rows = rows.len();
                if rows_in(&batches) < rows {
                    let bytes = memory_of(batches.iter().flat_map(RecordBatch::columns)) as u64;
                    return Err(too_large(Excess { rows, bytes_max, bytes }));
                }
                batches
            };
            // Only the arrays are passed on, so that `encode_within` can drop the pieces of each column once it has
            // joined them.
            let pieces = batches.into_iter().map(|batch| batch.into_parts().1).collect();
            Ok(layout.encode_within(pieces, bytes_max)?)
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
        bytes_max: u64,
    ) -> BoxFuture<'static, Result<Vec<pack::Extent>, NodeError>> {
        let (table, FillKey { pack, chunk }) = (Arc::clone(&self.table), self.key);
        async move {
            let rows_of =
                |index| table.fragment(chunk.fragment).map_or(0..0, |it| it.rows_of(index));
            let each: Vec<_> = (chunk.index..chunk.index + chunks).map(rows_of).collect();
            let start = rows_of(chunk.index).start;
            let rows = start..rows_of(chunk.index + chunks - 1).end;
            let Pack { columns, layout, .. } = &table.packs()[pack];
            let batches =
                table.table().read_chunk(chunk.fragment, rows, columns, bytes_max).await?;
            let read = rows_in(&batches);
            let mut bytes_left = bytes_max.saturating_mul(ENCODED_PER_READ);
            let mut extents = Vec::with_capacity(each.len());
            for rows in each {
                let rows = (rows.start - start) as usize..(rows.end - start) as usize;
                if rows.end > read {
                    break;
                }
                let pieces = pieces_of(&batches, rows);
                let extent = match layout.encode_within(pieces, bytes_left.min(bytes_max)) {
                    Err(PackError::TooLong { .. }) => break,
                    encoded => encoded?,
                };
                bytes_left = bytes_left.saturating_sub(extent.bytes.len() as u64);
                extents.push(extent);
                // Encoding a chunk takes milliseconds of CPU. It runs on the threads of fills, and yields between
                // chunks.
                tokio::task::yield_now().await;
            }
            Ok(extents)
        }
        .boxed()
    }
}

/// Returns the number of rows of all batches.
fn rows_in(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Returns the columns of these rows, which count from the first row of the first batch, as they are divided into
/// batches. Copies no values.
fn pieces_of(batches: &[RecordBatch], rows: Range<usize>) -> Vec<Vec<ArrayRef>> {
    let (mut pieces, mut first) = (Vec::new(), 0);
    for batch in batches {
        let end = first + batch.num_rows();
        let (from, to) = (rows.start.max(first), rows.end.min(end));
        if from < to {
            pieces.push(batch.slice(from - first, to - from).into_parts().1);
        }
        first = end;
    }
    pieces
}
