//! The bytes of an answer, which the store is judged by: headers alone are none.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{GetResult, GetResultPayload, Result};
use tokio::time::timeout;

use super::gate::{Pass, generic};
use super::trouble::Stalled;
use super::usage::count;

/// An answer that keeps its request's place until its last byte, or until none comes for `store.stall_max`; and counts
/// them. One that its reader drops before says nothing of the store, unless the reader waited for long.
pub fn watched(answer: GetResult, mut pass: Pass) -> GetResult {
    let GetResult { payload, meta, range, attributes, extensions } = answer;
    let GetResultPayload::Stream(pieces) = payload else {
        pass.judge(&Ok(()));
        return GetResult { payload, meta, range, attributes, extensions };
    };
    pass.came();
    let (path, expected) = (meta.location.clone(), range.end - range.start);
    let body = Body { pieces, pass, path, expected, received: 0 };
    let pieces = stream::unfold(Some(body), async |body| body?.next().await);
    let payload = GetResultPayload::Stream(pieces.boxed());
    GetResult { payload, meta, range, attributes, extensions }
}

struct Body<T> {
    pieces: BoxStream<'static, Result<T>>,
    pass: Pass,
    path: Path,
    /// In bytes, like what was received.
    expected: u64,
    received: u64,
}

impl<T: AsRef<[u8]>> Body<T> {
    /// The next piece, and what there is after it: nothing after an error, which gives the place back.
    async fn next(mut self) -> Option<(Result<T>, Option<Self>)> {
        self.pass.waits();
        let stall_max = self.pass.gate().stall_max;
        let piece = match timeout(stall_max, self.pieces.next()).await {
            Ok(Some(piece)) => piece,
            Ok(None) => {
                self.pass.judge(&Ok(()));
                return None;
            }
            Err(_) => Err(generic(self.stalled())),
        };
        self.pass.came();
        let Ok(bytes) = &piece else {
            self.pass.judge(&piece);
            return Some((piece, None));
        };
        let bytes = bytes.as_ref().len() as u64;
        count(&self.pass.gate().usage.bytes_read, bytes);
        self.received += bytes;
        // Not every reader looks for more behind the last byte.
        if self.received == self.expected {
            self.pass.judge(&Ok(()));
        }
        Some((piece, Some(self)))
    }

    fn stalled(&self) -> Stalled {
        let gate = self.pass.gate();
        Stalled {
            store: gate.store.clone(),
            path: self.path.to_string(),
            received: self.received,
            expected: self.expected,
            waited: gate.stall_max,
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
    use object_store::{Error, ObjectStore, ObjectStoreExt};
    use tables::StoreLimits;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::store::breaker::LetBe;
    use crate::store::guarded::GuardedStore;
    use crate::store::scripted::{Act, BYTES, store};
    use crate::store::trouble::NoPlace;

    /// Bytes of the object that come before its body fails.
    const HALF: u64 = BYTES.len() as u64 / 2;

    fn limits() -> StoreLimits {
        StoreLimits { hedge: false, breaker_failures: 3, ..Default::default() }
    }

    async fn read(store: &GuardedStore, path: &Path) -> Result<usize> {
        Ok(store.get(path).await?.bytes().await?.len())
    }

    /// Half of its body, and then nobody wants the rest.
    async fn read_half(store: &GuardedStore, path: &Path) {
        let mut body = store.get(path).await.unwrap().into_stream();
        assert_eq!(body.next().await.unwrap().unwrap().len() as u64, HALF);
    }

    /// The guard's own words, if an error has them.
    fn said<E: std::error::Error + Clone + 'static>(error: &Error) -> Option<E> {
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
            assert!(said::<LetBe>(&error).is_none(), "{error}");
        }
        let error = read(&store, &path).await.unwrap_err();
        assert_eq!(said::<LetBe>(&error).map(|it| it.failures), Some(3), "{error}");
        let used = store.used();
        assert_eq!((used.failed, used.refused, used.breakers_open, used.under_way), (3, 1, 1, 0));
        assert_eq!(used.bytes_read, 3 * HALF);

        sleep(Duration::from_secs(2)).await;
        let mut probe = store.get(&path).await.unwrap().into_stream();
        assert!(read(&store, &path).await.is_err());
        assert_eq!(store.used().breakers_open, 1, "headers close nothing");
        assert_eq!(probe.next().await.unwrap().unwrap(), BYTES);
        assert_eq!(store.used().breakers_open, 0, "the last byte does");
        assert!(probe.next().await.is_none());
        assert_eq!(store.used().under_way, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_ends_well_is_a_success() {
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
            // As long as nobody waits for more nothing is late.
            sleep(Duration::from_secs(100)).await;
            let error = body.next().await.unwrap().unwrap_err();
            assert_eq!(store.used().under_way, 0, "its place is free though the body is kept");
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
            assert_eq!(said::<Stalled>(&error), Some(expected));
            assert!(text.contains("s3://bucket") && text.contains("store.stall_max"), "{text}");
        }
        let error = read(&store, &path).await.unwrap_err();
        assert!(said::<LetBe>(&error).is_some(), "{error}");
        assert_eq!((store.used().failed, store.used().breakers_open), (3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_slow_is_let_come() {
        let script = |_| Act::Dawdle(Duration::from_millis(9_900));
        let (store, path) = store(limits(), script).await;
        assert_eq!(read(&store, &path).await.unwrap(), BYTES.len());
        assert_eq!(store.used().failed, 0);
    }

    /// Once all have failed the breaker may have opened, or not.
    #[tokio::test(start_paused = true)]
    async fn places_that_stalled_bodies_take_come_free_for_those_who_wait() {
        for breaker_failures in [2, 3] {
            let limits = StoreLimits { requests_max: 2, breaker_failures, ..limits() };
            let script = |n| if n < 2 { Act::Stall } else { Act::Answer };
            let (store, path) = store(limits, script).await;
            let asked = Instant::now();
            let all = [0, 1, 2].map(|_| read(&store, &path));
            let [first, second, third] = futures::future::join_all(all).await.try_into().unwrap();
            assert_eq!(asked.elapsed().as_secs(), 10);
            assert!(said::<Stalled>(&first.unwrap_err()).is_some());
            assert!(said::<Stalled>(&second.unwrap_err()).is_some());
            if breaker_failures == 2 {
                assert!(said::<LetBe>(&third.unwrap_err()).is_some());
            } else {
                assert_eq!(third.unwrap(), BYTES.len());
            }
            assert_eq!((store.used().failed, store.used().under_way), (2, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_place_hears_that_the_store_is_let_be() {
        let limits = StoreLimits { requests_max: 1, breaker_failures: 1, ..limits() };
        let script = |n| if n == 0 { Act::Answer } else { Act::Fail };
        let (store, path) = store(limits, script).await;
        let _held = store.get(&path).await.unwrap();
        let mut waits = Box::pin(store.get(&path));
        assert!(poll!(&mut waits).is_pending());
        // Deletes take no place.
        let paths = stream::iter([Ok(path.clone())]).boxed();
        assert!(store.delete_stream(paths).next().await.unwrap().is_err());
        let asked = Instant::now();
        assert!(said::<LetBe>(&waits.await.unwrap_err()).is_some());
        assert!(asked.elapsed() < Duration::from_millis(10));
        assert_eq!((store.used().under_way, store.used().breakers_open), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_places_that_are_not_given_back() {
        let limits = StoreLimits { requests_max: 2, ..limits() };
        let (store, path) = store(limits, |_| Act::Answer).await;
        let asked = Instant::now();
        let (first, second) = (store.get(&path).await.unwrap(), store.get(&path).await.unwrap());
        let give_one_back = async {
            sleep(Duration::from_secs(50)).await;
            drop(first);
        };
        // The one who gets it keeps it.
        let (third, fourth, ()) = tokio::join!(store.get(&path), store.get(&path), give_one_back);
        let _third = third.unwrap();
        let error = fourth.unwrap_err();
        assert_eq!(asked.elapsed().as_secs(), 110);
        let expected =
            NoPlace { store: "s3://bucket".into(), places: 2, waited: Duration::from_secs(60) };
        let text = error.to_string();
        assert_eq!(said::<NoPlace>(&error), Some(expected));
        assert!(text.contains("s3://bucket") && text.contains("store.wait_max"), "{text}");
        // Nor is it waited as long again.
        let error = store.get(&path).await.unwrap_err();
        assert!(said::<NoPlace>(&error).is_some() && asked.elapsed().as_secs() == 110, "{error}");
        let used = store.used();
        assert_eq!((used.failed, used.refused, used.breakers_open, used.under_way), (0, 2, 0, 2));
        drop(second);
        assert_eq!(read(&store, &path).await.unwrap(), BYTES.len());
    }

    /// Places that nobody has taken for long are no sign of a fault.
    #[tokio::test(start_paused = true)]
    async fn a_wait_begins_when_the_last_place_is_taken() {
        let limits = StoreLimits { requests_max: 1, ..limits() };
        let (store, path) = store(limits, |_| Act::Answer).await;
        sleep(Duration::from_secs(3600)).await;
        let held = store.get(&path).await.unwrap();
        let give_it_back = async {
            sleep(Duration::from_secs(59)).await;
            drop(held);
        };
        let (next, ()) = tokio::join!(store.get(&path), give_it_back);
        assert_eq!(next.unwrap().bytes().await.unwrap(), BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_dropped_half_read_says_nothing() {
        // Neither a failure ...
        let (good, path) = store(limits(), |_| Act::Dawdle(Duration::from_secs(1))).await;
        for _ in 0..10 {
            read_half(&good, &path).await;
            // Not even while it waits, unless that takes long.
            let mut body = good.get(&path).await.unwrap().into_stream();
            body.next().await.unwrap().unwrap();
            assert!(poll!(body.next()).is_pending());
            // Nor however long nobody looks.
            let unread = good.get(&path).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            drop((body, unread));
        }
        assert_eq!((good.used().failed, good.used().under_way), (0, 0));
        // ... nor a success.
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
    async fn a_reader_that_waited_for_long_has_lost_patience_with_the_store() {
        let (store, path) = store(limits(), |_| Act::Stall).await;
        let waits = tokio::time::timeout(Duration::from_secs(6), read(&store, &path)).await;
        assert!(waits.is_err());
        assert_eq!((store.used().failed, store.used().under_way), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_dropped_half_read_makes_way_for_another() {
        let script = |n| if n < 3 { Act::Break } else { Act::Dawdle(Duration::ZERO) };
        let (store, path) = store(limits(), script).await;
        for _ in 0..3 {
            assert!(read(&store, &path).await.is_err());
        }
        sleep(Duration::from_secs(2)).await;
        read_half(&store, &path).await;
        assert_eq!(store.used().breakers_open, 1);
        assert_eq!(store.head(&path).await.unwrap().size, BYTES.len() as u64);
        assert_eq!(store.used().breakers_open, 0, "what has no body is answered with its headers");
    }

    /// Lance's own reader, which asks anew for what a body did not bring.
    #[tokio::test(start_paused = true)]
    async fn what_a_body_did_not_bring_is_read_again() {
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
