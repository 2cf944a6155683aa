//! Reads blocks of files from their store. Concurrent reads of a block, by requests that miss it and by its fill, are
//! one read, and neighbouring blocks are read together.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use address::{ChunkRows, SECTOR_BYTES};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::runtime::Handle;
use wire::{Fault, Reason};

/// The sectors of a block, which is the unit of fill and eviction of a file: 512 KiB. Smaller blocks take more requests
/// until an index is on the drives, larger ones delay the first search (`docs/performance.md`, "Index files on the
/// drives").
pub const BLOCK_SECTORS: ChunkRows = ChunkRows::new(128).unwrap();

/// The bytes of a block.
pub const BLOCK_BYTES: usize = BLOCK_SECTORS.get() as usize * SECTOR_BYTES;

/// The maximum number of neighbouring blocks that one request to the store reads: 4 MiB, as in a chunk of rows.
pub const TOGETHER_MAX: u32 = 8;

/// Reads the bytes of one file of a store.
pub trait FileSource: Send + Sync {
    /// Reads a range, which lies in the file.
    ///
    /// # Errors
    /// `TABLE_DAMAGED` if the file is gone or no longer the one that was opened, and errors of the store.
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Fault>>;
}

/// A file's identity, and the number of one of its blocks.
type Key = (Arc<str>, u32);

/// A read of neighbouring blocks that is under way, whose outcome its callers share.
#[derive(Clone)]
struct Reading {
    /// The number of its first block.
    first: u32,
    bytes: Shared<BoxFuture<'static, Result<Bytes, Fault>>>,
}

/// Reads blocks of all files, and keeps those that were read recently. Cheap to clone.
#[derive(Clone)]
pub struct BlockReads(Arc<Inner>);

struct Inner {
    recent: Cache<Key, Bytes>,
    reading: Mutex<HashMap<Key, Reading>>,
}

/// A file whose blocks are read.
#[derive(Clone)]
pub struct BlockSource {
    /// Identifies the file: equal names mean equal bytes.
    pub name: Arc<str>,
    /// The file's size.
    pub bytes: u64,
    /// Reads its bytes.
    pub source: Arc<dyn FileSource>,
    /// The runtime on which reads run. They must not wait for a caller whose threads have a low priority.
    pub runtime: Handle,
}

/// A block that was read recently, or is being read.
enum Block {
    Recent(Bytes),
    Reading(Reading),
}

impl BlockReads {
    /// Creates a reader that keeps at most `bytes_max` bytes of blocks that were read recently.
    pub fn new(bytes_max: u64) -> Self {
        let weigh = |_: &Key, bytes: &Bytes| bytes.len() as u32;
        let recent = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(weigh)
            // A block is read twice within a short time: by a miss and by its fill.
            .eviction_policy(EvictionPolicy::lru());
        Self(Arc::new(Inner { recent: recent.build(), reading: Mutex::default() }))
    }

    /// Returns the bytes of a file's block. If the block has to be read from the store, the same request also reads the
    /// blocks after it, up to `together` blocks in all and at most [`TOGETHER_MAX`]. All of these must begin in the
    /// file. The request stops before a block that was read recently or is being read. A read that has begun continues
    /// even if no caller waits for it any more.
    ///
    /// # Errors
    /// The errors of the source, `STORE_UNREACHABLE` if it does not return as many bytes as it was asked for, and
    /// `INTERNAL` if it panics.
    pub async fn read(
        &self,
        file: &BlockSource,
        number: u32,
        together: u32,
    ) -> Result<Bytes, Fault> {
        match self.find_or_begin(file, number, together) {
            Block::Recent(bytes) => Ok(bytes),
            Block::Reading(reading) => {
                let bytes = reading.bytes.await?;
                let start = bytes.len().min((number - reading.first) as usize * BLOCK_BYTES);
                Ok(bytes.slice(start..bytes.len().min(start + BLOCK_BYTES)))
            }
        }
    }

    /// Keeps the bytes of a file's first block.
    pub fn keep(&self, file: &BlockSource, first: Bytes) {
        self.0.recent.insert((Arc::clone(&file.name), 0), first);
    }

    fn find_or_begin(&self, file: &BlockSource, number: u32, together: u32) -> Block {
        let key = |number| (Arc::clone(&file.name), number);
        let mut under_way = self.0.reading();
        if let Some(reading) = under_way.get(&key(number)) {
            return Block::Reading(reading.clone());
        }
        if let Some(bytes) = self.0.recent.get(&key(number)) {
            return Block::Recent(bytes);
        }
        let is_missing = |&number: &u32| {
            !under_way.contains_key(&key(number)) && !self.0.recent.contains_key(&key(number))
        };
        let followers =
            (number + 1..number + together.clamp(1, TOGETHER_MAX)).take_while(is_missing);
        let blocks = number..number + 1 + followers.count() as u32;
        let reading = self.begin(file, blocks.clone());
        under_way.extend(blocks.map(|number| (key(number), reading.clone())));
        Block::Reading(reading)
    }

    /// Begins to read neighbouring blocks.
    fn begin(&self, file: &BlockSource, blocks: Range<u32>) -> Reading {
        let (file, inner) = (file.clone(), Arc::clone(&self.0));
        let first = blocks.start;
        let failed = || Err(Fault::new(Reason::Internal, "reading a file of the table panicked"));
        let task = file.runtime.clone().spawn(async move {
            // After a panic too, the blocks must not stay in `reading`: they would never be read again.
            let read = AssertUnwindSafe(read_exactly(&file, blocks.clone())).catch_unwind();
            let outcome = read.await.unwrap_or_else(|_| failed());
            let mut under_way = inner.reading();
            for number in blocks.clone() {
                let key = (Arc::clone(&file.name), number);
                under_way.remove(&key);
                if let Ok(bytes) = &outcome {
                    let start = (number - blocks.start) as usize * BLOCK_BYTES;
                    let end = bytes.len().min(start + BLOCK_BYTES);
                    inner.recent.insert(key, bytes.slice(start..end));
                }
            }
            outcome
        });
        let bytes = task.map(move |done| done.unwrap_or_else(|_| failed())).boxed().shared();
        Reading { first, bytes }
    }
}

/// Reads neighbouring blocks of a file.
async fn read_exactly(file: &BlockSource, blocks: Range<u32>) -> Result<Bytes, Fault> {
    let start = u64::from(blocks.start) * BLOCK_BYTES as u64;
    let end = file.bytes.min(u64::from(blocks.end) * BLOCK_BYTES as u64);
    let bytes = file.source.read(start..end).await?;
    match bytes.len() as u64 == end - start {
        true => Ok(bytes),
        false => {
            let (got, asked, name) = (bytes.len(), end - start, &file.name);
            let what = format!("the store sent {got} of {asked} bytes of {name}");
            Err(Fault::new(Reason::StoreUnreachable, what))
        }
    }
}

impl Inner {
    fn reading(&self) -> MutexGuard<'_, HashMap<Key, Reading>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    /// A source that counts its reads. Each read takes 5 ms, and the next `fails` reads fail. If `panics` is set, the
    /// next read panics.
    #[derive(Default)]
    struct Slow {
        reads: AtomicU64,
        fails: AtomicU64,
        panics: AtomicBool,
    }

    impl FileSource for Slow {
        fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Fault>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(!self.panics.swap(false, Ordering::Relaxed), "the source panics");
                let left = self.fails.load(Ordering::Relaxed);
                if left > 0 {
                    self.fails.store(left - 1, Ordering::Relaxed);
                    return Err(Fault::new(Reason::StoreUnreachable, "it is away"));
                }
                let block = |at: u64| (at / BLOCK_BYTES as u64) as u8;
                Ok(range.map(block).collect::<Vec<_>>().into())
            }
            .boxed()
        }
    }

    fn file(source: &Arc<Slow>) -> BlockSource {
        BlockSource {
            name: "f".into(),
            bytes: 20 * BLOCK_BYTES as u64 - 1,
            source: Arc::clone(source) as _,
            runtime: Handle::current(),
        }
    }

    #[tokio::test]
    async fn concurrent_reads_of_a_block_are_one_and_neighbours_are_read_together() {
        let (reads, source) = (BlockReads::new(64 << 20), Arc::new(Slow::default()));
        let file = file(&source);
        let each = (3..19).map(|number| reads.read(&file, number, 20 - number));
        for (number, block) in (3u8..).zip(join_all(each).await) {
            let block = block.unwrap();
            assert!(block.len() == BLOCK_BYTES && block.iter().all(|&byte| byte == number));
        }
        assert_eq!(source.reads.load(Ordering::Relaxed), 2, "blocks 3 to 10, and 11 to 18");
        assert_eq!(reads.read(&file, 19, 1).await.unwrap().len(), BLOCK_BYTES - 1);
        assert_eq!(reads.read(&file, 5, 8).await.unwrap()[0], 5);
        assert_eq!(source.reads.load(Ordering::Relaxed), 3, "block 5 was read recently");
        assert!(reads.0.reading().is_empty());
    }

    #[tokio::test]
    async fn a_failed_read_is_not_kept_and_one_without_callers_goes_on() {
        let (reads, source) = (BlockReads::new(64 << 20), Arc::new(Slow::default()));
        let file = file(&source);
        source.fails.store(1, Ordering::Relaxed);
        assert_eq!(reads.read(&file, 0, 1).await.unwrap_err().reason, Reason::StoreUnreachable);
        assert_eq!(reads.read(&file, 0, 1).await.unwrap()[0], 0);
        let left = tokio::time::timeout(Duration::from_millis(1), reads.read(&file, 1, 1)).await;
        assert!(left.is_err());
        assert_eq!(reads.read(&file, 1, 1).await.unwrap()[0], 1);
        assert_eq!(source.reads.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn blocks_whose_read_panicked_are_read_again() {
        let (reads, source) = (BlockReads::new(64 << 20), Arc::new(Slow::default()));
        let file = file(&source);
        source.panics.store(true, Ordering::Relaxed);
        assert_eq!(reads.read(&file, 0, 2).await.unwrap_err().reason, Reason::Internal);
        assert!(reads.0.reading().is_empty());
        assert_eq!(reads.read(&file, 1, 1).await.unwrap()[0], 1);
        assert_eq!(reads.read(&file, 0, 1).await.unwrap()[0], 0);
    }
}
