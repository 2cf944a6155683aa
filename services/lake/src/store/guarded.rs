//! An object store with a gate before it.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

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

use super::body::watched;
use super::gate::Gate;
use super::streams::guarded;
use super::usage::count;
use super::wrapper::Within;

/// A store as Lance sees it. Reads by range come through [`get_opts`](ObjectStore::get_opts), one by one.
#[derive(Debug)]
pub struct GuardedStore {
    inner: Arc<dyn ObjectStore>,
    gate: Arc<Gate>,
    within: Within,
    /// Connections that reads open belong to it, whoever asked: others' requests go over them later, and must not wait
    /// for threads that step back. One that a broken body opens anew is its reader's.
    runtime: Option<Handle>,
}

impl GuardedStore {
    /// The store behind `gate`, `within` what a table may ask it for; connections belong to the runtime that this is
    /// called within.
    pub fn new(inner: Arc<dyn ObjectStore>, gate: Arc<Gate>, within: Within) -> Self {
        Self { inner, gate, within, runtime: Handle::try_current().ok() }
    }

    /// The counters of its gate, at list prices.
    #[cfg(test)]
    pub fn used(&self) -> wire::fetch::StoreUse {
        self.gate.usage.at(&tables::StorePrices::default())
    }

    async fn ask(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(runtime) = &self.runtime else {
            return self.inner.get_opts(location, options).await;
        };
        let (inner, location) = (Arc::clone(&self.inner), location.clone());
        // Not only within it: a thread that looks a name up would inherit the asker's priority, and keep it. Dropped, the
        // request ends.
        let mut asked = JoinSet::new();
        asked.spawn_on(async move { inner.get_opts(&location, options).await }, runtime);
        asked.join_next().await.expect("one was asked")?
    }

    fn listing(
        &self,
        prefix: Option<&Path>,
        inner: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(outside) = self.within.check(prefix.unwrap_or(&Path::default())) {
            return futures::stream::once(async { Err(outside) }).boxed();
        }
        count(&self.gate.usage.writes, 1);
        let gate = Arc::clone(&self.gate);
        guarded(async move { gate.enter().await }, inner)
    }

    /// The first answer of one request or, if it is late, two.
    async fn first_answer(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let usage = &self.gate.usage;
        let asked = Instant::now();
        count(&usage.reads, 1);
        let first = Box::pin(self.ask(location, options.clone()));
        let Some(wait) = self.gate.hedge_after() else { return self.timed(asked, first.await) };
        let first = match select(first, Box::pin(tokio::time::sleep(wait))).await {
            Either::Left((answer, _)) => return self.timed(asked, answer),
            Either::Right(((), first)) => first,
        };
        if !self.gate.may_hedge() {
            return self.timed(asked, first.await);
        }
        count(&usage.reads, 1);
        count(&usage.hedged, 1);
        let second = Box::pin(self.ask(location, options));
        // One that fails leaves the other to answer.
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
            self.gate.read_took(asked.elapsed());
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
        self.within.check(location)?;
        let mut pass = self.gate.enter().await?;
        count(&self.gate.usage.writes, 1);
        count(&self.gate.usage.bytes_written, payload.content_length() as u64);
        let put = self.inner.put_opts(location, payload, options).await;
        pass.judge(&put);
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.within.check(location)?;
        let mut pass = self.gate.enter().await?;
        count(&self.gate.usage.writes, 1);
        let upload = self.inner.put_multipart_opts(location, options).await;
        pass.judge(&upload);
        let gate = Arc::clone(&self.gate);
        Ok(Box::new(GuardedUpload { inner: upload?, gate }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.within.check(location)?;
        let mut pass = self.gate.enter().await?;
        let has_body = !options.head;
        match self.first_answer(location, options).await {
            Ok(answer) if has_body => Ok(watched(answer, pass)),
            answer => {
                pass.judge(&answer);
                answer
            }
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        // Fed by a listing of this store, mostly, which has the place.
        let (gate, within) = (Arc::clone(&self.gate), self.within.clone());
        let locations = locations.and_then(move |location| {
            std::future::ready(within.check(&location).map(|()| location))
        });
        guarded(async move { gate.enter_beside() }, self.inner.delete_stream(locations.boxed()))
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
        self.within.check(prefix.unwrap_or(&Path::default()))?;
        let mut pass = self.gate.enter().await?;
        count(&self.gate.usage.writes, 1);
        let list = self.inner.list_with_delimiter(prefix).await;
        pass.judge(&list);
        list
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.within.check(from)?;
        self.within.check(to)?;
        let mut pass = self.gate.enter().await?;
        count(&self.gate.usage.writes, 1);
        let copied = self.inner.copy_opts(from, to, options).await;
        pass.judge(&copied);
        copied
    }
}

/// An upload in parts, each of which is a request.
#[derive(Debug)]
struct GuardedUpload {
    inner: Box<dyn MultipartUpload>,
    gate: Arc<Gate>,
}

#[async_trait]
impl MultipartUpload for GuardedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let gate = Arc::clone(&self.gate);
        let bytes = data.content_length() as u64;
        let part = self.inner.put_part(data);
        Box::pin(async move {
            let mut pass = gate.enter().await?;
            count(&gate.usage.writes, 1);
            count(&gate.usage.bytes_written, bytes);
            let put = part.await;
            pass.judge(&put);
            put
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut pass = self.gate.enter().await?;
        count(&self.gate.usage.writes, 1);
        let completed = self.inner.complete().await;
        pass.judge(&completed);
        completed
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::{Error, ObjectStoreExt};
    use wire::fetch::StoreUse;

    use super::*;
    use crate::store::breaker::LetBe;
    use crate::store::scripted::{Act, BYTES, Scripted, store};
    use crate::store::usage::StoreUsage;
    use tables::StoreLimits;
    use tokio::runtime::Builder;

    #[tokio::test]
    async fn what_comes_and_goes_is_counted() {
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
    fn reads_are_asked_by_the_runtime_that_opened_the_store() {
        let opened = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let asked = Builder::new_current_thread().enable_all().build().unwrap();
        let inner = Arc::new(Scripted::new(|_| Act::Answer));
        let store = opened.block_on(async {
            let gate =
                Gate::new("scripted", &StoreLimits::default(), Arc::new(StoreUsage::default()));
            let store =
                GuardedStore::new(Arc::clone(&inner) as _, Arc::new(gate), Within::everything());
            store.put(&Path::from("x"), BYTES.into()).await.unwrap();
            store
        });
        let read = asked.block_on(store.get_range(&Path::from("x"), 0..4)).unwrap();
        assert_eq!(read, &BYTES[..4]);
        assert_eq!(inner.within(), Some(opened.handle().id()));
    }

    #[tokio::test]
    async fn a_read_that_hangs_is_answered_by_its_second() {
        // A hedge needs the tail of a hundred reads before, and comes at most once in twenty.
        let (store, path) =
            store(StoreLimits::default(), |n| if n == 150 { Act::Hang } else { Act::Answer }).await;
        for n in 0..200 {
            assert_eq!(store.get_range(&path, 0..4).await.unwrap(), &BYTES[..4], "{n}");
        }
        let used = store.used();
        // More where the machine was slow.
        assert!((1..=10).contains(&used.hedges_won), "{used:?}");
        assert_eq!((used.reads, used.failed, used.under_way), (200 + used.hedged, 0, 0));
    }

    #[tokio::test]
    async fn a_store_that_keeps_failing_is_let_be_until_it_answers() {
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
                Err(Error::Generic { source, .. }) if source.is::<LetBe>() => {
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

    /// Three failures, then a probe that does as it is told; five more are asked beside it.
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
    async fn what_is_asked_beside_a_probe_waits_for_what_comes_of_it() {
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
    async fn what_is_asked_beside_a_probe_that_hangs_is_refused() {
        let began = tokio::time::Instant::now();
        let (store, beside) = beside_a_probe(|n| if n < 3 { Act::Fail } else { Act::Hang }).await;
        for answer in beside {
            let Err(Error::Generic { source, .. }) = answer else { panic!("{answer:?}") };
            assert!(source.is::<LetBe>(), "{source}");
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        assert_eq!(store.used().refused, 5);
    }

    #[tokio::test]
    async fn what_a_listing_finds_is_deleted_with_one_place_for_all() {
        let limits = StoreLimits { requests_max: 1, ..Default::default() };
        let (store, path) = store(limits, |_| Act::Answer).await;
        let found = store.list(None).map_ok(|it| it.location).boxed();
        let deleted: Vec<_> = store.delete_stream(found).try_collect().await.unwrap();
        assert_eq!(deleted, [path]);
    }

    /// Each by itself, and both as probes.
    #[tokio::test]
    async fn listings_and_deletes_fail_and_are_refused_like_reads() {
        let limits = StoreLimits {
            breaker_failures: 4,
            breaker_pause: Duration::from_secs(3600),
            ..Default::default()
        };
        let (store, path) = store(limits, |n| if n < 2 { Act::Answer } else { Act::Fail }).await;
        let list = async || store.list(None).collect::<Vec<_>>().await;
        let delete = async || {
            let paths = futures::stream::iter([Ok(path.clone())]).boxed();
            store.delete_stream(paths).collect::<Vec<_>>().await
        };
        assert!(list().await.iter().all(Result::is_ok));
        assert!(delete().await.iter().all(Result::is_ok));
        for _ in 0..2 {
            assert!(list().await[0].is_err());
            assert!(delete().await[0].is_err());
        }
        let now = store.used();
        assert_eq!((now.failed, now.refused, now.under_way, now.breakers_open), (4, 0, 0, 1));
        for answer in
            [list().await.pop().unwrap().map(drop), delete().await.pop().unwrap().map(drop)]
        {
            let Err(Error::Generic { source, .. }) = answer else { panic!("{answer:?}") };
            assert!(source.is::<LetBe>(), "{source}");
        }
        assert!(store.list_with_offset(None, &path).next().await.unwrap().is_err());
        assert_eq!(store.used().refused, 3);
    }

    #[tokio::test]
    async fn one_request_too_many_waits_until_another_has_its_last_byte() {
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
