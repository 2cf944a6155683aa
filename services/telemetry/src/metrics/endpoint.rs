//! An HTTP endpoint: `/metrics` for Prometheus, `/live` and `/ready` for probes by a kubelet or a load balancer; or
//! probes only.
//!
//! Each endpoint has a thread of its own, so that it answers probes whatever the node's cores and the other endpoint
//! do. Its connections can't be used up: if there are too many, one of them is closed for a new one, preferably an idle
//! one. Metrics are collected on the node's background threads, for at most [`SCRAPES_MAX`] requests at a time.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;
use tracing::debug;

use super::format::{Format, wanted};
use super::liveness::{Life, Liveness};
use super::prometheus::{to_protobuf, to_text};
use super::samples::Samples;
use super::source::Source;
use crate::resource::Identity;

/// The maximum number of connections: enough for a few Prometheus servers, probes and people.
const CONNECTIONS_MAX: usize = 64;

/// The maximum number of concurrent collections of the metrics. Further ones wait. Each collection asks every core for
/// its counters.
const SCRAPES_MAX: usize = 2;

/// The maximum time for the headers of a request, for the pause between two requests, and for collecting the metrics.
/// Prometheus's scrapes have the same timeout by default.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum age of a connection: long enough for several scrapes.
const CONNECTION_MAX: Duration = Duration::from_secs(300);

/// The maximum number of requests on one connection. The client must then connect again, so that other clients get a
/// turn.
const REQUESTS_MAX: u32 = 100;

/// The time after which a new connection without a request counts as idle. Probes send their request at once.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a failed accept. The usual reason is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The paths that an endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// `/metrics`, `/live` and `/ready`.
    MetricsAndProbes,
    /// `/live` and `/ready`.
    Probes,
}

impl Paths {
    fn has(self, path: &str) -> bool {
        matches!(path, "/live" | "/ready") || (path == "/metrics" && self == Self::MetricsAndProbes)
    }

    /// Returns the answer to a path that is not served.
    fn not_found(self) -> &'static str {
        match self {
            Self::MetricsAndProbes => {
                "the metrics are at /metrics, the node's health at /live and /ready\n"
            }
            Self::Probes => "the node's health is at /live and /ready\n",
        }
    }

    fn thread_name(self) -> &'static str {
        match self {
            Self::MetricsAndProbes => "bireme-metrics",
            Self::Probes => "bireme-probes",
        }
    }
}

/// The thread that answers requests. It ends when this is dropped.
#[derive(Debug)]
pub struct Endpoint {
    ends: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts to answer on a thread of its own. Metrics are collected on `background`.
///
/// # Errors
/// An I/O error if the thread or its runtime can't be created.
pub fn serve(
    listener: std::net::TcpListener,
    paths: Paths,
    source: Arc<impl Source>,
    identity: Identity,
    background: Handle,
) -> std::io::Result<Endpoint> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ends, ended) = oneshot::channel();
    let work = move || {
        let answering = async move {
            let answers = Rc::new(Answers {
                paths,
                liveness: Liveness::new(Arc::clone(&source)),
                source,
                identity,
                scrapes: Arc::new(Semaphore::new(SCRAPES_MAX)),
                background,
            });
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, answers, ended).await,
                Err(error) => tracing::error!(%error, ?paths, "metrics or probes are not answered"),
            }
        };
        LocalSet::new().block_on(&runtime, answering);
    };
    let thread = std::thread::Builder::new().name(paths.thread_name().into()).spawn(work)?;
    Ok(Endpoint { ends: Some(ends), thread: Some(thread) })
}

async fn accept<S: Source>(
    listener: TcpListener,
    answers: Rc<Answers<S>>,
    mut ended: oneshot::Receiver<()>,
) {
    let connections = Rc::<RefCell<Connections>>::default();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut ended => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "a connection to the endpoint of metrics or probes was not accepted");
                connections.borrow_mut().close_one();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.borrow().0.len() >= CONNECTIONS_MAX {
            connections.borrow_mut().close_one();
        }
        let state = Rc::new(Cell::new(ConnectionState::New(Instant::now())));
        let (answers, of_all) = (Rc::clone(&answers), Rc::clone(&connections));
        let of_task = Rc::clone(&state);
        let task = tokio::task::spawn_local(async move {
            answers.attend(stream, &of_task).await;
            of_all.borrow_mut().0.retain(|it| !Rc::ptr_eq(&it.state, &of_task));
        });
        let connection = Connection { peer: peer.ip(), state, task: task.abort_handle() };
        connections.borrow_mut().0.push(connection);
        // More connections may wait than may be open. Each gets a turn to read its request. Otherwise a probe among
        // them would be closed for the next ones before the endpoint knows that it is a probe.
        tokio::task::yield_now().await;
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections(Vec<Connection>);

struct Connection {
    peer: IpAddr,
    state: Rc<Cell<ConnectionState>>,
    task: AbortHandle,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug)]
enum ConnectionState {
    /// The connection was accepted at this time and has not sent a request yet.
    New(Instant),
    /// The connection waits for the answer to a probe.
    Probes,
    /// The connection waits for metrics.
    Scrapes,
    /// The last request of the connection was answered.
    Idle,
}

impl ConnectionState {
    /// Returns the rank of the connection. Connections of the lowest rank are closed first.
    fn rank(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::New(since) if since.elapsed() > FIRST_REQUEST_TIMEOUT => 0,
            Self::Scrapes => 1,
            Self::New(_) => 2,
            Self::Probes => 3,
        }
    }
}

impl Connections {
    /// Closes a connection for a new one: an idle one if there is one, else one that waits for metrics, else a new one,
    /// else one that waits for the answer to a probe. If there are several such connections, closes the oldest one of
    /// the address that has the most connections. Does nothing if no connection is open.
    fn close_one(&mut self) {
        let of = |peer: IpAddr| self.0.iter().filter(|it| it.peer == peer).count();
        let rank = |at: &usize| {
            let connection = &self.0[*at];
            (connection.state.get().rank(), std::cmp::Reverse(of(connection.peer)), *at)
        };
        if let Some(at) = (0..self.0.len()).min_by_key(rank) {
            self.0.remove(at).task.abort();
        }
    }
}

/// The parts of the endpoint that answer requests.
struct Answers<S> {
    paths: Paths,
    source: Arc<S>,
    liveness: Liveness<S>,
    identity: Identity,
    scrapes: Arc<Semaphore>,
    background: Handle,
}

impl<S: Source> Answers<S> {
    async fn attend(&self, stream: TcpStream, state: &Cell<ConnectionState>) {
        let requests = Cell::new(0);
        let answer = service_fn(|request: Request<Incoming>| {
            requests.set(requests.get() + 1);
            let is_last = requests.get() >= REQUESTS_MAX;
            let is_scrape = request.uri().path() == "/metrics";
            state.set(if is_scrape { ConnectionState::Scrapes } else { ConnectionState::Probes });
            async move {
                let mut response = self.answer(request).await;
                state.set(ConnectionState::Idle);
                if is_last {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(TIMEOUT)
            .serve_connection(TokioIo::new(stream), answer);
        match tokio::time::timeout(CONNECTION_MAX, serving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                debug!(%error, "a connection to the endpoint of metrics or probes failed")
            }
            Err(_) => {
                debug!("a connection to the endpoint of metrics or probes reached its maximum age")
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !self.paths.has(path) {
            return plain(StatusCode::NOT_FOUND, self.paths.not_found().into());
        }
        if request.method() != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        match path {
            "/live" => match self.liveness.ask().await {
                Life::Alive => plain(StatusCode::OK, "live\n".into()),
                Life::Ended => plain(StatusCode::SERVICE_UNAVAILABLE, "a core has ended\n".into()),
                Life::Stuck(time) => plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("a core has not answered for {} s\n", time.as_secs()),
                ),
            },
            "/ready" if self.source.is_ready() => plain(StatusCode::OK, "ready\n".into()),
            "/ready" => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".into()),
            _ => self.scrape(request.headers()).await,
        }
    }

    async fn scrape(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let (source, identity) = (Arc::clone(&self.source), self.identity.clone());
        let (scrapes, format) = (Arc::clone(&self.scrapes), wanted(headers));
        let scraping = async move {
            let permit = scrapes.acquire_owned().await;
            let response = encode(source.collect().await, format, &identity);
            drop(permit);
            response
        };
        // After a timeout, the collection must not go on in the background.
        let mut scraping = AbortOnDrop(self.background.spawn(scraping));
        match tokio::time::timeout(TIMEOUT, &mut scraping.0).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => plain(StatusCode::SERVICE_UNAVAILABLE, "the node is stopping\n".into()),
            Err(_) => {
                let text = format!("the metrics were not collected within {TIMEOUT:?}\n");
                plain(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

fn encode(samples: Samples, format: Format, identity: &Identity) -> Response<Full<Bytes>> {
    let samples = Arc::new(samples);
    let encoded = match format {
        Format::Protobuf => {
            to_protobuf(samples, identity).map(|bytes| (PROTOBUF, Bytes::from(bytes)))
        }
        Format::Text => to_text(samples, identity).map(|text| (TEXT, Bytes::from(text))),
    };
    match encoded {
        Ok((content_type, body)) => {
            let mut response = Response::new(Full::from(body));
            let content_type = HeaderValue::from_static(content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Err(_) => {
            let text = "the metrics can't be written; this is a defect\n";
            plain(StatusCode::INTERNAL_SERVER_ERROR, text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    /// A node whose cores run.
    struct Running;

    impl Source for Running {
        async fn collect(&self) -> Samples {
            Samples::default()
        }

        async fn is_alive(&self) -> bool {
            true
        }

        fn is_ready(&self) -> bool {
            true
        }
    }

    fn request(to: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        stream
    }

    #[test]
    fn a_probe_is_answered_though_more_scrapes_wait_behind_it_than_may_be_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut probe = request(address, "/live");
        let scrapes: Vec<_> =
            (0..CONNECTIONS_MAX + 32).map(|_| request(address, "/metrics")).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let identity = Identity { service: "bireme-io", node: "node".into(), version: "1" };
        let (paths, background) = (Paths::MetricsAndProbes, runtime.handle().clone());
        let _endpoint = serve(listener, paths, Arc::new(Running), identity, background).unwrap();
        let mut status = [0; 15];
        probe.read_exact(&mut status).expect("the probe was closed for scrapes");
        assert_eq!(&status, b"HTTP/1.1 200 OK");
        drop(scrapes);
    }
}
