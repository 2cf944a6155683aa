//! Watches the bodies of answers: the circuit breaker counts an answer when its last byte arrives, not when its headers
//! arrive.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{GetResult, GetResultPayload, Result};
use tokio::time::timeout;

use super::guard_error::Stalled;
use super::limiter::{AdmittedRequest, generic};
use super::usage::count;

/// Wraps an answer so that its bytes are counted, and its request's permit is held until the body ends or is dropped,
/// or until no byte arrives for `stall_max`. A body that its reader drops before the end does not count for or against
/// the store, unless the reader had waited for bytes for 5 s or more: then it counts as a failure (`limiter.rs`).
pub fn watched(answer: GetResult, mut request: AdmittedRequest) -> GetResult {
    let GetResult { payload, meta, range, attributes, extensions } = answer;
    let GetResultPayload::Stream(pieces) = payload else {
        request.judge(&Ok(()));
        return GetResult { payload, meta, range, attributes, extensions };
    };
    request.received();
    let (path, expected) = (meta.location.clone(), range.end - range.start);
    let body = Body { pieces, request, path, expected, received: 0 };
    let pieces = stream::unfold(Some(body), async |body| body?.next().await);
    let payload = GetResultPayload::Stream(pieces.boxed());
    GetResult { payload, meta, range, attributes, extensions }
}

struct Body<T> {
    pieces: BoxStream<'static, Result<T>>,
    request: AdmittedRequest,
    path: Path,
    /// The length of the body, in bytes.
    expected: u64,
    /// The number of bytes received so far.
    received: u64,
}

impl<T: AsRef<[u8]>> Body<T> {
    /// Returns the next piece, and the body after it. After an error there is no body, so that the permit is released.
    async fn next(mut self) -> Option<(Result<T>, Option<Self>)> {
        self.request.waits();
        let stall_max = self.request.limiter().stall_max;
        let piece = match timeout(stall_max, self.pieces.next()).await {
            Ok(Some(piece)) => piece,
            Ok(None) => {
                self.request.judge(&Ok(()));
                return None;
            }
            Err(_) => Err(generic(self.stalled())),
        };
        self.request.received();
        let Ok(bytes) = &piece else {
            self.request.judge(&piece);
            return Some((piece, None));
        };
        let bytes = bytes.as_ref().len() as u64;
        count(&self.request.limiter().usage.bytes_read, bytes);
        self.received += bytes;
        // Not every reader polls again after the last byte.
        if self.received == self.expected {
            self.request.judge(&Ok(()));
        }
        Some((piece, Some(self)))
    }

    fn stalled(&self) -> Stalled {
        let limiter = self.request.limiter();
        Stalled {
            store: limiter.store.clone(),
            path: self.path.to_string(),
            received: self.received,
            expected: self.expected,
            waited: limiter.stall_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::poll;
    use lance_io::object_reader::CloudObjectReader;
    use lance_io::traits::Reader;
    use object_store::{Error, ObjectStoreExt};
    use stores::StoreLimits;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::store::breaker::BreakerOpen;
    use crate::store::guarded::GuardedStore;
    use crate::store::scripted::{Act, BYTES, store};

    /// The length of a scripted body's first half, after which it breaks off, stalls or pauses.
    const HALF: u64 = BYTES.len() as u64 / 2;

    fn limits() -> StoreLimits {
        StoreLimits { hedge: false, breaker_failures: 3, ..Default::default() }
    }

    async fn read(store: &GuardedStore, path: &Path) -> Result<usize> {
        Ok(store.get(path).await?.bytes().await?.len())
    }

    /// Reads half of the body and drops the rest.
    async fn read_half(store: &GuardedStore, path: &Path) {
        let mut body = store.get(path).await.unwrap().into_stream();
        assert_eq!(body.next().await.unwrap().unwrap().len() as u64, HALF);
    }

    /// Returns the source of an error if its type is `E`, which is one of the guard's own.
    fn source_as<E: std::error::Error + Clone + 'static>(error: &Error) -> Option<E> {
        match error {
            Error::Generic { source, .. } => source.downcast_ref().cloned(),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_breaks_off_counts_like_a_failed_request() {
        let script = |n| if n < 3 { Act::Break } else { Act::Answer };
        let (store, path) = store(limits(), script).await;
        for n in 0..3 {
            assert_eq!((store.used().failed, store.used().breakers_open), (n, 0));
            let error = read(&store, &path).await.unwrap_err();
            assert!(source_as::<BreakerOpen>(&error).is_none(), "{error}");
        }
        let error = read(&store, &path).await.unwrap_err();
        assert_eq!(source_as::<BreakerOpen>(&error).map(|it| it.failures), Some(3), "{error}");
        let used = store.used();
        assert_eq!((used.failed, used.refused, used.breakers_open, used.under_way), (3, 1, 1, 0));
        assert_eq!(used.bytes_read, 3 * HALF);

        sleep(Duration::from_secs(2)).await;
        let mut probe = store.get(&path).await.unwrap().into_stream();
        assert!(read(&store, &path).await.is_err());
        assert_eq!(store.used().breakers_open, 1, "headers do not close the breaker");
        assert_eq!(probe.next().await.unwrap().unwrap(), BYTES);
        assert_eq!(store.used().breakers_open, 0, "the last byte does");
        assert!(probe.next().await.is_none());
        assert_eq!(store.used().under_way, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_body_counts_as_a_success() {
        let script = |n| if n % 3 < 2 { Act::Break } else { Act::Answer };
        let (store, path) = store(limits(), script).await;
        for n in 0..30 {
            assert_eq!(read(&store, &path).await.is_ok(), n % 3 == 2);
        }
        let used = store.used();
        assert_eq!((used.failed, used.refused, used.breakers_open), (20, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_ends_in_an_error_that_says_what_to_do() {
        let (store, path) = store(limits(), |_| Act::Stall).await;
        for _ in 0..3 {
            let asked = Instant::now();
            let mut body = store.get(&path).await.unwrap().into_stream();
            assert_eq!(body.next().await.unwrap().unwrap().len() as u64, HALF);
            // Time counts only while the reader waits.
            sleep(Duration::from_secs(100)).await;
            let error = body.next().await.unwrap().unwrap_err();
            assert_eq!(store.used().under_way, 0, "the permit is free though the body is alive");
            assert!(body.next().await.is_none());
            assert_eq!(asked.elapsed().as_secs(), 110);
            let expected = Stalled {
                store: "s3://bucket".into(),
                path: path.to_string(),
                received: HALF,
                expected: 2 * HALF,
                waited: Duration::from_secs(10),
            };
            let text = error.to_string();
            assert_eq!(source_as::<Stalled>(&error), Some(expected));
            assert!(
                text.contains("s3://bucket") && text.contains("the network to it hangs"),
                "{text}"
            );
        }
        let error = read(&store, &path).await.unwrap_err();
        assert!(source_as::<BreakerOpen>(&error).is_some(), "{error}");
        assert_eq!((store.used().failed, store.used().breakers_open), (3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_read_to_its_end() {
        let script = |_| Act::Dawdle(Duration::from_millis(9_900));
        let (store, path) = store(limits(), script).await;
        assert_eq!(read(&store, &path).await.unwrap(), BYTES.len());
        assert_eq!(store.used().failed, 0);
    }

    /// Permits are released whether or not the failures open the breaker.
    #[tokio::test(start_paused = true)]
    async fn stalled_bodies_release_their_permits_to_waiting_requests() {
        for breaker_failures in [2, 3] {
            let limits = StoreLimits { requests_max: 2, breaker_failures, ..limits() };
            let script = |n| if n < 2 { Act::Stall } else { Act::Answer };
            let (store, path) = store(limits, script).await;
            let asked = Instant::now();
            let all = [0, 1, 2].map(|_| read(&store, &path));
            let [first, second, third] = futures::future::join_all(all).await.try_into().unwrap();
            assert_eq!(asked.elapsed().as_secs(), 10);
            assert!(source_as::<Stalled>(&first.unwrap_err()).is_some());
            assert!(source_as::<Stalled>(&second.unwrap_err()).is_some());
            if breaker_failures == 2 {
                assert!(source_as::<BreakerOpen>(&third.unwrap_err()).is_some());
            } else {
                assert_eq!(third.unwrap(), BYTES.len());
            }
            assert_eq!((store.used().failed, store.used().under_way), (2, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_a_permit_fails_when_the_breaker_opens() {
        let limits = StoreLimits { requests_max: 2, breaker_failures: 1, ..limits() };
        let script = |n| if n == 0 { Act::Answer } else { Act::Break };
        let (store, path) = store(limits, script).await;
        let (_held, breaks) = (store.get(&path).await.unwrap(), store.get(&path).await.unwrap());
        let mut waiting = [(); 10].map(|()| Box::pin(store.get(&path)));
        for request in &mut waiting {
            assert!(poll!(request).is_pending());
        }
        let asked = Instant::now();
        assert!(breaks.bytes().await.is_err());
        for request in waiting {
            assert!(source_as::<BreakerOpen>(&request.await.unwrap_err()).is_some());
        }
        assert!(asked.elapsed() < Duration::from_millis(10));
        assert_eq!((store.used().under_way, store.used().breakers_open), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_dropped_half_read_counts_neither_way() {
        // A body that is dropped half read is no failure ...
        let (good, path) = store(limits(), |_| Act::Dawdle(Duration::from_secs(1))).await;
        for _ in 0..10 {
            read_half(&good, &path).await;
            // It is no failure either if the reader has waited for the next bytes, for less than 5 s.
            let mut body = good.get(&path).await.unwrap().into_stream();
            body.next().await.unwrap().unwrap();
            assert!(poll!(body.next()).is_pending());
            // It is no failure either if the reader has not polled.
            let unread = good.get(&path).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            drop((body, unread));
        }
        assert_eq!((good.used().failed, good.used().under_way), (0, 0));
        // ... and no success.
        let script = |n| if n % 2 == 0 { Act::Break } else { Act::Dawdle(Duration::ZERO) };
        let (bad, path) = store(limits(), script).await;
        for n in 0..3 {
            assert_eq!((bad.used().failed, bad.used().breakers_open), (n, 0));
            assert!(read(&bad, &path).await.is_err());
            if n < 2 {
                read_half(&bad, &path).await;
            }
        }
        assert_eq!((bad.used().failed, bad.used().breakers_open), (3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_dropped_after_a_long_wait_counts_as_a_failure() {
        let (store, path) = store(limits(), |_| Act::Stall).await;
        let waits = tokio::time::timeout(Duration::from_secs(6), read(&store, &path)).await;
        assert!(waits.is_err());
        assert_eq!((store.used().failed, store.used().under_way), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_dropped_half_read_is_replaced() {
        let script = |n| if n < 3 { Act::Break } else { Act::Dawdle(Duration::ZERO) };
        let (store, path) = store(limits(), script).await;
        for _ in 0..3 {
            assert!(read(&store, &path).await.is_err());
        }
        sleep(Duration::from_secs(2)).await;
        read_half(&store, &path).await;
        assert_eq!(store.used().breakers_open, 1);
        assert_eq!(store.head(&path).await.unwrap().size, BYTES.len() as u64);
        assert_eq!(
            store.used().breakers_open,
            0,
            "an answer without a body counts with its headers"
        );
    }

    /// Uses Lance's own reader, which reads again what a body did not deliver.
    #[tokio::test(start_paused = true)]
    async fn the_missing_part_of_a_body_is_read_again() {
        let script = |n| match n {
            0 => Act::Break,
            1 => Act::Stall,
            _ => Act::Answer,
        };
        let (store, path) = store(limits(), script).await;
        let store = Arc::new(store);
        let size = Some(BYTES.len());
        let reader = CloudObjectReader::new(Arc::clone(&store) as _, path, 4096, size, 2).unwrap();
        assert_eq!(reader.get_range(2..8).await.unwrap(), &BYTES[2..8]);
        let used = store.used();
        assert_eq!((used.reads, used.failed, used.refused, used.under_way), (3, 2, 0, 0));
        assert_eq!(used.bytes_read, 3 + 3 + 6);
    }
}
