//! Serves the connections of one core with hyper: HTTP/2, and HTTP/1.1 on nodes that have plain calls.
//!
//! A connection ends gracefully (GOAWAY, then its streams) when the node stops, when it reaches its maximum age, when
//! one of its certificates expires or is no longer trusted, when the node's certificate was replaced, when the reason
//! for which one of its streams was admitted no longer holds, and when it has had no stream for a long time. It ends at
//! once when another connection needs its slot or its descriptor, or needs memory that this one holds while it is
//! stalled.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use traffic::{TrafficMemory, connection_bytes, window_bytes};

use crate::Carrier;
use crate::connection::Connection;
use crate::requests::{CallRules, PlainCalls, Requests};
use crate::slots::ConnectionSlot;

/// The time that an evicted connection gets to send its GOAWAY. Writing a frame to the socket takes microseconds,
/// unless the client does not read.
const EVICTION_GRACE: Duration = Duration::from_millis(10);

/// The time that a client without streams gets to close its side of a connection that is to end.
const IDLE_GRACE: Duration = Duration::from_secs(5);

/// The interval at which a core looks for requests that take too long to arrive, and checks whether a peak of its
/// callers' memory has passed and whether its connections are still trusted.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of requests of a connection that its client has cancelled and that the core has not looked at
/// yet. One more ends the connection. h2's default of 20 is too small: a busy core may not get to 20 requests within
/// the shortest deadlines of honest callers. Each request holds about 1 KiB.
const CANCELLED_MAX: usize = 1024;

/// The time that a client gets to send the headers of its next request over HTTP/1.1, counted from the last answer on
/// the connection, or before any answer from the connection's start.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum size in bytes of the headers of a request over HTTP/1.1, and of the part of its body that hyper reads ahead.
/// It is as large as the smallest HTTP/2 window, for which each connection is charged memory.
const HTTP1_BUFFER_BYTES: usize = 64 << 10;

/// The options of [`serve`].
#[derive(Clone)]
pub struct ServeOptions {
    /// The memory that the core's callers may hold.
    pub memory: Arc<TrafficMemory>,
    /// The rules of methods.
    pub rules: Arc<CallRules>,
    /// The node's plain calls. If there are any, clients may also speak HTTP/1.1.
    pub plain: Option<PlainCalls>,
    /// The size of the largest HTTP/2 frame, in bytes. `None` for the smallest maximum that the standard allows.
    pub frame_bytes: Option<u32>,
    /// The maximum number of concurrent streams of one connection.
    pub streams_max: u32,
    /// Returns freed memory to the system. Called on a thread of its own after a peak. `None` in a simulation, whose
    /// clock must not wait for threads.
    pub give_back: Option<fn()>,
    /// The interval of HTTP/2 keep-alive pings. `None` for no pings.
    pub keep_alive: Option<Duration>,
}

/// A connection that is attached to the runtime of the core that serves it.
pub struct Served {
    /// The byte stream.
    pub carrier: Box<dyn Carrier>,
    /// The connection's streams and limits.
    pub connection: Arc<Connection>,
    /// The connection's slot. `None` in a simulation.
    pub slot: Option<ConnectionSlot>,
}

/// Serves the connections received over `connections` with `routes` until `stopping` completes, and then until all
/// connections and their streams have ended. Nothing is held after that.
pub async fn serve(
    mut connections: mpsc::UnboundedReceiver<Served>,
    routes: Routes,
    options: ServeOptions,
    stopping: impl Future<Output = ()>,
) {
    let routes = routes.prepare();
    let window = window_bytes(options.memory.max());
    // Each connection and each stream keeps a sender until it has ended.
    let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
    let mut http = auto::Builder::new(StreamTasks { open: open.clone() });
    if options.plain.is_none() {
        http = http.http2_only();
    }
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME_MAX)
        .max_buf_size(HTTP1_BUFFER_BYTES);
    http.http2()
        .timer(TokioTimer::new())
        // No client needs the Date header, and it would make every run of a simulation different.
        .auto_date_header(false)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .max_frame_size(options.frame_bytes)
        .max_concurrent_streams(options.streams_max)
        .max_pending_accept_reset_streams(CANCELLED_MAX)
        .keep_alive_interval(options.keep_alive);
    // A token wakes its waiters in the order in which they began to wait, so a simulation is reproducible. A `watch`
    // channel would wake them in random order.
    let stop = CancellationToken::new();
    let mut stopping = pin!(stopping);
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    let mut served_now: Vec<Weak<Connection>> = Vec::new();
    loop {
        let served = tokio::select! {
            biased;
            () = &mut stopping => break,
            _ = checks.tick() => {
                options.memory.end_late();
                if let Some(give_back) = options.give_back
                    && options.memory.has_passed_a_peak()
                {
                    drop(tokio::task::spawn_blocking(give_back));
                }
                check_all(&mut served_now);
                continue;
            }
            served = connections.recv() => match served {
                Some(served) => served,
                None => break stopping.await,
            },
        };
        let Served { carrier, connection, slot } = served;
        options.memory.watch(connection.holder());
        served_now.push(Arc::downgrade(&connection));
        let held = options.memory.charge(connection_bytes(options.memory.max()));
        let requests = Requests {
            routes: routes.clone(),
            memory: Arc::clone(&options.memory),
            connection: Arc::clone(&connection),
            rules: Arc::clone(&options.rules),
            plain: options.plain.clone(),
        };
        let serving = http.serve_connection(TokioIo::new(carrier), requests).into_owned();
        let (stop, open) = (stop.clone(), open.clone());
        tokio::spawn(async move {
            attend(pin!(serving), &connection, &stop).await;
            // Drop `open` last: once the last sender is dropped, nothing may be held any more.
            drop((held, slot, open));
        });
    }
    drop((connections, http, open));
    stop.cancel();
    // Nothing is ever sent, so this returns once the last sender is dropped.
    let _ = all_ended.recv().await;
}

/// Runs each stream as a task. The task of a stream may outlive its connection, and then gives back its memory when it
/// next runs.
#[derive(Clone)]
struct StreamTasks {
    /// A task keeps a clone of this until it has ended.
    open: mpsc::Sender<Infallible>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, stream: F) {
        let open = self.open.clone();
        tokio::spawn(async move {
            stream.await;
            drop(open);
        });
    }
}

/// Begins to end the connections that are no longer trusted, and those that were made with an earlier certificate of
/// the node. Removes closed connections from `connections`.
fn check_all(connections: &mut Vec<Weak<Connection>>) {
    connections.retain(|connection| connection.strong_count() > 0);
    let open = connections.iter().filter_map(Weak::upgrade);
    let due: Vec<_> = open.filter(|connection| connection.has_to_be_checked()).collect();
    if !due.is_empty() {
        tokio::spawn(async move {
            for connection in due {
                connection.check();
                // Verifying a certificate takes about 100 µs, and a core may have thousands of connections.
                tokio::task::yield_now().await;
            }
        });
    }
}

/// The state of a connection whose end has begun.
struct Ending {
    /// The time at which streams that are still open are abandoned.
    until: Instant,
    /// Whether no stream may outlast that time.
    is_strict: bool,
}

/// A connection as hyper serves it.
trait Serving: Future<Output = Result<(), Box<dyn Error + Send + Sync>>> {
    fn end_gracefully(self: Pin<&mut Self>);
}

type HttpConnection = auto::Connection<'static, TokioIo<Box<dyn Carrier>>, Requests, StreamTasks>;

impl Serving for HttpConnection {
    fn end_gracefully(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Serves one connection until its client ends it, or until the node does: because the node stops, because the
/// connection reaches a limit or is no longer trusted, or because another connection needs its slot or its memory.
/// `stop` is cancelled when the node stops.
async fn attend(
    mut serving: Pin<&mut impl Serving>,
    connection: &Connection,
    stop: &CancellationToken,
) {
    let mut timer = pin!(tokio::time::sleep_until(connection.ends()));
    let mut ending: Option<Ending> = None;
    loop {
        tokio::select! {
            biased;
            ended = &mut serving => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = connection.holder().ended() => return,
            () = connection.signalled() => {
                if connection.is_evicted() {
                    serving.as_mut().end_gracefully();
                    let _ = tokio::time::timeout(EVICTION_GRACE, &mut serving).await;
                    return;
                }
            }
            () = stop.cancelled(), if ending.is_none() => {}
            () = &mut timer => {
                if ending.as_ref().is_some_and(|ending| is_over(connection, ending)) {
                    tracing::debug!("a connection is closed: its grace is over");
                    return;
                }
            }
        }
        let (now, is_trusted) = (Instant::now(), connection.is_trusted());
        let until = now + connection.grace();
        match &mut ending {
            None if !stop.is_cancelled() && is_trusted && connection.ends() > now => {
                timer.as_mut().reset(connection.ends());
                continue;
            }
            None => {
                connection.retire();
                serving.as_mut().end_gracefully();
                ending = Some(Ending { until, is_strict: !is_trusted });
            }
            Some(ending) if !is_trusted && !ending.is_strict => {
                connection.retire();
                *ending = Ending { until: ending.until.min(until), is_strict: true };
            }
            Some(_) => {}
        }
        let next = until.min(now + IDLE_GRACE);
        let last = ending.as_ref().map(|ending| ending.until).filter(|&last| last > now);
        timer.as_mut().reset(last.map_or(next, |last| next.min(last)));
    }
}

/// Returns whether a connection that is ending has to be closed now: it has no stream, or its grace is over and no
/// stream may outlast the grace.
fn is_over(connection: &Connection, ending: &Ending) -> bool {
    let is_idle = connection.idle_since().is_some();
    let may_last = connection.has_lasting() && !ending.is_strict;
    is_idle || (Instant::now() >= ending.until && !may_last)
}
