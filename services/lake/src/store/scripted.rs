//! A store for tests, which follows a script.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use stores::StoreLimits;
use tokio::runtime::{Handle, Id};

use super::bucket_fence::BucketFence;
use super::guarded::GuardedStore;
use super::limiter::StoreLimiter;
use super::usage::StoreUsage;

/// A step of the script: the store's response to a request.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Answer,
    Fail,
    Hang,
    /// Answers after a while.
    Late(Duration),
    /// Sends half a body, then an error.
    Break,
    /// Sends half a body, then nothing.
    Stall,
    /// Sends half a body, and the rest after a while.
    Dawdle(Duration),
    /// Sends half a body, as if it were the whole.
    Shorten,
    /// Says that the bytes are those of the range that begins one byte later.
    Shift,
    /// Says that the object is one byte longer than it is.
    Grow,
}

/// A store whose script says how it responds to each read, and to each call of `list` and of `delete_stream`.
#[derive(Debug)]
pub struct Scripted {
    inner: InMemory,
    script: fn(usize) -> Act,
    asked: AtomicUsize,
    last_runtime: Mutex<Option<Id>>,
}

impl Scripted {
    /// A store with a script, which gets the number of the request, counted from 0.
    pub fn new(script: fn(usize) -> Act) -> Self {
        let (inner, asked) = (InMemory::new(), AtomicUsize::new(0));
        Self { inner, script, asked, last_runtime: Mutex::default() }
    }

    /// The number of requests so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// The runtime that sent the last read.
    pub fn last_runtime(&self) -> Option<Id> {
        *self.last_runtime.lock().unwrap()
    }

    fn streamed<T: Send + 'static>(
        &self,
        answer: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        match (self.script)(self.asked.fetch_add(1, Ordering::Relaxed)) {
            Act::Fail => stream::iter([Err(failure())]).boxed(),
            Act::Hang => stream::pending().boxed(),
            _ => answer,
        }
    }
}

fn failure() -> Error {
    Error::Generic { store: "scripted", source: "503".into() }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scripted")
    }
}

#[async_trait]
impl ObjectStore for Scripted {
    async fn put_opts(&self, at: &Path, what: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(at, what, how).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> Result<GetResult> {
        *self.last_runtime.lock().unwrap() = Some(Handle::current().id());
        let act = (self.script)(self.asked.fetch_add(1, Ordering::Relaxed));
        match act {
            Act::Fail => return Err(failure()),
            Act::Hang => return std::future::pending().await,
            Act::Late(time) => tokio::time::sleep(time).await,
            _ => {}
        }
        let answer = self.inner.get_opts(at, how).await?;
        let GetResult { meta, range, attributes, extensions, .. } = &answer;
        let (mut meta, mut range) = (meta.clone(), range.clone());
        match act {
            Act::Shift => range = range.start + 1..range.end + 1,
            Act::Grow => meta.size += 1,
            _ => {}
        }
        let (attributes, extensions) = (attributes.clone(), extensions.clone());
        let bytes = answer.bytes().await?;
        let half = bytes.len() / 2;
        let begun = stream::iter([Ok(bytes.slice(..half))]);
        let rest = bytes.slice(half..);
        let pieces = match act {
            Act::Break => begun.chain(stream::iter([Err(failure())])).boxed(),
            Act::Shorten => begun.boxed(),
            Act::Stall => begun.chain(stream::pending()).boxed(),
            Act::Dawdle(time) => {
                let rest = async move {
                    tokio::time::sleep(time).await;
                    Ok(rest)
                };
                begun.chain(stream::once(rest)).boxed()
            }
            _ => stream::iter([Ok(bytes)]).boxed(),
        };
        let payload = GetResultPayload::Stream(pieces);
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(
        &self,
        at: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.streamed(self.inner.delete_stream(at))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.streamed(self.inner.list(prefix))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}

/// The contents of the store's one object.
pub const BYTES: &[u8] = b"0123456789";

/// A guarded, scripted store with one object, and the object's path.
pub async fn store(limits: StoreLimits, script: fn(usize) -> Act) -> (GuardedStore, Path) {
    let (store, path) = (guarded(Arc::new(Scripted::new(script)), &limits), Path::from("x"));
    store.put(&path, BYTES.into()).await.unwrap();
    (store, path)
}

/// A store with a guard of its own.
pub fn guarded(inner: Arc<dyn ObjectStore>, limits: &StoreLimits) -> GuardedStore {
    let limiter = StoreLimiter::new("s3$bucket", limits, Arc::new(StoreUsage::default()));
    GuardedStore::new(inner, Arc::new(limiter), BucketFence::unrestricted())
}
