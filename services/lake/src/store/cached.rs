//! Reads index and deletion files through the I/O nodes, which cache them on their drives.
//!
//! Only files that never change go this way (`tables::FilePath`), and only plain reads of them: listings, HEAD and
//! conditional requests always go to the store, and so do manifests (`manifest_reads.rs`). If the cache cannot answer,
//! the store does.

use std::fmt;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, Either, select};
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, RenameOptions, Result,
};
use tables::{BLOCK_BYTES, FilePath, TOGETHER_MAX, TableUri};

use super::checked::damaged;
use super::manifest_reads::{ManifestReads, is_manifest};
use super::plain_read::{is_plain, range_within};
use super::usage::{StoreUsage, count};

/// The bytes that are read at once: the blocks that an I/O node reads together. A longer read is answered piece by
/// piece.
const PIECE_BYTES: u64 = TOGETHER_MAX as u64 * BLOCK_BYTES as u64;

/// The number of pieces of a longer read that are read ahead. More would only take memory, 4 MiB each.
const PIECES_AHEAD: usize = 2;

/// The time after which the store is asked too, if the cache has not answered yet. The first answer counts. An I/O node
/// itself gives up a read of its drive after 500 ms by default (`read_timeout`).
pub const LATE: Duration = Duration::from_millis(400);

/// Reads files of tables from a cache outside this process.
pub trait FileCache: fmt::Debug + Send + Sync {
    /// Notes the size of a file, so that the cache does not have to find it out.
    fn note_size(&self, table: &TableUri, path: &FilePath, bytes: u64);

    /// Returns a file's size, or `None` if the cache cannot answer.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    fn size<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
    ) -> BoxFuture<'a, std::result::Result<Option<u64>, FileDamaged>>;

    /// Returns a range of a file, or `None` if the cache cannot answer. The range must lie in the file.
    ///
    /// # Errors
    /// If the file was replaced or removed. The store must not be asked then, because bytes of two files could be
    /// mixed.
    fn read<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        range: Range<u64>,
    ) -> BoxFuture<'a, std::result::Result<Option<CachedBytes>, FileDamaged>>;

    /// Has the cache read all of a file of `bytes` bytes, unless it has the file. Returns when that is done or has
    /// failed, since it only prepares later reads.
    fn fill<'a>(&'a self, table: &'a TableUri, path: &'a FilePath, bytes: u64)
    -> BoxFuture<'a, ()>;

    /// Has the cache evict a file of `bytes` bytes, because it will hardly be read again. Returns whether all parts of
    /// the cache have done so. If not, it may be asked again.
    fn release<'a>(
        &'a self,
        table: &'a TableUri,
        path: &'a FilePath,
        bytes: u64,
    ) -> BoxFuture<'a, bool>;
}

/// Bytes from the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBytes {
    /// The bytes.
    pub bytes: Bytes,
    /// Whether the cache had all of them, and asked no store.
    pub were_cached: bool,
}

/// A file of a table was overwritten, or is gone. The text says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamaged(pub String);

/// The cache of a [`Lake`](crate::Lake), once it has one.
pub type FileCacheSlot = Arc<OnceLock<Arc<dyn FileCache>>>;

/// A table's store whose files are read from the cache if possible.
#[derive(Debug)]
pub struct CachedStore {
    source: Arc<Source>,
    manifests: ManifestReads,
}

/// The cache and the store from which the files of one table are read.
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
    /// Makes a store that reads files of `table` from `cache`, and everything else from `store`, which has the URI
    /// `root`. Counts what the cache answers in `usage`. Manifests are read through `manifests`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        root: &str,
        table: &TableUri,
        cache: FileCacheSlot,
        usage: Arc<StoreUsage>,
        manifests: ManifestReads,
    ) -> Self {
        // If the table is in another bucket, `folder` is the table's whole URI, with which no path begins.
        let folder = table.as_str().strip_prefix(root).and_then(|path| path.strip_prefix('/'));
        let folder = format!("{}/", folder.unwrap_or(table.as_str()));
        let source = Source { store, cache, usage, table: table.clone(), folder };
        Self { source: Arc::new(source), manifests }
    }

    /// Forgets what was read of the table's manifests if one of these files is a manifest. It may have changed, also if
    /// the request failed.
    fn forget_if_manifest<const N: usize>(&self, changed: [&Path; N]) {
        if changed.into_iter().any(is_manifest) {
            self.manifests.forget(&self.source.table);
        }
    }

    /// Returns the answer of the cache, or `None` if the store must be asked.
    async fn cached(&self, location: &Path, options: &GetOptions) -> Result<Option<GetResult>> {
        let Some(path) = self.source.cached_path(location, options) else { return Ok(None) };
        let Some(size) = self.source.size(&path).await? else { return Ok(None) };
        let Some(range) = range_within(options.range.as_ref(), size) else { return Ok(None) };
        let mut pieces = pieces(range.clone());
        let Some(first) = pieces.next() else { return Ok(None) };
        let first = self.source.piece(&path, location, first).await?;
        let (source, location) = (Arc::clone(&self.source), location.clone());
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size,
            e_tag: None,
            version: None,
        };
        let read = move |piece: Range<u64>| {
            let (source, path, location) = (Arc::clone(&source), path.clone(), location.clone());
            async move { source.piece(&path, &location, piece).await }
        };
        let rest = stream::iter(pieces).map(read).buffered(PIECES_AHEAD);
        let pieces = stream::once(async { Ok(first) }).chain(rest);
        Ok(Some(GetResult {
            payload: GetResultPayload::Stream(pieces.boxed()),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        }))
    }
}

impl Source {
    /// Returns the path of a file that the cache may have, if the request is for nothing but its bytes.
    fn cached_path(&self, location: &Path, options: &GetOptions) -> Option<FilePath> {
        let path = location.as_ref().strip_prefix(&self.folder)?;
        FilePath::parse(path).filter(|_| is_plain(options))
    }

    async fn size(&self, path: &FilePath) -> Result<Option<u64>> {
        let Some(cache) = self.cache.get() else { return Ok(None) };
        let size = tokio::time::timeout(LATE, cache.size(&self.table, path)).await;
        let size = size.unwrap_or(Ok(None)).map_err(|it| damaged_file(path, it))?;
        count(&self.usage.cache_failures, u64::from(size.is_none()));
        Ok(size)
    }

    /// Reads a range from the cache. If the cache cannot answer, or is late, the store is asked.
    async fn piece(&self, path: &FilePath, location: &Path, range: Range<u64>) -> Result<Bytes> {
        let Some(cache) = self.cache.get() else { return self.stored(location, range).await };
        let length = range.end - range.start;
        let mut asked = cache.read(&self.table, path, range.clone());
        let from_cache = match tokio::time::timeout(LATE, &mut asked).await {
            Ok(done) => done,
            Err(_) => {
                let stored = pin!(self.stored(location, range.clone()));
                match select(asked, stored).await {
                    Either::Left((Ok(it), stored))
                        if it.as_ref().is_none_or(|it| it.bytes.len() as u64 != length) =>
                    {
                        count(&self.usage.cache_failures, 1);
                        return stored.await;
                    }
                    Either::Left((done, _)) => done,
                    Either::Right((Err(_), asked)) => asked.await,
                    Either::Right((bytes, _)) => {
                        count(&self.usage.cache_failures, 1);
                        return bytes;
                    }
                }
            }
        };
        match from_cache.map_err(|it| damaged_file(path, it))? {
            Some(it) if it.bytes.len() as u64 == length => {
                if it.were_cached {
                    count(&self.usage.reads_avoided, 1);
                    count(&self.usage.bytes_avoided, length);
                }
                Ok(it.bytes)
            }
            _ => {
                count(&self.usage.cache_failures, 1);
                self.stored(location, range).await
            }
        }
    }

    /// Reads a range from the store.
    async fn stored(&self, location: &Path, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.store.get_range(location, range.clone()).await?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => Err(damaged(location, "it changed while it was read".into())),
        }
    }
}

fn damaged_file(path: &FilePath, FileDamaged(why): FileDamaged) -> StoreError {
    damaged(&Path::from(path.as_str()), why)
}

/// Divides a range into the pieces in which it is read. The pieces of a long range end at multiples of [`PIECE_BYTES`],
/// because the blocks between two multiples have one owner, which reads them from the store with one request.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let Range { mut start, end } = range;
    let is_long = end - start > PIECE_BYTES;
    std::iter::from_fn(move || {
        let piece_end = if is_long { (start / PIECE_BYTES + 1) * PIECE_BYTES } else { end };
        let piece = start..end.min(piece_end);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cached {}", self.source.store)
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
        let put = self.source.store.put_opts(location, payload, options).await;
        self.forget_if_manifest([location]);
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.source.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Source { store, table, .. } = &*self.source;
        if is_manifest(location) {
            return self.manifests.get(store.as_ref(), table, location, options).await;
        }
        match self.cached(location, &options).await? {
            Some(answer) => Ok(answer),
            None => store.get_opts(location, options).await,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (manifests, table) = (self.manifests.clone(), self.source.table.clone());
        let forget = move |deleted: &Result<Path>| {
            // An error does not say which file it was.
            if deleted.as_ref().map_or(true, is_manifest) {
                manifests.forget(&table);
            }
        };
        self.source.store.delete_stream(locations).inspect(forget).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.manifests.forget(&self.source.table);
        self.source.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.manifests.forget(&self.source.table);
        self.source.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.manifests.forget(&self.source.table);
        self.source.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let copied = self.source.store.copy_opts(from, to, options).await;
        self.forget_if_manifest([to]);
        copied
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let renamed = self.source.store.rename_opts(from, to, options).await;
        self.forget_if_manifest([from, to]);
        renamed
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use object_store::GetRange;
    use object_store::memory::InMemory;

    use super::*;
    use crate::store::{Act, Scripted};

    /// A cache of one file.
    #[derive(Debug)]
    struct OneFile {
        bytes: Bytes,
        trouble: Trouble,
    }

    #[derive(Clone, Copy, Debug)]
    enum Trouble {
        None,
        /// Reads after the first piece are not answered.
        LaterPieces,
        Damaged,
        Hangs,
        /// Reads are answered with this number of bytes, or not at all, after the store is asked too.
        Late(Option<usize>),
    }

    impl FileCache for OneFile {
        fn note_size(&self, _: &TableUri, _: &FilePath, _: u64) {}

        fn size<'a>(
            &'a self,
            _: &'a TableUri,
            path: &'a FilePath,
        ) -> BoxFuture<'a, std::result::Result<Option<u64>, FileDamaged>> {
            let size = (path.as_str() == "_indices/u/a").then_some(self.bytes.len() as u64);
            std::future::ready(Ok(size)).boxed()
        }

        fn read<'a>(
            &'a self,
            _: &'a TableUri,
            _: &'a FilePath,
            range: Range<u64>,
        ) -> BoxFuture<'a, std::result::Result<Option<CachedBytes>, FileDamaged>> {
            let bytes = self.bytes.slice(range.start as usize..range.end as usize);
            let answer = match self.trouble {
                Trouble::LaterPieces if range.end > PIECE_BYTES => Ok(None),
                Trouble::None | Trouble::LaterPieces => {
                    Ok(Some(CachedBytes { bytes, were_cached: true }))
                }
                Trouble::Damaged => Err(FileDamaged("it was overwritten".into())),
                Trouble::Hangs => return std::future::pending().boxed(),
                Trouble::Late(length) => {
                    let bytes = length.map(|length| bytes.slice(..length));
                    let answer = bytes.map(|bytes| CachedBytes { bytes, were_cached: true });
                    let late = tokio::time::sleep(LATE + LATE / 2);
                    return late.map(|()| Ok(answer)).boxed();
                }
            };
            std::future::ready(answer).boxed()
        }

        fn fill<'a>(&'a self, _: &'a TableUri, _: &'a FilePath, _: u64) -> BoxFuture<'a, ()> {
            std::future::ready(()).boxed()
        }

        fn release<'a>(&'a self, _: &'a TableUri, _: &'a FilePath, _: u64) -> BoxFuture<'a, bool> {
            std::future::ready(true).boxed()
        }
    }

    const SIZE: usize = 10 << 20;

    /// A store in which each file has bytes of 1, behind a cache whose file has bytes of 2.
    async fn store(trouble: Trouble) -> (CachedStore, Arc<StoreUsage>) {
        store_in(Arc::new(InMemory::new()), trouble).await
    }

    /// Like [`store`], with the files in `inner`.
    async fn store_in(
        inner: Arc<dyn ObjectStore>,
        trouble: Trouble,
    ) -> (CachedStore, Arc<StoreUsage>) {
        for path in
            ["a/t/_indices/u/a", "a/t/_indices/u/b", "a/t/_versions/1.manifest", "a/_indices/u/a"]
        {
            inner.put(&Path::from(path), vec![1; SIZE].into()).await.unwrap();
        }
        let table = TableUri::parse("s3://b/a/t").unwrap();
        let (slot, usage) = (FileCacheSlot::default(), Arc::new(StoreUsage::default()));
        slot.set(Arc::new(OneFile { bytes: vec![2; SIZE].into(), trouble })).unwrap();
        let manifests = ManifestReads::new();
        (CachedStore::new(inner, "s3://b", &table, slot, Arc::clone(&usage), manifests), usage)
    }

    async fn read(store: &CachedStore, path: &str, options: GetOptions) -> (Range<u64>, Bytes) {
        let answer = store.get_opts(&Path::from(path), options).await.unwrap();
        assert_eq!(answer.meta.size, SIZE as u64);
        (answer.range.clone(), answer.bytes().await.unwrap())
    }

    fn ranged(range: GetRange) -> GetOptions {
        GetOptions { range: Some(range), ..GetOptions::default() }
    }

    #[test]
    fn pieces_of_long_ranges_end_where_owners_may_change() {
        const MIB: u64 = 1 << 20;
        let of = |range| pieces(range).collect::<Vec<_>>();
        let short = 3 * MIB..7 * MIB;
        assert_eq!(of(short.clone()), [short]);
        assert_eq!(of(0..8 * MIB), [0..4 * MIB, 4 * MIB..8 * MIB]);
        let long = [3 * MIB..4 * MIB, 4 * MIB..8 * MIB, 8 * MIB..8 * MIB + 1];
        assert_eq!(of(3 * MIB..8 * MIB + 1), long);
        assert!(pieces(5..5).next().is_none());
    }

    #[tokio::test]
    async fn plain_reads_of_files_that_never_change_come_from_the_cache() {
        let (store, usage) = store(Trouble::None).await;
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
        // Two of the reads are longer than a piece, and take three pieces each.
        assert_eq!((used.reads_avoided, used.bytes_avoided), (9, 4 + 2 + 3 + (size - 7) + size));
        for path in ["a/t/_indices/u/b", "a/t/_versions/1.manifest", "a/_indices/u/a"] {
            let (_, bytes) = read(&store, path, ranged(GetRange::Bounded(0..1))).await;
            assert_eq!(*bytes, [1], "{path}");
        }
        let meta = store.source.store.head(&Path::from("a/t/_indices/u/a")).await.unwrap();
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
        let (store, usage) = store(Trouble::LaterPieces).await;
        let (_, bytes) = read(&store, "a/t/_indices/u/a", GetOptions::default()).await;
        let (cached, stored) = bytes.split_at(PIECE_BYTES as usize);
        assert!(cached.iter().all(|&byte| byte == 2) && stored.iter().all(|&byte| byte == 1));
        let used = usage.now();
        assert_eq!((bytes.len(), used.reads_avoided, used.cache_failures), (SIZE, 1, 2));
    }

    #[tokio::test]
    async fn a_file_that_is_another_one_is_an_error_and_never_mixed_with_the_stores() {
        let (store, _) = store(Trouble::Damaged).await;
        let path = Path::from("a/t/_indices/u/a");
        let refused = store.get_opts(&path, ranged(GetRange::Bounded(0..1))).await.unwrap_err();
        assert!(refused.to_string().contains("was overwritten"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_cache_is_not_waited_for() {
        let (store, usage) = store(Trouble::Hangs).await;
        let (_, bytes) = read(&store, "a/t/_indices/u/a", ranged(GetRange::Bounded(0..1))).await;
        assert_eq!((bytes[0], usage.now().cache_failures), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_once_if_a_late_cache_cannot_answer() {
        for length in [None, Some(0)] {
            let inner = Arc::new(Scripted::new(|_| Act::Late(2 * LATE)));
            let trouble = Trouble::Late(length);
            let (store, usage) = store_in(Arc::clone(&inner) as _, trouble).await;
            let range = ranged(GetRange::Bounded(0..1));
            let (_, bytes) = read(&store, "a/t/_indices/u/a", range).await;
            let failures = usage.now().cache_failures;
            assert_eq!((bytes[0], failures, inner.asked()), (1, 1, 1), "{trouble:?}");
        }
    }
}
