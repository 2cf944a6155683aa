//! An object store behind a limiter.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::{Either, select};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::body::watched;
use super::bucket_fence::BucketFence;
use super::limiter::StoreLimiter;
use super::streams::guarded;
use super::usage::{StoreUsage, count, is_of_version};

/// A store whose requests are checked against a fence. Each read of a range is a call of
/// [`get_opts`](ObjectStore::get_opts).
///
/// Reads and listings go through the limiter. Writes and deletes are only checked against the fence, and writes are
/// counted: nodes make none, and a command that writes a table is better served by its client's retries than by a
/// breaker.
#[derive(Debug)]
pub struct GuardedStore {
    inner: Arc<dyn ObjectStore>,
    limiter: Arc<StoreLimiter>,
    fence: BucketFence,
    /// The runtime that sends reads and owns the connections that they open, whichever runtime asked: other requests
    /// reuse the connections later and must not wait for threads of low priority. A connection that is opened to resume
    /// a broken body belongs to the runtime of the body's reader.
    runtime: Option<Handle>,
}

impl GuardedStore {
    /// Guards `inner` with `limiter` and `fence`. Connections belong to the current runtime.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        limiter: Arc<StoreLimiter>,
        fence: BucketFence,
    ) -> Self {
        Self { inner, limiter, fence, runtime: Handle::try_current().ok() }
    }

    /// The limiter's counters.
    #[cfg(test)]
    pub fn used(&self) -> tables::StoreUse {
        self.limiter.usage.now()
    }

    async fn ask(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(runtime) = &self.runtime else {
            return self.inner.get_opts(location, options).await;
        };
        let (inner, location) = (Arc::clone(&self.inner), location.clone());
        // The read is spawned on `runtime`, not only polled in its context: otherwise the thread that looks up the host
        // name would inherit and keep the caller's priority. Dropping the set ends the read.
        let mut asked = JoinSet::new();
        asked.spawn_on(async move { inner.get_opts(&location, options).await }, runtime);
        asked.join_next().await.expect("one was asked")?
    }

    fn listing(
        &self,
        prefix: Option<&Path>,
        inner: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(outside) = self.fence.check(prefix.unwrap_or(&Path::default())) {
            return futures::stream::once(async { Err(outside) }).boxed();
        }
        let limiter = Arc::clone(&self.limiter);
        let admitted = async move {
            let request = limiter.acquire().await?;
            count(&limiter.usage.writes, 1);
            Ok(request)
        };
        guarded(admitted, inner)
    }

    /// Sends a read, and a hedge if the answer is late. Returns the first answer.
    async fn first_answer(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let usage = &self.limiter.usage;
        let asked = Instant::now();
        count(&usage.reads, 1);
        let first = Box::pin(self.ask(location, options.clone()));
        let Some(wait) = self.limiter.hedge_after() else { return self.timed(asked, first.await) };
        let first = match select(first, Box::pin(tokio::time::sleep(wait))).await {
            Either::Left((answer, _)) => return self.timed(asked, answer),
            Either::Right(((), first)) => first,
        };
        if !self.limiter.may_hedge() {
            return self.timed(asked, first.await);
        }
        count(&usage.reads, 1);
        count(&usage.hedged, 1);
        let second = Box::pin(self.ask(location, options));
        // If one fails, the other may still answer.
        let answer = match select(first, second).await {
            Either::Left((Err(_), second)) => second.await,
            Either::Left((answer, _)) => answer,
            Either::Right((Err(_), first)) => first.await,
            Either::Right((answer, _)) => {
                count(&usage.hedges_won, 1);
                answer
            }
        };
        self.timed(asked, answer)
    }

    fn timed(&self, asked: Instant, answer: Result<GetResult>) -> Result<GetResult> {
        if answer.is_ok() {
            self.limiter.read_took(asked.elapsed());
        }
        answer
    }
}

impl fmt::Display for GuardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guarded {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for GuardedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.fence.check(location)?;
        count(&self.limiter.usage.writes, 1);
        count(&self.limiter.usage.bytes_written, payload.content_length() as u64);
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.fence.check(location)?;
        count(&self.limiter.usage.writes, 1);
        let inner = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(CountedUpload { inner, usage: Arc::clone(&self.limiter.usage) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.fence.check(location)?;
        let mut request = self.limiter.acquire().await?;
        let has_body = !options.head;
        if has_body && is_of_version(location) {
            count(&self.limiter.usage.version_reads, 1);
        }
        match self.first_answer(location, options).await {
            Ok(answer) if has_body => Ok(watched(answer, request)),
            answer => {
                request.judge(&answer);
                answer
            }
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let fence = self.fence.clone();
        let locations = locations.and_then(move |location| {
            std::future::ready(fence.check(&location).map(|()| location))
        });
        self.inner.delete_stream(locations.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.fence.check(prefix.unwrap_or(&Path::default()))?;
        let mut request = self.limiter.acquire().await?;
        count(&self.limiter.usage.writes, 1);
        let list = self.inner.list_with_delimiter(prefix).await;
        request.judge(&list);
        list
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.fence.check(from)?;
        self.fence.check(to)?;
        count(&self.limiter.usage.writes, 1);
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload in parts, each of which is a request.
#[derive(Debug)]
struct CountedUpload {
    inner: Box<dyn MultipartUpload>,
    usage: Arc<StoreUsage>,
}

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        count(&self.usage.writes, 1);
        count(&self.usage.bytes_written, data.content_length() as u64);
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        count(&self.usage.writes, 1);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::{Error, ObjectStoreExt};
    use tables::StoreUse;

    use super::*;
    use crate::store::breaker::BreakerOpen;
    use crate::store::scripted::{Act, BYTES, Scripted, store};
    use stores::StoreLimits;
    use tokio::runtime::Builder;

    #[tokio::test]
    async fn requests_and_bytes_are_counted() {
        let (store, path) = store(StoreLimits::default(), |_| Act::Answer).await;
        assert_eq!(store.get_range(&path, 2..5).await.unwrap(), &BYTES[2..5]);
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), BYTES);
        store.list_with_delimiter(None).await.unwrap();
        let missing = store.get(&Path::from("y")).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
        let expected = StoreUse {
            reads: 3,
            writes: 2,
            bytes_read: 13,
            bytes_written: 10,
            cost_usd: 3.0 * 0.4e-6 + 2.0 * 5e-6,
            ..Default::default()
        };
        assert_eq!(store.used(), expected);
    }

    #[test]
    fn reads_are_sent_by_the_runtime_that_opened_the_store() {
        let opened = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let asked = Builder::new_current_thread().enable_all().build().unwrap();
        let inner = Arc::new(Scripted::new(|_| Act::Answer));
        let store = opened.block_on(async {
            let limiter = StoreLimiter::new(
                "scripted",
                &StoreLimits::default(),
                Arc::new(StoreUsage::default()),
            );
            let store = GuardedStore::new(
                Arc::clone(&inner) as _,
                Arc::new(limiter),
                BucketFence::unrestricted(),
            );
            store.put(&Path::from("x"), BYTES.into()).await.unwrap();
            store
        });
        let read = asked.block_on(store.get_range(&Path::from("x"), 0..4)).unwrap();
        assert_eq!(read, &BYTES[..4]);
        assert_eq!(inner.last_runtime(), Some(opened.handle().id()));
    }

    #[tokio::test]
    async fn a_read_that_hangs_is_answered_by_its_hedge() {
        // Hedging needs the latencies of 100 reads, and sends at most one hedge per 20 reads.
        let (store, path) =
            store(StoreLimits::default(), |n| if n == 150 { Act::Hang } else { Act::Answer }).await;
        for n in 0..200 {
            assert_eq!(store.get_range(&path, 0..4).await.unwrap(), &BYTES[..4], "{n}");
        }
        let used = store.used();
        // On a slow machine, more than one hedge may answer first.
        assert!((1..=10).contains(&used.hedges_won), "{used:?}");
        assert_eq!((used.reads, used.failed, used.under_way), (200 + used.hedged, 0, 0));
    }

    #[tokio::test]
    async fn the_breaker_of_a_failing_store_is_open_until_it_answers() {
        let limits = StoreLimits {
            breaker_failures: 3,
            breaker_pause: Duration::from_millis(20),
            ..Default::default()
        };
        let (store, path) = store(limits, |n| if n < 4 { Act::Fail } else { Act::Answer }).await;
        let mut refused = 0;
        let bytes = loop {
            match store.get_range(&path, 0..1).await {
                Ok(bytes) => break bytes,
                Err(Error::Generic { source, .. }) if source.is::<BreakerOpen>() => {
                    refused += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(_) => {}
            }
        };
        assert_eq!(bytes, &BYTES[..1]);
        let used = store.used();
        assert!(refused > 0);
        assert_eq!((used.reads, used.failed, used.refused), (5, 4, refused));
    }

    /// Sends three reads that fail, a probe that follows the script, and five more reads while the probe is in
    /// progress.
    async fn beside_a_probe(script: fn(usize) -> Act) -> (Arc<GuardedStore>, Vec<Result<()>>) {
        let pause = Duration::from_millis(20);
        let limits =
            StoreLimits { breaker_failures: 3, breaker_pause: pause, ..Default::default() };
        let (store, path) = store(limits, script).await;
        for _ in 0..3 {
            assert!(store.get_range(&path, 0..1).await.is_err());
        }
        tokio::time::sleep(pause * 2).await;
        let store = Arc::new(store);
        let read = |_| {
            let (store, path) = (Arc::clone(&store), path.clone());
            async move { store.get_range(&path, 0..1).await.map(drop) }
        };
        let probe = tokio::spawn(read(0));
        tokio::task::yield_now().await;
        let beside = futures::future::join_all((0..5).map(read)).await;
        probe.abort();
        (store, beside)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_the_outcome_of_a_probe() {
        fn script(n: usize) -> Act {
            match n {
                0..3 => Act::Fail,
                3 => Act::Dawdle(Duration::from_millis(100)),
                _ => Act::Answer,
            }
        }
        let (store, beside) = beside_a_probe(script).await;
        assert!(beside.iter().all(Result::is_ok), "{beside:?}");
        assert_eq!(store.used().refused, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_refused_if_the_probe_hangs() {
        let began = tokio::time::Instant::now();
        let (store, beside) = beside_a_probe(|n| if n < 3 { Act::Fail } else { Act::Hang }).await;
        for answer in beside {
            let Err(Error::Generic { source, .. }) = answer else { panic!("{answer:?}") };
            assert!(source.is::<BreakerOpen>(), "{source}");
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        assert_eq!(store.used().refused, 5);
    }

    #[tokio::test]
    async fn reads_for_versions_are_counted_by_their_folders() {
        let (store, _) = store(StoreLimits::default(), |_| Act::Answer).await;
        let files = ["_versions/1.manifest", "_deletions/0-1-2.arrow", "_transactions/0.txn"];
        for file in files.into_iter().chain(["data/a.lance", "_indices/u/index.idx"]) {
            let path = Path::from(format!("t/{file}"));
            store.put(&path, BYTES.into()).await.unwrap();
            store.get_range(&path, 0..1).await.unwrap();
            store.head(&path).await.unwrap();
        }
        assert_eq!((store.used().version_reads, store.used().reads), (3, 10));
    }

    /// Listings fail while the breaker is closed, and are refused once it is open.
    #[tokio::test]
    async fn listings_fail_and_are_refused_like_reads() {
        let limits = StoreLimits {
            breaker_failures: 4,
            breaker_pause: Duration::from_secs(3600),
            ..Default::default()
        };
        let (store, path) = store(limits, |n| if n == 0 { Act::Answer } else { Act::Fail }).await;
        let list = async || store.list(None).collect::<Vec<_>>().await;
        assert!(list().await.iter().all(Result::is_ok));
        for _ in 0..4 {
            assert!(list().await[0].is_err());
        }
        let now = store.used();
        assert_eq!((now.failed, now.refused, now.under_way, now.breakers_open), (4, 0, 0, 1));
        let Err(Error::Generic { source, .. }) = list().await.pop().unwrap() else {
            panic!("it was listed")
        };
        assert!(source.is::<BreakerOpen>(), "{source}");
        assert!(store.list_with_offset(None, &path).next().await.unwrap().is_err());
        // Counted are the five listings that were sent, and the write with which the test begins.
        assert_eq!((store.used().refused, store.used().writes), (2, 6));
    }

    #[tokio::test]
    async fn writes_and_deletes_pass_an_open_breaker() {
        let limits = StoreLimits { breaker_failures: 1, ..Default::default() };
        let (store, path) = store(limits, |n| if n == 0 { Act::Fail } else { Act::Answer }).await;
        assert!(store.get(&path).await.is_err());
        assert_eq!(store.used().breakers_open, 1);
        store.put(&path, BYTES.into()).await.unwrap();
        store.delete(&path).await.unwrap();
        assert_eq!((store.used().writes, store.used().refused), (2, 0));
    }

    #[tokio::test]
    async fn a_request_over_the_limit_waits_for_another_ones_last_byte() {
        let limits = StoreLimits { requests_max: 1, hedge: false, ..Default::default() };
        let (store, path) = store(limits, |_| Act::Answer).await;
        let first = store.get(&path).await.unwrap();
        let mut second = Box::pin(store.get(&path));
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!(store.used().under_way, 1);
        drop(first);
        assert_eq!(second.await.unwrap().bytes().await.unwrap(), BYTES);
        assert_eq!(store.used().under_way, 0);
    }
}
