//! Reads index and deletion files from the I/O nodes that own their blocks.
//!
//! Lance reads these files on the background runtime, which therefore has streams of its own to the I/O nodes. If a
//! node cannot answer, the whole read has no answer, and the store is asked (`lake::FileCache`).

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use address::{RowAddr, SECTOR_BYTES};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use bytes::Bytes;
use client::fetch::{Projection, TableFile};
use futures::future::{BoxFuture, join_all, try_join_all};
use futures::{FutureExt, TryStreamExt};
use lake::{CachedBytes, FileCache, FileDamaged, FilePath, TableUri};
use membership::View;
use moka::sync::Cache;
use placement::TableHash;
use tables::{BLOCK_SECTORS, FILE_BYTES_KEY};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;
use wire::fetch::{ReleaseRequest, WarmRequest};
use wire::{Fault, Reason};

use super::file_blocks::{fill_requests, hash_of_file, placed};
use super::node::Node;
use super::nodes::IoNodes;
use super::routes::{IoTier, Routes};
use crate::config::QueryConfig;
use crate::error::Result;

/// The longest time that an I/O node has to answer. The store is asked too, much sooner (`lake/src/store/cached.rs`).
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The maximum number of files whose sizes are kept.
const SIZES_MAX: u64 = 65_536;

/// The files of tables, as I/O nodes cache them.
pub struct TierFiles {
    tier: IoTier,
    views: watch::Receiver<View>,
    /// The sizes of files that were opened, or that their tables' manifests record.
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
    /// The errors of [`IoTier::new`].
    pub fn new(config: &QueryConfig, nodes: &IoNodes) -> Result<Self> {
        let mut views = nodes.views();
        let view = views.borrow_and_update().clone();
        Ok(Self { tier: IoTier::new(config, nodes, &view)?, views, sizes: Cache::new(SIZES_MAX) })
    }

    /// Follows the list of I/O nodes.
    pub async fn follow(&self, nodes: &IoNodes) {
        self.tier.follow(nodes, self.views.clone()).await;
    }

    /// Ends the connections to the I/O nodes. Tables that were opened by this node may still be in use: the store
    /// answers their reads.
    pub fn disconnect(&self) {
        self.tier.disconnect();
    }

    async fn size_of(
        &self,
        table: &TableUri,
        path: &FilePath,
    ) -> std::result::Result<Option<u64>, FileDamaged> {
        let key = (table.clone(), path.clone());
        if let Some(size) = self.sizes.get(&key) {
            return Ok(Some(size));
        }
        let routes = self.tier.routes();
        let Some(owner) = routes.owner_of(hash_of_file(table, path), placed(0)) else {
            return Ok(None);
        };
        let node = &*routes.nodes()[owner];
        if node.allow_request().is_err() {
            return Ok(None);
        }
        let file = FileOnNode { node, table, path, bytes: 0 };
        let deadline = Instant::now() + ANSWER_MAX;
        let size = file.judged(async { size_in(&file.open(deadline).await?) }).await?;
        if let Some(size) = size {
            self.sizes.insert(key, size);
        }
        Ok(size)
    }

    async fn read_range(
        &self,
        table: &TableUri,
        path: &FilePath,
        range: Range<u64>,
    ) -> std::result::Result<Option<CachedBytes>, FileDamaged> {
        let size = self.size_of(table, path).await?.filter(|&size| range.end <= size);
        let (Some(size), Some(sectors)) = (size, sectors_of(&range)) else { return Ok(None) };
        let routes = self.tier.routes();
        let Some(parts) = parts(&routes, hash_of_file(table, path), sectors) else {
            return Ok(None);
        };
        // `allow_request` is called once for each node, and a request that it allows is sent even if another node is
        // skipped.
        let mut asked: HashMap<usize, bool> = HashMap::new();
        for (owner, _) in &parts {
            let node = &routes.nodes()[*owner];
            asked.entry(*owner).or_insert_with(|| node.allow_request().is_ok());
        }
        let deadline = Instant::now() + ANSWER_MAX;
        let all = parts.len();
        let reads = parts.into_iter().filter(|(owner, _)| asked[owner]).map(|(owner, sectors)| {
            let file = FileOnNode { node: &routes.nodes()[owner], table, path, bytes: size };
            async move { file.judged(file.read(sectors, deadline)).await }
        });
        let read = try_join_all(reads).await.inspect_err(|_| {
            // The next read opens the file as it is then.
            self.sizes.invalidate(&(table.clone(), path.clone()));
        })?;
        let read: Vec<(Buffer, bool)> = read.into_iter().flatten().collect();
        if read.len() < all {
            return Ok(None);
        }
        let were_cached = read.iter().all(|(_, was_cached)| *was_cached);
        let bytes = match <[(Buffer, bool); 1]>::try_from(read) {
            Ok([(part, _)]) => Bytes::from_owner(Sectors(part)),
            Err(read) => {
                let parts: Vec<&[u8]> = read.iter().map(|(part, _)| part.as_slice()).collect();
                parts.concat().into()
            }
        };
        let skipped = (range.start % SECTOR_BYTES as u64) as usize;
        let wanted = skipped..skipped + (range.end - range.start) as usize;
        let bytes = (wanted.end <= bytes.len()).then(|| bytes.slice(wanted));
        Ok(bytes.map(|bytes| CachedBytes { bytes, were_cached }))
    }
}

/// Returns the sectors that a range of bytes touches; `None` if the range is empty, or a sector's number does not fit
/// into 32 bits.
fn sectors_of(range: &Range<u64>) -> Option<Range<u32>> {
    let sector = |at: u64| u32::try_from(at / SECTOR_BYTES as u64).ok();
    let (first, last) = (sector(range.start)?, sector(range.end.checked_sub(1)?)?);
    (range.start < range.end).then_some(first..last.checked_add(1)?)
}

/// Divides sectors of a file into runs of consecutive sectors with the same owner. `None` if there is no node.
fn parts(
    routes: &Routes,
    hash: TableHash,
    sectors: Range<u32>,
) -> Option<Vec<(usize, Range<u32>)>> {
    let mut parts: Vec<(usize, Range<u32>)> = Vec::new();
    let mut start = sectors.start;
    while start < sectors.end {
        let block = start / BLOCK_SECTORS.get();
        let end = BLOCK_SECTORS.rows_of(block, sectors.end).end;
        let owner = routes.owner_of(hash, placed(block))?;
        match parts.last_mut() {
            Some((last, part)) if *last == owner => part.end = end,
            _ => parts.push((owner, start..end)),
        }
        start = end;
    }
    Some(parts)
}

impl FileOnNode<'_> {
    async fn open(&self, deadline: Instant) -> std::result::Result<Projection, Fault> {
        let (uri, path) = (self.table.as_str(), self.path.as_str());
        self.node.client.open_file(TableFile { uri, path, bytes: self.bytes }, deadline).await
    }

    /// Reads whole sectors. Also returns whether the node had all of them, on its drives or in RAM.
    async fn read(
        &self,
        sectors: Range<u32>,
        deadline: Instant,
    ) -> std::result::Result<(Buffer, bool), Fault> {
        let projection = self.open(deadline).await?;
        let count = sectors.len();
        let addrs = sectors.map(|sector| RowAddr::new(0, sector)).collect();
        let reply = self.node.client.fetch(&projection, addrs, None, deadline).await?;
        let was_cached = reply.times().table_rows == 0;
        let rows: RecordBatch = reply.into_rows()?;
        let column = rows.columns().first().and_then(|column| column.as_fixed_size_binary_opt());
        let values = column.filter(|it| it.len() == count).map(|it| it.values().clone());
        let values = values.filter(|values| values.len() == count * SECTOR_BYTES);
        let lacking = || Fault::new(Reason::BadProtocol, "the reply lacks sectors of a file");
        Ok((values.ok_or_else(lacking)?, was_cached))
    }

    /// Awaits a request to the node, and reports its outcome to the node's health. `None` if the node can't answer.
    async fn judged<T>(
        &self,
        request: impl Future<Output = std::result::Result<T, Fault>>,
    ) -> std::result::Result<Option<T>, FileDamaged> {
        let began = Instant::now();
        let answer = request.await;
        self.node.health.judge(answer.as_ref().err(), began.elapsed());
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(fault) if fault.reason == Reason::TableDamaged => Err(FileDamaged(fault.message)),
            Err(fault) => {
                let (node, path) = (self.node.client.endpoint(), self.path.as_str());
                debug!(%node, path, "the store is read: {fault}");
                Ok(None)
            }
        }
    }
}

/// Awaits a Warm of an I/O node.
async fn filled(node: &Node, request: WarmRequest) -> std::result::Result<(), Fault> {
    let mut steps = node.client.warm(request).await?;
    while steps.try_next().await?.is_some() {}
    Ok(())
}

/// Returns the size of an opened file.
fn size_in(projection: &Projection) -> std::result::Result<u64, Fault> {
    let size = projection.schema().metadata().get(FILE_BYTES_KEY);
    let size = size.and_then(|size| size.parse().ok());
    size.ok_or_else(|| Fault::new(Reason::BadProtocol, "the reply does not say how long a file is"))
}

impl FileCache for TierFiles {
    fn note_size(&self, table: &TableUri, path: &FilePath, bytes: u64) {
        self.sizes.entry((table.clone(), path.clone())).or_insert(bytes);
    }

    fn size<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
    ) -> BoxFuture<'a, std::result::Result<Option<u64>, FileDamaged>> {
        self.size_of(table, path).boxed()
    }

    fn read<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        range: Range<u64>,
    ) -> BoxFuture<'a, std::result::Result<Option<CachedBytes>, FileDamaged>> {
        self.read_range(table, path, range).boxed()
    }

    fn fill<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        bytes: u64,
    ) -> BoxFuture<'a, ()> {
        async move {
            let routes = self.tier.routes();
            let requests = fill_requests(&routes, table, path, bytes).await.into_iter();
            let requests = requests.filter(|(owner, _)| routes.nodes()[*owner].is_available());
            let fills = requests.map(|(owner, request)| {
                let node = &routes.nodes()[owner];
                async move {
                    if let Err(fault) = filled(node, request).await {
                        let (node, path) = (node.client.endpoint(), path.as_str());
                        debug!(%node, path, "the file is not filled ahead of use: {fault}");
                    }
                }
            });
            join_all(fills).await;
        }
        .boxed()
    }

    fn release<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        bytes: u64,
    ) -> BoxFuture<'a, bool> {
        async move {
            let routes = self.tier.routes();
            // A node may have blocks that it owned earlier.
            let releases = routes.nodes().iter().map(|node| {
                let (table_uri, file) = (table.to_string(), path.as_str().to_owned());
                let request = ReleaseRequest { table_uri, file, file_bytes: bytes };
                async move {
                    let (endpoint, path) = (node.client.endpoint(), path.as_str());
                    if !node.is_available() {
                        debug!(node = %endpoint, path, "the file is not released: the node is away");
                        return false;
                    }
                    let released = node.client.release(request, ANSWER_MAX).await;
                    match &released {
                        Ok(evicted) => debug!(node = %endpoint, path, evicted, "the file is released"),
                        Err(fault) => debug!(node = %endpoint, path, "the file is not released: {fault}"),
                    }
                    released.is_ok()
                }
            });
            join_all(releases).await.into_iter().all(|is_released| is_released)
        }
        .boxed()
    }
}

impl fmt::Debug for TierFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierFiles").finish_non_exhaustive()
    }
}
