//! Reads index and deletion files through the I/O nodes, which cache them on their drives.
//!
//! Only files that never change go this way (`tables::FilePath`), and only plain reads of them: manifests, listings,
//! HEAD and conditional requests always go to the store. If the cache cannot answer, the store does.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, Result,
};
use tables::{FilePath, TableUri};

use super::usage::{StoreUsage, count};

/// The bytes that are read at once. A longer read is answered piece by piece.
const PIECE_BYTES: u64 = 4 << 20;

/// The number of pieces of a longer read that are read ahead.
const PIECES_AHEAD: usize = 2;

/// Reads files of tables from a cache outside this process. It answers as much as it can, and within seconds.
pub trait FileCache: fmt::Debug + Send + Sync {
    /// Returns a file's size, or `None` if the cache cannot answer.
    fn size<'a>(&'a self, table: &'a TableUri, path: &'a FilePath) -> BoxFuture<'a, Option<u64>>;

    /// Returns a range of a file, or `None` if the cache cannot answer. The range must lie in the file.
    fn read<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Option<Bytes>>;
}

/// The cache of a [`Lake`](crate::Lake), once it has one.
pub type FileCacheSlot = Arc<OnceLock<Arc<dyn FileCache>>>;

/// A table's store whose files are read from the cache if possible.
#[derive(Debug)]
pub struct CachedStore {
    inner: Arc<dyn ObjectStore>,
    source: Arc<Source>,
}

/// Where the files of one table are read.
#[derive(Debug)]
struct Source {
    store: Arc<dyn ObjectStore>,
    cache: FileCacheSlot,
    usage: Arc<StoreUsage>,
    table: TableUri,
    /// The table's folder in its bucket, with a slash at its end.
    folder: String,
}

impl CachedStore {
    /// Reads files of `table` from `cache`, and everything else from `inner`, the store with the URI `root`. Counts
    /// what the cache answers in `usage`.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        root: &str,
        table: &TableUri,
        cache: FileCacheSlot,
        usage: Arc<StoreUsage>,
    ) -> Self {
        // If the table is in another bucket, no path begins with its whole URI.
        let folder = table.as_str().strip_prefix(root).unwrap_or(table.as_str());
        let folder = format!("{}/", folder.trim_start_matches('/'));
        let store = Arc::clone(&inner);
        let source = Source { store, cache, usage, table: table.clone(), folder };
        Self { inner, source: Arc::new(source) }
    }

    /// Returns the answer of the cache, or `None` if the store must be asked.
    async fn cached(&self, location: &Path, options: &GetOptions) -> Option<GetResult> {
        let cache = self.source.cache.get()?;
        if !is_plain(options) {
            return None;
        }
        let path = FilePath::parse(location.as_ref().strip_prefix(&self.source.folder)?)?;
        let size = cache.size(&self.source.table, &path).await?;
        let range = range_within(options.range.as_ref(), size)?;
        let (start, end) = (range.start, range.end);
        let first = start..end.min(start + PIECE_BYTES);
        let bytes = self.source.ask_cache(&path, first.clone()).await?;
        let rest = (first.end..end).step_by(PIECE_BYTES as usize);
        let (source, location) = (Arc::clone(&self.source), location.clone());
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size,
            e_tag: None,
            version: None,
        };
        let piece = move |start: u64| {
            let (source, path, location) = (Arc::clone(&source), path.clone(), location.clone());
            async move { source.piece(&path, &location, start..end.min(start + PIECE_BYTES)).await }
        };
        let rest = stream::iter(rest).map(piece).buffered(PIECES_AHEAD);
        let pieces = stream::once(async { Ok(bytes) }).chain(rest);
        Some(GetResult {
            payload: GetResultPayload::Stream(pieces.boxed()),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }
}

impl Source {
    /// Reads a range from the cache, and counts it.
    async fn ask_cache(&self, path: &FilePath, range: Range<u64>) -> Option<Bytes> {
        let asked = range.end - range.start;
        let bytes = self.cache.get()?.read(&self.table, path, range).await?;
        if bytes.len() as u64 != asked {
            return None;
        }
        count(&self.usage.reads_avoided, 1);
        count(&self.usage.bytes_avoided, asked);
        Some(bytes)
    }

    /// Reads a range from the cache or, if it cannot answer, from the store.
    async fn piece(&self, path: &FilePath, location: &Path, range: Range<u64>) -> Result<Bytes> {
        match self.ask_cache(path, range.clone()).await {
            Some(bytes) => Ok(bytes),
            None => self.store.get_range(location, range).await,
        }
    }
}

/// Returns whether nothing but bytes is asked for, on no condition.
fn is_plain(options: &GetOptions) -> bool {
    let GetOptions { if_match, if_none_match, version, head, .. } = options;
    let has_no_tag = if_match.is_none() && if_none_match.is_none() && version.is_none();
    let has_no_date = options.if_modified_since.is_none() && options.if_unmodified_since.is_none();
    !head && has_no_tag && has_no_date
}

/// Returns the requested bytes of a file of `size` bytes. `None` if there are none: the store then says what is wrong.
fn range_within(range: Option<&GetRange>, size: u64) -> Option<Range<u64>> {
    let range = match range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(&GetRange::Offset(start)) => start..size,
        Some(&GetRange::Suffix(bytes)) => size.saturating_sub(bytes)..size,
    };
    (range.start < range.end).then_some(range)
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cached {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.cached(location, &options).await {
            Some(answer) => Ok(answer),
            None => self.inner.get_opts(location, options).await,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use object_store::memory::InMemory;

    use super::*;

    /// A cache of one file, whose reads from `fails_from` on fail.
    #[derive(Debug)]
    struct OneFile {
        bytes: Bytes,
        fails_from: u64,
    }

    impl FileCache for OneFile {
        fn size<'a>(&'a self, _: &'a TableUri, path: &'a FilePath) -> BoxFuture<'a, Option<u64>> {
            let size = (path.as_str() == "_indices/u/a").then_some(self.bytes.len() as u64);
            std::future::ready(size).boxed()
        }

        fn read<'a>(
            &'a self,
            _: &'a TableUri,
            _: &'a FilePath,
            range: Range<u64>,
        ) -> BoxFuture<'a, Option<Bytes>> {
            let is_there = range.end <= self.fails_from;
            let read = || self.bytes.slice(range.start as usize..range.end as usize);
            std::future::ready(is_there.then(read)).boxed()
        }
    }

    const SIZE: usize = 10 << 20;

    /// A store in which each file has bytes of 1, behind a cache whose file has bytes of 2.
    async fn store(fails_from: u64) -> (CachedStore, Arc<StoreUsage>) {
        let inner = InMemory::new();
        for path in
            ["a/t/_indices/u/a", "a/t/_indices/u/b", "a/t/_versions/1.manifest", "a/_indices/u/a"]
        {
            inner.put(&Path::from(path), vec![1; SIZE].into()).await.unwrap();
        }
        let table = TableUri::parse("s3://b/a/t").unwrap();
        let (slot, usage) = (FileCacheSlot::default(), Arc::new(StoreUsage::default()));
        slot.set(Arc::new(OneFile { bytes: vec![2; SIZE].into(), fails_from })).unwrap();
        (CachedStore::new(Arc::new(inner), "s3://b", &table, slot, Arc::clone(&usage)), usage)
    }

    async fn read(store: &CachedStore, path: &str, options: GetOptions) -> (Range<u64>, Bytes) {
        let answer = store.get_opts(&Path::from(path), options).await.unwrap();
        assert_eq!(answer.meta.size, SIZE as u64);
        (answer.range.clone(), answer.bytes().await.unwrap())
    }

    fn ranged(range: GetRange) -> GetOptions {
        GetOptions { range: Some(range), ..GetOptions::default() }
    }

    #[tokio::test]
    async fn plain_reads_of_files_that_never_change_come_from_the_cache() {
        let (store, usage) = store(u64::MAX).await;
        let size = SIZE as u64;
        for (range, expected) in [
            (GetRange::Bounded(5..9), 5..9),
            (GetRange::Bounded(size - 2..size + 7), size - 2..size),
            (GetRange::Suffix(3), size - 3..size),
            (GetRange::Offset(7), 7..size),
        ] {
            let (range, bytes) = read(&store, "a/t/_indices/u/a", ranged(range)).await;
            assert_eq!((&range, bytes.len() as u64), (&expected, expected.end - expected.start));
            assert!(bytes.iter().all(|&byte| byte == 2));
        }
        assert_eq!(read(&store, "a/t/_indices/u/a", GetOptions::default()).await.0, 0..size);
        let used = usage.now();
        // Two of the reads are longer than a piece: they are three each.
        assert_eq!((used.reads_avoided, used.bytes_avoided), (9, 4 + 2 + 3 + (size - 7) + size));
        for path in ["a/t/_indices/u/b", "a/t/_versions/1.manifest", "a/_indices/u/a"] {
            let (_, bytes) = read(&store, path, ranged(GetRange::Bounded(0..1))).await;
            assert_eq!(*bytes, [1], "{path}");
        }
        let meta = store.inner.head(&Path::from("a/t/_indices/u/a")).await.unwrap();
        for options in [
            GetOptions { if_none_match: Some("x".into()), ..GetOptions::default() },
            GetOptions { if_unmodified_since: Some(meta.last_modified), ..GetOptions::default() },
        ] {
            assert_eq!(read(&store, "a/t/_indices/u/a", options).await.1[0], 1);
        }
        let head = GetOptions { head: true, ..GetOptions::default() };
        assert!(store.get_opts(&Path::from("a/t/_indices/u/a"), head).await.is_ok());
        assert_eq!(usage.now().reads_avoided, 9);
    }

    #[tokio::test]
    async fn pieces_that_the_cache_cannot_read_come_from_the_store() {
        let (store, usage) = store(PIECE_BYTES).await;
        let (_, bytes) = read(&store, "a/t/_indices/u/a", GetOptions::default()).await;
        let (cached, stored) = bytes.split_at(PIECE_BYTES as usize);
        assert!(cached.iter().all(|&byte| byte == 2) && stored.iter().all(|&byte| byte == 1));
        assert_eq!((bytes.len(), usage.now().reads_avoided), (SIZE, 1));
    }
}
