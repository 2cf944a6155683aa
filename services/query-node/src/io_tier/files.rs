//! Reads index and deletion files from the I/O nodes that own their blocks.
//!
//! Lance reads these files on the background runtime, which therefore has streams of its own to the I/O nodes. If a node
//! cannot answer or is late, the read fails as a whole, and the store answers (`lake::FileCache`).

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use address::{ChunkId, RowAddr, SECTOR_BYTES};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use bytes::Bytes;
use client::fetch::{Projection, TableFile};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use lake::{FileCache, FilePath, TableUri};
use membership::View;
use moka::sync::Cache;
use placement::TableHash;
use tables::{BLOCK_SECTORS, FILE_BYTES_KEY};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;
use wire::{Fault, Reason};

use super::node::Node;
use super::nodes::IoNodes;
use super::routes::{IoTier, Routes};
use crate::config::QueryConfig;
use crate::error::Result;

/// The longest time that a read waits for an I/O node. The store is asked afterwards.
const PATIENCE: Duration = Duration::from_secs(3);

/// The maximum number of files whose sizes are kept.
const SIZES_MAX: u64 = 65_536;

/// The files of tables, as I/O nodes cache them.
pub struct TierFiles {
    tier: IoTier,
    views: watch::Receiver<View>,
    /// The sizes of files that were opened.
    sizes: Cache<(TableUri, FilePath), u64>,
}

/// One file, and the node that is asked for it.
struct FileOnNode<'a> {
    node: &'a Node,
    table: &'a TableUri,
    path: &'a FilePath,
    /// The file's size; 0 if unknown.
    bytes: u64,
}

/// Sectors of a file, in the buffer in which they arrived.
struct Sectors(Buffer);

impl AsRef<[u8]> for Sectors {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl TierFiles {
    /// Starts connecting to all I/O nodes. Must be called within a Tokio runtime, on which the streams run.
    ///
    /// # Errors
    /// Those of [`IoTier::new`].
    pub fn new(config: &QueryConfig, nodes: &IoNodes) -> Result<Self> {
        let mut views = nodes.views();
        let view = views.borrow_and_update().clone();
        Ok(Self { tier: IoTier::new(config, nodes, &view)?, views, sizes: Cache::new(SIZES_MAX) })
    }

    /// Follows the list of I/O nodes.
    pub async fn follow(&self, nodes: &IoNodes) {
        self.tier.follow(nodes, self.views.clone()).await;
    }

    async fn size_of(&self, table: &TableUri, path: &FilePath) -> Option<u64> {
        let key = (table.clone(), path.clone());
        if let Some(size) = self.sizes.get(&key) {
            return Some(size);
        }
        let routes = self.tier.routes();
        let node = owner(&routes, hash_of_file(table, path), 0)?;
        let file = FileOnNode { node, table, path, bytes: 0 };
        let deadline = Instant::now() + PATIENCE;
        let size = file.judged(async { size_in(&file.open(deadline).await?) }).await?;
        self.sizes.insert(key, size);
        Some(size)
    }

    async fn read_range(
        &self,
        table: &TableUri,
        path: &FilePath,
        range: Range<u64>,
    ) -> Option<Bytes> {
        let size = self.size_of(table, path).await.filter(|&size| range.end <= size)?;
        let sector = |at: u64| u32::try_from(at / SECTOR_BYTES as u64).ok();
        let sectors = sector(range.start)?..sector(range.end.checked_sub(1)?)? + 1;
        let routes = self.tier.routes();
        let hash = hash_of_file(table, path);
        // Consecutive sectors with the same owner.
        let mut parts: Vec<(&Node, Range<u32>)> = Vec::new();
        let mut start = sectors.start;
        while start < sectors.end {
            let block = start / BLOCK_SECTORS.get();
            let end = sectors.end.min((block + 1) * BLOCK_SECTORS.get());
            let node = owner(&routes, hash, block)?;
            match parts.last_mut() {
                Some((last, part)) if std::ptr::eq(*last, node) => part.end = end,
                _ => parts.push((node, start..end)),
            }
            start = end;
        }
        let deadline = Instant::now() + PATIENCE;
        let reads = parts.into_iter().map(|(node, sectors)| async move {
            let file = FileOnNode { node, table, path, bytes: size };
            file.judged(file.read(sectors, deadline)).await.ok_or(())
        });
        let parts: Vec<Buffer> = try_join_all(reads).await.ok()?;
        let skipped = (range.start % SECTOR_BYTES as u64) as usize;
        let wanted = skipped..skipped + usize::try_from(range.end - range.start).ok()?;
        let bytes = match <[Buffer; 1]>::try_from(parts) {
            Ok([part]) => Bytes::from_owner(Sectors(part)),
            Err(parts) => {
                let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_slice()).collect();
                parts.concat().into()
            }
        };
        (wanted.end <= bytes.len()).then(|| bytes.slice(wanted))
    }
}

impl FileOnNode<'_> {
    async fn open(&self, deadline: Instant) -> std::result::Result<Projection, Fault> {
        let (uri, path) = (self.table.as_str(), self.path.as_str());
        self.node.client.open_file(TableFile { uri, path, bytes: self.bytes }, deadline).await
    }

    /// Reads whole sectors.
    async fn read(
        &self,
        sectors: Range<u32>,
        deadline: Instant,
    ) -> std::result::Result<Buffer, Fault> {
        let projection = self.open(deadline).await?;
        let count = sectors.len();
        let addrs = sectors.map(|sector| RowAddr::new(0, sector)).collect();
        let reply = self.node.client.fetch(&projection, addrs, None, deadline).await?;
        let rows: RecordBatch = reply.into_rows()?;
        let column = rows.columns().first().and_then(|column| column.as_fixed_size_binary_opt());
        let values = column.filter(|it| it.len() == count).map(|it| it.values().clone());
        let values = values.filter(|values| values.len() == count * SECTOR_BYTES);
        values.ok_or_else(|| Fault::new(Reason::BadProtocol, "the reply lacks sectors of a file"))
    }

    /// Awaits a request to the node, and reports its outcome to the node's health. `None` if it failed.
    async fn judged<T>(
        &self,
        request: impl Future<Output = std::result::Result<T, Fault>>,
    ) -> Option<T> {
        let began = Instant::now();
        let answer = request.await;
        self.node.health.judge(answer.as_ref().err(), began.elapsed());
        let log = |fault: &Fault| {
            let (node, path) = (self.node.client.endpoint(), self.path.as_str());
            debug!(%node, path, "the store is read: {fault}");
        };
        answer.inspect_err(log).ok()
    }
}

/// Returns the node that owns a block of a file, if it may be asked.
fn owner(routes: &Routes, hash: TableHash, block: u32) -> Option<&Node> {
    let owner = routes.owner_of(hash, ChunkId { fragment: 0, index: block })?;
    let node = &*routes.nodes()[owner];
    node.reason_to_skip().is_none().then_some(node)
}

/// Returns the hash by which the blocks of a file are placed.
pub fn hash_of_file(table: &TableUri, path: &FilePath) -> TableHash {
    TableHash::of(&format!("{table}/{}", path.as_str()))
}

/// Returns the size of an opened file.
fn size_in(projection: &Projection) -> std::result::Result<u64, Fault> {
    let size = projection.schema().metadata().get(FILE_BYTES_KEY);
    let size = size.and_then(|size| size.parse().ok());
    size.ok_or_else(|| Fault::new(Reason::BadProtocol, "the reply does not say how long a file is"))
}

impl FileCache for TierFiles {
    fn size<'a>(&'a self, table: &'a TableUri, path: &'a FilePath) -> BoxFuture<'a, Option<u64>> {
        self.size_of(table, path).boxed()
    }

    fn read<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Option<Bytes>> {
        self.read_range(table, path, range).boxed()
    }
}

impl fmt::Debug for TierFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierFiles").finish_non_exhaustive()
    }
}
