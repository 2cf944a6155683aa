//! Answers HEAD of a manifest by reading its beginning, and the reads that follow by what was read.
//!
//! Lance opens a version by its number with HEAD, which finds out whether the version has a manifest and how long it
//! is, and then reads the manifest: its end, and if it is longer than 64 KiB, what is before the end, with two more
//! reads. Most manifests are so short that the read in place of HEAD brings all of them, and it costs as much as HEAD.
//! The rest of a longer manifest is read by the first read that needs it, not in place of HEAD, because often no read
//! follows. Manifests of more than [`WHOLE_MAX`] are left to Lance.
//!
//! What was read is used within [`KEPT_FOR`], and forgotten when all of it has been used, or when the table's manifests
//! are listed, written, copied, renamed or deleted through this process. Manifests that a listing names are read as
//! before.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use moka::ops::compute::Op;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta,
    ObjectStore, Result,
};
use tables::TableUri;
use tokio::time::Instant;

use super::checked::VERSIONS;
use super::plain_read::{is_plain, range_within};

/// The bytes that are read in place of HEAD. A fragment takes about 100 bytes of a manifest.
const BYTES_READ: u64 = 64 << 10;

/// The length of the longest manifest that is read whole: that of some 40,000 fragments. It takes 50 ms at 90 MB/s, the
/// rate of one stream from S3.
const WHOLE_MAX: u64 = 4 << 20;

/// The maximum memory of the manifests that wait to be used, over all tables, in bytes.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// The time for which a manifest waits for the reads that follow HEAD.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The number of counters over which the tables are spread. Tables that share one forget their manifests together.
const FORGOTTEN_COUNTERS: usize = 1024;

/// For each table, the manifest that was read last in place of HEAD. Cheap to clone; clones share the manifests.
#[derive(Clone, Debug)]
pub struct ManifestReads {
    kept: Cache<TableUri, Manifest>,
    forgotten: Arc<Forgotten>,
}

/// Counts how often the manifest of a table was forgotten. A manifest is valid only under the count that was current
/// before it was asked for, so that an answer that was under way meanwhile, or is put back, can't outlive
/// [`ManifestReads::forget`].
#[derive(Debug)]
struct Forgotten {
    counts: Vec<AtomicU64>,
    hasher: RandomState,
}

/// A manifest that was read, or its beginning.
#[derive(Clone, Debug)]
struct Manifest {
    meta: ObjectMeta,
    /// All bytes, or the first [`BYTES_READ`].
    bytes: Bytes,
    read_at: Instant,
    /// The table's count of [`Forgotten`] before the manifest was asked for.
    forgotten: u64,
    /// The part between the beginning and the end that have been used.
    unused: Range<u64>,
}

impl ManifestReads {
    /// Creates an empty cache.
    pub fn new() -> Self {
        let kept = Cache::builder().max_capacity(KEPT_BYTES_MAX).weigher(weight);
        let kept = kept.time_to_live(KEPT_FOR).eviction_policy(EvictionPolicy::lru()).build();
        let counts = (0..FORGOTTEN_COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Self { kept, forgotten: Arc::new(Forgotten { counts, hasher: RandomState::new() }) }
    }

    /// Answers a read, or HEAD, of the manifest at `location` in the store of `table`.
    pub async fn get(
        &self,
        store: &dyn ObjectStore,
        table: &TableUri,
        location: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        if !is_plain(&GetOptions { head: false, ..options.clone() }) {
            return store.get_opts(location, options).await;
        }
        if options.head {
            return self.answer_head(store, table, location).await;
        }
        match self.answer_from_kept(store, table, location, options.range.as_ref()).await {
            Some(answer) => Ok(answer),
            None => store.get_opts(location, options).await,
        }
    }

    /// Forgets what was read of a table, or is being read: a manifest may have been replaced by another one of the same
    /// name.
    pub fn forget(&self, table: &TableUri) {
        self.forgotten.of(table).fetch_add(1, Ordering::AcqRel);
        self.kept.invalidate(table);
    }

    async fn answer_head(
        &self,
        store: &dyn ObjectStore,
        table: &TableUri,
        location: &Path,
    ) -> Result<GetResult> {
        let forgotten = self.forgotten.of(table).load(Ordering::Acquire);
        let first = GetRange::Bounded(0..BYTES_READ);
        let read = GetOptions { range: Some(first), ..GetOptions::default() };
        let answer = match store.get_opts(location, read).await {
            Ok(answer) => answer,
            Err(
                error @ (StoreError::NotFound { .. }
                | StoreError::PermissionDenied { .. }
                | StoreError::Unauthenticated { .. }),
            ) => return Err(error),
            // An empty object has no range.
            Err(_) => {
                let head = GetOptions { head: true, ..GetOptions::default() };
                return store.get_opts(location, head).await;
            }
        };
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        // The body of a manifest that is too long is read too: the connection could not be used again otherwise.
        let bytes = answer.bytes().await?;
        let is_beginning =
            range == (0..meta.size.min(BYTES_READ)) && bytes.len() as u64 == range.end;
        // Only the entity tag shows whether the rest belongs to the same manifest.
        let has_rest = meta.size <= WHOLE_MAX && meta.e_tag.is_some();
        if is_beginning && (meta.size == range.end || has_rest) {
            let (meta, read_at, unused) = (meta.clone(), Instant::now(), 0..meta.size);
            self.kept.insert(table.clone(), Manifest { meta, bytes, read_at, forgotten, unused });
        }
        Ok(result(meta, 0..0, Bytes::new()))
    }

    async fn answer_from_kept(
        &self,
        store: &dyn ObjectStore,
        table: &TableUri,
        location: &Path,
        range: Option<&GetRange>,
    ) -> Option<GetResult> {
        let manifest = self.kept.get(table).filter(|it| it.meta.location == *location)?;
        let is_forgotten = manifest.forgotten != self.forgotten.of(table).load(Ordering::Acquire);
        if is_forgotten || manifest.read_at.elapsed() >= KEPT_FOR {
            return None;
        }
        let range = range_within(range, manifest.meta.size)?;
        let bytes = match range.end <= manifest.bytes.len() as u64 {
            true => Some(manifest.bytes.clone()),
            false => whole(store, &manifest).await,
        };
        self.used(table, &manifest, bytes.as_ref().map(|bytes| (bytes, &range)));
        let bytes = bytes?.slice(range.start as usize..range.end as usize);
        Some(result(manifest.meta, range, bytes))
    }

    /// Records which range of a manifest was used, and its bytes that are there now. Forgets the manifest if all of it
    /// has been used, or with `None`. Does nothing if another manifest has taken its place.
    fn used(&self, table: &TableUri, manifest: &Manifest, used: Option<(&Bytes, &Range<u64>)>) {
        self.kept.entry_by_ref(table).and_compute_with(|kept| {
            let Some(mut kept) = kept.map(|it| it.into_value()).filter(|it| it.is(manifest)) else {
                return Op::Nop;
            };
            let Some((bytes, range)) = used else { return Op::Remove };
            if bytes.len() > kept.bytes.len() {
                kept.bytes = bytes.clone();
            }
            if range.start <= kept.unused.start {
                kept.unused.start = kept.unused.start.max(range.end);
            }
            if range.end >= kept.unused.end {
                kept.unused.end = kept.unused.end.min(range.start);
            }
            if kept.unused.is_empty() { Op::Remove } else { Op::Put(kept) }
        });
    }
}

impl Forgotten {
    fn of(&self, table: &TableUri) -> &AtomicU64 {
        &self.counts[self.hasher.hash_one(table) as usize % self.counts.len()]
    }
}

impl Manifest {
    /// Returns whether `other` was read by the same request, or by one that returned the same.
    fn is(&self, other: &Self) -> bool {
        (&self.meta, self.read_at, self.forgotten) == (&other.meta, other.read_at, other.forgotten)
    }
}

/// The memory that a manifest takes, in bytes.
fn weight(table: &TableUri, Manifest { meta, bytes, .. }: &Manifest) -> u32 {
    let texts = [Some(table.as_str()), Some(meta.location.as_ref()), meta.e_tag.as_deref()];
    let texts = texts.into_iter().chain([meta.version.as_deref()]).flatten().map(str::len);
    (size_of::<Manifest>() + texts.sum::<usize>() + bytes.len()) as u32
}

/// Reads the rest of a manifest whose beginning was read, and returns all of its bytes. `None` if the manifest is not the
/// same any more; then Lance's own reads find out.
async fn whole(store: &dyn ObjectStore, manifest: &Manifest) -> Option<Bytes> {
    let Manifest { meta, bytes: first, .. } = manifest;
    let rest = first.len() as u64..meta.size;
    let read = GetOptions {
        range: Some(GetRange::Bounded(rest.clone())),
        if_match: Some(meta.e_tag.clone()?),
        ..GetOptions::default()
    };
    let answer = store.get_opts(&meta.location, read).await.ok()?;
    if (&answer.meta.e_tag, &answer.range) != (&meta.e_tag, &rest) {
        return None;
    }
    let mut all = BytesMut::with_capacity(meta.size as usize);
    all.extend_from_slice(first);
    all.extend_from_slice(&answer.bytes().await.ok()?);
    Some(all.freeze()).filter(|all| all.len() as u64 == meta.size)
}

fn result(meta: ObjectMeta, range: Range<u64>, bytes: Bytes) -> GetResult {
    GetResult {
        payload: GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed()),
        meta,
        range,
        attributes: Default::default(),
        extensions: Default::default(),
    }
}

/// Returns whether `location` is in a folder of manifests.
pub fn is_manifest(location: &Path) -> bool {
    location.parts().rev().nth(1).is_some_and(|folder| folder.as_ref() == VERSIONS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::ObjectStoreExt;

    use super::*;
    use crate::store::cached::{CachedStore, FileCacheSlot};
    use crate::store::{Act, BYTES, Scripted};

    const MANIFEST: &str = "t/_versions/1.manifest";

    /// A store with these files that follows a script, as the store of the table `t`.
    async fn store(
        script: fn(usize) -> Act,
        files: &[(&str, &[u8])],
    ) -> (CachedStore, Arc<Scripted>) {
        let inner = Arc::new(Scripted::new(script));
        for (path, bytes) in files {
            inner.put(&Path::from(*path), bytes.to_vec().into()).await.unwrap();
        }
        let (table, slot) = (TableUri::parse("s3://b/t").unwrap(), FileCacheSlot::default());
        let (stored, usage) = (Arc::clone(&inner) as _, Arc::default());
        (CachedStore::new(stored, "s3://b", &table, slot, usage, ManifestReads::new()), inner)
    }

    #[tokio::test(start_paused = true)]
    async fn a_manifest_is_read_once_for_head_and_the_read_after_it() {
        let path = Path::from(MANIFEST);
        let files = [(path.as_ref(), BYTES), ("t/data/a.lance", BYTES)];
        let (store, inner) = store(|_| Act::Answer, &files).await;
        let asked = || inner.asked();
        let stored = inner.head(&path).await.unwrap();
        let before = asked();
        assert_eq!(store.head(&path).await.unwrap(), stored);
        assert_eq!(store.get_range(&path, 2..20).await.unwrap(), &BYTES[2..]);
        assert_eq!(store.get_range(&path, 0..10).await.unwrap(), BYTES);
        assert_eq!(asked() - before, 1);
        // All of it was used. Read again, it comes from the store.
        assert_eq!(store.get_range(&path, 0..10).await.unwrap(), BYTES);
        assert_eq!(asked() - before, 2);
        // A newer manifest of the same name is noticed after a while, and after a listing.
        for is_listed in [false, true] {
            store.head(&path).await.unwrap();
            inner.put(&path, (&b"9876543210"[..]).into()).await.unwrap();
            match is_listed {
                true => drop(store.list_with_delimiter(None).await.unwrap()),
                false => tokio::time::advance(KEPT_FOR).await,
            }
            assert_eq!(store.get_range(&path, 0..3).await.unwrap(), &b"987"[..]);
            inner.put(&path, BYTES.into()).await.unwrap();
        }
        // Conditional reads go to the store, and HEAD of other files is HEAD.
        store.head(&path).await.unwrap();
        let before = asked();
        let tag = GetOptions { if_match: Some("other".into()), ..GetOptions::default() };
        assert!(store.get_opts(&path, tag).await.is_err());
        let data = Path::from("t/data/a.lance");
        store.head(&data).await.unwrap();
        store.get_range(&data, 0..1).await.unwrap();
        assert_eq!(asked() - before, 3);
    }

    #[tokio::test]
    async fn a_long_manifest_is_read_with_two_requests_and_no_byte_of_it_twice() {
        let long: Vec<u8> = (0..3 * BYTES_READ + 5).map(|at| (at % 251) as u8).collect();
        let (store, inner) = store(|_| Act::Answer, &[(MANIFEST, &long)]).await;
        let (path, size) = (Path::from(MANIFEST), long.len() as u64);
        let stored = inner.head(&path).await.unwrap();
        let before = inner.asked();
        assert_eq!(store.head(&path).await.unwrap(), stored);
        // HEAD alone reads only the beginning.
        assert_eq!(inner.asked() - before, 1);
        // Lance reads the end, then a block at the beginning, then the rest.
        for range in [size - BYTES_READ..size, 7..7 + BYTES_READ, 7 + BYTES_READ..size, 0..7] {
            let read = store.get_range(&path, range.clone()).await.unwrap();
            assert_eq!(read, long[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(inner.asked() - before, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_manifest_that_is_replaced_while_it_is_read_is_not_kept() {
        let path = Path::from(MANIFEST);
        let [old, new] = [7, 8].map(|byte| vec![byte; BYTES_READ as usize + 10]);
        // The answers to HEAD, or to the read of the rest, have begun when the manifest is replaced.
        let scripts: [fn(usize) -> Act; 2] = [
            |n| if n == 0 { Act::Dawdle(Duration::from_secs(1)) } else { Act::Answer },
            |n| if n == 1 { Act::Dawdle(Duration::from_secs(1)) } else { Act::Answer },
        ];
        for (late, script) in scripts.into_iter().enumerate() {
            let (store, inner) = store(script, &[(MANIFEST, &old)]).await;
            let replace = async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                inner.put(&path, new.clone().into()).await.unwrap();
                store.list_with_delimiter(None).await.unwrap();
            };
            let read = async {
                store.head(&path).await.unwrap();
                if late == 1 {
                    assert_eq!(store.get_range(&path, 0..BYTES_READ + 1).await.unwrap()[0], 7);
                }
            };
            tokio::join!(read, replace);
            assert_eq!(store.get_range(&path, 0..5).await.unwrap(), new[..5], "{late}");
        }
    }

    #[tokio::test]
    async fn a_manifest_that_was_changed_through_the_store_is_read_again() {
        let (path, other) = (Path::from(MANIFEST), Path::from("t/_versions/x"));
        let (store, inner) = store(|_| Act::Answer, &[(MANIFEST, BYTES)]).await;
        let newer = &b"9876543210"[..];
        for how in ["put", "copy", "rename", "delete"] {
            inner.put(&path, BYTES.into()).await.unwrap();
            inner.put(&other, newer.into()).await.unwrap();
            store.head(&path).await.unwrap();
            match how {
                "put" => drop(store.put(&path, newer.into()).await.unwrap()),
                "copy" => store.copy(&other, &path).await.unwrap(),
                "rename" => store.rename(&other, &path).await.unwrap(),
                _ => store.delete(&path).await.unwrap(),
            }
            let read = store.get_range(&path, 0..3).await;
            match how {
                "delete" => assert!(matches!(read, Err(StoreError::NotFound { .. })), "{read:?}"),
                _ => assert_eq!(read.unwrap(), newer[..3], "{how}"),
            }
        }
    }

    #[tokio::test]
    async fn a_manifest_whose_rest_is_wrong_is_left_to_the_reads_that_follow() {
        let long = vec![7; BYTES_READ as usize + 10];
        let scripts: [fn(usize) -> Act; 4] = [
            |n| if n == 1 { Act::Fail } else { Act::Answer },
            |n| if n == 1 { Act::Shorten } else { Act::Answer },
            |n| if n == 1 { Act::Shift } else { Act::Answer },
            |n| if n == 1 { Act::Break } else { Act::Answer },
        ];
        for script in scripts {
            let (store, inner) = store(script, &[(MANIFEST, &long)]).await;
            let path = Path::from(MANIFEST);
            assert_eq!(store.head(&path).await.unwrap().size, long.len() as u64);
            assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), long);
            assert_eq!(inner.asked(), 3);
        }
    }

    #[tokio::test]
    async fn a_manifest_that_is_too_long_empty_or_gone_is_answered_like_head() {
        let long = vec![7; WHOLE_MAX as usize + 1];
        let files = [(MANIFEST, &long[..]), ("t/_versions/2.manifest", &[])];
        let (store, inner) = store(|_| Act::Answer, &files).await;
        for (name, size, requests) in [("1", long.len(), 2), ("2", 0, 3)] {
            let path = Path::from(format!("t/_versions/{name}.manifest"));
            let (stored, before) = (inner.head(&path).await.unwrap(), inner.asked());
            assert_eq!(store.head(&path).await.unwrap(), stored);
            assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap().len(), size);
            assert_eq!(inner.asked() - before, requests);
        }
        let gone = store.head(&Path::from("t/_versions/3.manifest")).await.unwrap_err();
        assert!(matches!(gone, StoreError::NotFound { .. }), "{gone}");
    }
}
