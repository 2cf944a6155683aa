//! Answers HEAD of a manifest by reading it, and the read that follows by what was read.
//!
//! Lance opens a version by its number with two requests, one after the other: HEAD, which finds out whether the version
//! has a manifest and how long it is, and a read of it. Most manifests are so short that one read brings all of them, and
//! a read costs as much as HEAD.
//!
//! What was read is used once, within [`KEPT_FOR`]. Manifests that a listing names are read as before. So are those that
//! are longer than [`BYTES_READ`].

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, RenameOptions, Result,
};
use tokio::time::Instant;

use super::cached::{is_plain, range_within};
use super::checked::VERSIONS;

/// The bytes that are read in place of HEAD. A fragment takes about 100 bytes of a manifest.
const BYTES_READ: u64 = 64 << 10;

/// The time for which a manifest waits for the read that follows HEAD.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// A table's store, whose manifests are read instead of asked for by HEAD.
#[derive(Debug)]
pub struct ManifestStore {
    inner: Arc<dyn ObjectStore>,
    /// The manifest that was read last in place of HEAD.
    kept: Mutex<Option<Manifest>>,
}

/// A manifest that was read.
#[derive(Debug)]
struct Manifest {
    meta: ObjectMeta,
    bytes: Bytes,
    read_at: Instant,
}

impl ManifestStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, kept: Mutex::default() }
    }

    /// Answers HEAD.
    async fn answer_head(&self, location: &Path) -> Result<GetResult> {
        let range = Some(GetRange::Bounded(0..BYTES_READ));
        let read = GetOptions { range, ..GetOptions::default() };
        let answer = match self.inner.get_opts(location, read).await {
            Ok(answer) => answer,
            Err(
                error @ (StoreError::NotFound { .. }
                | StoreError::PermissionDenied { .. }
                | StoreError::Unauthenticated { .. }),
            ) => return Err(error),
            // An empty object has no range.
            Err(_) => {
                let head = GetOptions { head: true, ..GetOptions::default() };
                return self.inner.get_opts(location, head).await;
            }
        };
        let (meta, is_whole) = (answer.meta.clone(), answer.range == (0..answer.meta.size));
        // The body of a longer manifest is read too: the connection could not be used again otherwise.
        let bytes = answer.bytes().await?;
        if is_whole && bytes.len() as u64 == meta.size {
            let read_at = Instant::now();
            *self.kept() = Some(Manifest { meta: meta.clone(), bytes, read_at });
        }
        Ok(result(meta, 0..0, Bytes::new()))
    }

    /// Returns the manifest at `location` if it was just read in place of HEAD. It is not kept any longer.
    fn take(&self, location: &Path) -> Option<Manifest> {
        let is_it = |it: &mut Manifest| it.meta.location == *location;
        let manifest = self.kept().take_if(is_it)?;
        (manifest.read_at.elapsed() < KEPT_FOR).then_some(manifest)
    }

    /// Forgets what was read: a listing may name a newer manifest of the same name.
    fn forget(&self) {
        self.kept().take();
    }

    fn kept(&self) -> MutexGuard<'_, Option<Manifest>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
fn is_manifest(location: &Path) -> bool {
    location.parts().rev().nth(1).is_some_and(|folder| folder.as_ref() == VERSIONS)
}

impl fmt::Display for ManifestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for ManifestStore {
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
        let is_head = options.head;
        if !is_manifest(location) || !is_plain(&GetOptions { head: false, ..options.clone() }) {
            return self.inner.get_opts(location, options).await;
        }
        if is_head {
            return self.answer_head(location).await;
        }
        if let Some(Manifest { meta, bytes, .. }) = self.take(location)
            && let Some(range) = range_within(options.range.as_ref(), meta.size)
        {
            let bytes = bytes.slice(range.start as usize..range.end as usize);
            return Ok(result(meta, range, bytes));
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.forget();
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.forget();
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.forget();
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
    use object_store::ObjectStoreExt;

    use super::*;
    use crate::store::{Act, BYTES, Scripted};

    async fn store(files: &[(&str, &[u8])]) -> (ManifestStore, Arc<Scripted>) {
        let inner = Arc::new(Scripted::new(|_| Act::Answer));
        for (path, bytes) in files {
            inner.put(&Path::from(*path), bytes.to_vec().into()).await.unwrap();
        }
        (ManifestStore::new(Arc::clone(&inner) as _), inner)
    }

    #[tokio::test(start_paused = true)]
    async fn a_manifest_is_read_once_for_head_and_the_read_after_it() {
        let path = Path::from("t/_versions/1.manifest");
        let (store, inner) = store(&[(path.as_ref(), BYTES), ("t/data/a.lance", BYTES)]).await;
        let asked = || inner.asked();
        let stored = inner.head(&path).await.unwrap();
        for (range, expected) in [(0..10, BYTES), (2..20, &BYTES[2..])] {
            let before = asked();
            assert_eq!(store.head(&path).await.unwrap(), stored);
            assert_eq!(store.get_range(&path, range.clone()).await.unwrap(), expected);
            assert_eq!(asked() - before, 1, "{range:?}");
            // Read again, it comes from the store.
            assert_eq!(store.get_range(&path, range).await.unwrap(), expected);
            assert_eq!(asked() - before, 2);
        }
        // A newer manifest of the same name is noticed after a while.
        store.head(&path).await.unwrap();
        inner.put(&path, (&b"9876543210"[..]).into()).await.unwrap();
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(store.get_range(&path, 0..3).await.unwrap(), &b"987"[..]);
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
    async fn a_manifest_that_is_long_empty_or_gone_is_answered_like_head() {
        let long = vec![7; BYTES_READ as usize + 1];
        let (store, inner) =
            store(&[("t/_versions/1.manifest", &long), ("t/_versions/2.manifest", &[])]).await;
        for (name, size) in [("1", long.len()), ("2", 0)] {
            let path = Path::from(format!("t/_versions/{name}.manifest"));
            assert_eq!(store.head(&path).await.unwrap(), inner.head(&path).await.unwrap());
            assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap().len(), size);
        }
        let gone = store.head(&Path::from("t/_versions/3.manifest")).await.unwrap_err();
        assert!(matches!(gone, StoreError::NotFound { .. }), "{gone}");
    }
}
