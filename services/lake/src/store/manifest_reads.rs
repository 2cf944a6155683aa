//! Answers HEAD of a manifest by reading it, and the reads that follow by what was read.
//!
//! Lance opens a version by its number with HEAD, which finds out whether the version has a manifest and how long it
//! is, and then reads the manifest: its end, and if it is longer than 64 KiB, what is before the end, with two more
//! reads. Most manifests are so short that one read brings all of them, and a read costs as much as HEAD. A second one
//! brings the rest of a longer manifest. Manifests of more than [`WHOLE_MAX`] are left to Lance.
//!
//! What was read is used within [`KEPT_FOR`], and forgotten when all of it has been used. Manifests that a listing
//! names are read as before.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
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

/// For each table, the manifest that was read last in place of HEAD. Cheap to clone; clones share the manifests.
#[derive(Clone, Debug)]
pub struct ManifestReads(Cache<TableUri, Manifest>);

/// A manifest that was read.
#[derive(Clone, Debug)]
struct Manifest {
    meta: ObjectMeta,
    bytes: Bytes,
    read_at: Instant,
    /// The part between the beginning and the end that have been used.
    unused: Range<u64>,
}

impl ManifestReads {
    /// Creates an empty cache.
    pub fn new() -> Self {
        let weigh = |_: &TableUri, it: &Manifest| it.bytes.len() as u32;
        let kept = Cache::builder().max_capacity(KEPT_BYTES_MAX).weigher(weigh);
        Self(kept.eviction_policy(EvictionPolicy::lru()).build())
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
        match self.answer_from_kept(table, location, options.range.as_ref()) {
            Some(answer) => Ok(answer),
            None => store.get_opts(location, options).await,
        }
    }

    /// Forgets what was read of a table: a listing may name a newer manifest of the same name.
    pub fn forget(&self, table: &TableUri) {
        self.0.invalidate(table);
    }

    async fn answer_head(
        &self,
        store: &dyn ObjectStore,
        table: &TableUri,
        location: &Path,
    ) -> Result<GetResult> {
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
        let first = answer.bytes().await?;
        if range == (0..meta.size.min(BYTES_READ))
            && let Some(bytes) = whole(store, &meta, first).await
        {
            let (read_at, unused) = (Instant::now(), 0..meta.size);
            self.0.insert(table.clone(), Manifest { meta: meta.clone(), bytes, read_at, unused });
        }
        Ok(result(meta, 0..0, Bytes::new()))
    }

    fn answer_from_kept(
        &self,
        table: &TableUri,
        location: &Path,
        range: Option<&GetRange>,
    ) -> Option<GetResult> {
        let is_it =
            |it: &Manifest| it.meta.location == *location && it.read_at.elapsed() < KEPT_FOR;
        let mut manifest = self.0.get(table).filter(is_it)?;
        let range = range_within(range, manifest.meta.size)?;
        if range.start <= manifest.unused.start {
            manifest.unused.start = manifest.unused.start.max(range.end);
        }
        if range.end >= manifest.unused.end {
            manifest.unused.end = manifest.unused.end.min(range.start);
        }
        match manifest.unused.is_empty() {
            true => self.0.invalidate(table),
            false => self.0.insert(table.clone(), manifest.clone()),
        }
        let bytes = manifest.bytes.slice(range.start as usize..range.end as usize);
        Some(result(manifest.meta, range, bytes))
    }
}

/// Returns all bytes of a manifest that begins with `first`. Reads the rest, unless the manifest is too long. `None` if
/// the manifest is not the same any more; then Lance's own reads find out.
async fn whole(store: &dyn ObjectStore, meta: &ObjectMeta, first: Bytes) -> Option<Bytes> {
    let rest = first.len() as u64..meta.size;
    if rest.start == rest.end {
        return Some(first);
    }
    let has_rest = rest.start == BYTES_READ && meta.size <= WHOLE_MAX;
    let tag = meta.e_tag.clone().filter(|_| has_rest)?;
    let read = GetOptions {
        range: Some(GetRange::Bounded(rest.clone())),
        if_match: Some(tag),
        ..GetOptions::default()
    };
    let answer = store.get_opts(&meta.location, read).await.ok()?;
    if (&answer.meta.e_tag, &answer.range) != (&meta.e_tag, &rest) {
        return None;
    }
    let mut all = BytesMut::with_capacity(meta.size as usize);
    all.extend_from_slice(&first);
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
        // Lance reads the end, then a block at the beginning, then the rest.
        for range in [size - BYTES_READ..size, 7..7 + BYTES_READ, 7 + BYTES_READ..size, 0..7] {
            let read = store.get_range(&path, range.clone()).await.unwrap();
            assert_eq!(read, long[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(inner.asked() - before, 2);
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
