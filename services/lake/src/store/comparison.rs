//! Measures what the guard adds to the retries, timeouts and limits of Lance and `object_store`, in virtual time.
//! `docs/decisions/store-guards.md` quotes the results.
//!
//! In the first three tests, only the HTTP responses are scripted. Everything above HTTP is the code that nodes run:
//! `object_store`'s client with the settings of [`LakeOptions`], Lance's throttle, and Lance's reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body::Frame;
use http_body_util::StreamBody;
use lance_io::object_reader::CloudObjectReader;
use lance_io::object_store::WrappingObjectStore;
use lance_io::object_store::throttle::{AimdThrottleConfig, AimdThrottledStore};
use lance_io::traits::Reader;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::limit::LimitStore;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, Result, RetryConfig,
};
use stores::StoreLimits;
use tables::TableUri;
use tokio::time::{Instant, sleep, timeout};

use super::fence::Fence;
use super::scripted::{Act, BYTES, Scripted, guarded};
use super::usage::StoreUsage;
use super::wrapper::{Guard, TableGuard};
use crate::options::LakeOptions;

/// The default of `request_timeout`, which `reqwest` enforces. The script stands in for `reqwest`.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The response to an HTTP request.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Answer,
    /// Status 503.
    Unavailable,
    /// Nothing, until the client gives up.
    Hang,
    /// Half of the body, then nothing until the client gives up.
    Stall,
}

#[derive(Clone, Debug)]
struct ScriptedHttp {
    script: fn(usize) -> Reply,
    asked: Arc<AtomicUsize>,
}

impl ScriptedHttp {
    fn new(script: fn(usize) -> Reply) -> Self {
        Self { script, asked: Arc::default() }
    }

    /// The number of HTTP requests so far.
    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// A bucket as Lance makes it (`AwsStoreProvider` of lance-io).
    fn bucket(&self) -> Arc<dyn ObjectStore> {
        let LakeOptions { retries_max, retry_timeout, .. } = LakeOptions::default();
        self.bucket_with(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: retries_max,
            retry_timeout,
        })
    }

    /// A bucket whose requests time out after [`CLIENT_TIMEOUT`]. The client of a node does not retry them, because
    /// `retry_timeout` is shorter. A client measures `retry_timeout` by the real clock, not in virtual time, so this
    /// bucket's client has no retries instead.
    fn bucket_that_times_out(&self) -> Arc<dyn ObjectStore> {
        assert!(LakeOptions::default().retry_timeout < CLIENT_TIMEOUT);
        self.bucket_with(RetryConfig { max_retries: 0, ..RetryConfig::default() })
    }

    fn bucket_with(&self, retry: RetryConfig) -> Arc<dyn ObjectStore> {
        let client = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_region("us-east-1")
            .with_skip_signature(true)
            .with_retry(retry)
            .with_http_connector(self.clone())
            .build()
            .unwrap();
        let throttle = AimdThrottleConfig::default();
        Arc::new(AimdThrottledStore::new(Arc::new(client), throttle).unwrap())
    }
}

impl HttpConnector for ScriptedHttp {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for ScriptedHttp {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let reply = (self.script)(self.asked.fetch_add(1, Ordering::Relaxed));
        if matches!(reply, Reply::Hang) {
            sleep(CLIENT_TIMEOUT).await;
            return Err(timed_out());
        }
        if matches!(reply, Reply::Unavailable) {
            let mut response = HttpResponse::new(Bytes::new().into());
            *response.status_mut() = 503_u16.try_into().unwrap();
            return Ok(response);
        }
        let range = request.headers()["range"].to_str().unwrap();
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        let bytes = Bytes::from_static(&BYTES[first..=last]);
        let len = bytes.len();
        let body = match reply {
            Reply::Stall => {
                let rest = async {
                    sleep(CLIENT_TIMEOUT).await;
                    Err(timed_out())
                };
                let half = stream::iter([Ok(Frame::data(bytes.slice(..len / 2)))]);
                HttpResponseBody::new(StreamBody::new(half.chain(stream::once(rest))))
            }
            _ => bytes.into(),
        };
        let mut response = HttpResponse::new(body);
        *response.status_mut() = 206_u16.try_into().unwrap();
        for (name, value) in [
            ("content-range", format!("bytes {first}-{last}/{}", BYTES.len())),
            ("content-length", len.to_string()),
            ("last-modified", "Mon, 23 Nov 2026 00:00:00 GMT".into()),
            ("etag", "\"1\"".into()),
        ] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        Ok(response)
    }
}

fn timed_out() -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Timeout, "operation timed out".into())
}

/// Reads through Lance's reader.
async fn read(store: &Arc<dyn ObjectStore>) -> Result<Bytes> {
    let (path, size) = (Path::from("x"), Some(BYTES.len()));
    let retries = LakeOptions::default().retries_max;
    let reader = CloudObjectReader::new(Arc::clone(store), path, 4096, size, retries).unwrap();
    reader.get_range(2..8).await
}

fn with_guard(inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    Arc::new(guarded(inner, &StoreLimits::default()))
}

/// Without the guard, each read is 48 HTTP requests: Lance's reader makes four attempts, in each of which Lance's
/// throttle calls the client four times, and the client sends three requests in each call.
#[tokio::test(start_paused = true)]
async fn twenty_reads_of_a_failing_store_are_96_requests_instead_of_960() {
    let http = ScriptedHttp::new(|_| Reply::Unavailable);
    let (alone, began) = (http.bucket(), Instant::now());
    for _ in 0..20 {
        assert!(read(&alone).await.is_err());
    }
    assert_eq!(http.asked(), 20 * 48);
    // The pauses between the 48 requests of a read take at least 4.4 s.
    assert!(began.elapsed() >= 20 * Duration::from_millis(4400), "{:?}", began.elapsed());

    let http = ScriptedHttp::new(|_| Reply::Unavailable);
    let store = with_guard(http.bucket());
    for _ in 0..2 {
        assert!(read(&store).await.is_err());
    }
    let began = Instant::now();
    for _ in 2..20 {
        assert!(read(&store).await.is_err());
    }
    assert_eq!((http.asked(), began.elapsed()), (2 * 48, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn twenty_callers_of_a_hanging_store_wait_48_s_instead_of_120() {
    let http = ScriptedHttp::new(|_| Reply::Hang);
    let (alone, began) = (http.bucket_that_times_out(), Instant::now());
    // Without a deadline, a read takes four timeouts.
    assert!(read(&alone).await.is_err());
    assert_eq!((http.asked(), began.elapsed().as_secs()), (4, 120));

    let guarded = with_guard(http.bucket_that_times_out());
    for (store, expected_s) in [(alone, 120), (guarded, 48)] {
        let began = Instant::now();
        for _ in 0..20 {
            let answer = timeout(Duration::from_secs(6), read(&store)).await;
            assert!(!matches!(answer, Ok(Ok(_))));
        }
        assert_eq!(began.elapsed().as_secs(), expected_s);
    }
}

/// Without the guard, a read whose body stalls once takes longer than `open_timeout` (20 s).
#[tokio::test(start_paused = true)]
async fn a_stalled_body_is_read_again_after_10_s_instead_of_30() {
    let once = |n| if n == 0 { Reply::Stall } else { Reply::Answer };
    let bucket = || ScriptedHttp::new(once).bucket_that_times_out();
    for (store, expected_s) in [(bucket(), 30), (with_guard(bucket()), 10)] {
        let began = Instant::now();
        assert_eq!(read(&store).await.unwrap(), &BYTES[2..8]);
        assert_eq!(began.elapsed().as_secs(), expected_s);
    }

    let bucket = || ScriptedHttp::new(|_| Reply::Stall).bucket_that_times_out();
    for (store, expected_s) in [(bucket(), 90), (with_guard(bucket()), 30)] {
        let began = Instant::now();
        assert!(read(&store).await.is_err());
        assert_eq!(began.elapsed().as_secs(), expected_s);
    }
}

/// One read in 200 takes 2 s, the others 20 to 119 ms.
#[tokio::test(start_paused = true)]
async fn a_hedge_brings_the_last_thousandth_of_reads_from_2_s_below_a_quarter() {
    const READS: usize = 5000;
    let script = |n| match n % 200 {
        150 => Act::Late(Duration::from_secs(2)),
        _ => Act::Late(Duration::from_millis(20 + (n as u64 * 37) % 100)),
    };
    /// The time to the first byte that all but five of the reads stay below.
    async fn p999(store: &dyn ObjectStore, path: &Path) -> Duration {
        let mut took = Vec::new();
        for _ in 0..READS {
            let asked = Instant::now();
            store.get(path).await.unwrap();
            took.push(asked.elapsed());
        }
        took.sort_unstable();
        took[READS - READS / 1000]
    }
    let (path, alone) = (Path::from("x"), Scripted::new(script));
    alone.put(&path, BYTES.into()).await.unwrap();
    assert_eq!(p999(&alone, &path).await.as_secs(), 2);

    let (store, path) = super::scripted::store(StoreLimits::default(), script).await;
    let hedged = p999(&store, &path).await;
    assert!(hedged < Duration::from_millis(250), "{hedged:?}");
    // Two kinds of reads are hedged: about 25 slow ones, and those whose latency equals the hedge's delay. Each of the
    // 100 latencies occurs about 50 times.
    let more = store.used().hedged;
    assert!((1..=100).contains(&more), "{more}");
}

/// `LimitStore` has a semaphore of its own, and each table has a wrapper of its own.
#[tokio::test(start_paused = true)]
async fn a_limit_of_two_requests_holds_for_both_tables_of_a_bucket_instead_of_each() {
    async fn asked_by(tables: [Arc<dyn ObjectStore>; 2], bucket: &Scripted) -> usize {
        for table in &tables {
            for _ in 0..4 {
                let table = Arc::clone(table);
                tokio::spawn(async move { table.get(&Path::from("t/x")).await });
            }
        }
        sleep(Duration::from_millis(1)).await;
        bucket.asked()
    }
    let bucket = || Arc::new(Scripted::new(|_| Act::Hang));
    let library = bucket();
    let table = || Arc::new(LimitStore::new(Arc::clone(&library) as Arc<dyn ObjectStore>, 2));
    assert_eq!(asked_by([table(), table()], &library).await, 4);

    let ours = bucket();
    let limits = StoreLimits { requests_max: 2, ..Default::default() };
    let guard = Arc::new(Guard::new(limits, Arc::new(StoreUsage::default())));
    let uri = TableUri::parse("s3://bucket/t").unwrap();
    let table = || {
        let fence = Fence::new(&uri, []);
        let guard = TableGuard::new(Arc::clone(&guard), Some(uri.clone()), fence);
        guard.wrap("s3$bucket", Arc::clone(&ours) as _)
    };
    assert_eq!(asked_by([table(), table()], &ours).await, 2);
}
