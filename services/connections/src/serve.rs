//! Serves the connections of one core, each until it ends or has to.
//!
//! hyper's HTTP/2 carries them. A connection ends gracefully (GOAWAY, then its streams) when the node stops, when it
//! is old or its client's certificate has expired, and when it has had no stream for long; at once when another one
//! needs its place, or the memory that it keeps without moving.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::service::Routes;
use traffic::{TrafficMemory, connection_bytes, window_bytes};

use crate::Carrier;
use crate::connection::Connection;
use crate::places::Place;
use crate::requests::{CallRules, Requests};

/// How long a connection that makes room for another has to send its GOAWAY.
const EVICTION_GRACE: Duration = Duration::from_millis(10);

/// How long a connection without streams has to close its side. Who does not answer is not waited for.
const IDLE_GRACE: Duration = Duration::from_secs(5);

/// How often a core looks for requests that take too long to arrive, and whether a peak of its callers' memory has
/// passed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Requests that a client may have cancelled before the core has looked at them; one more ends the connection. h2's own
/// 20 are too few: a busy core does not get to 20 requests within the shortest deadlines of honest callers. Each holds
/// about 1 KiB.
const CANCELLED_MAX: usize = 1024;

/// What a core's connections are served with.
#[derive(Clone)]
pub struct ServeOptions {
    /// What the core's callers may hold.
    pub memory: Arc<TrafficMemory>,
    /// What holds for a call, by its path.
    pub rules: Arc<CallRules>,
    /// The largest HTTP/2 frame, in bytes; `None` for the smallest that the standard allows.
    pub frame_bytes: Option<u32>,
    /// Streams of one connection at the same time.
    pub streams_max: u32,
    /// Gives freed memory back to the system: called on a thread of its own, after a peak. `None` in a simulation, whose
    /// clock must not wait for threads.
    pub give_back: Option<fn()>,
    /// How often a silent connection is asked for a sign of life; `None` for never.
    pub keep_alive: Option<Duration>,
}

/// A connection to serve, on the runtime of the core that serves it.
pub struct Served {
    /// Its bytes.
    pub carrier: Box<dyn Carrier>,
    /// What is known of it.
    pub connection: Arc<Connection>,
    /// Its place among the node's; none in a simulation.
    pub place: Option<Place>,
}

/// Serves what comes over `connections` with `routes`, until `stopping` is over; then the streams that there are end.
pub async fn serve(
    mut connections: mpsc::UnboundedReceiver<Served>,
    routes: Routes,
    options: ServeOptions,
    stopping: impl Future<Output = ()>,
) {
    let routes = routes.prepare();
    let window = window_bytes(options.memory.max());
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        // Nobody needs it, and by it no two runs of a simulation would be the same.
        .auto_date_header(false)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .max_frame_size(options.frame_bytes)
        .max_concurrent_streams(options.streams_max)
        .max_pending_accept_reset_streams(CANCELLED_MAX)
        .keep_alive_interval(options.keep_alive);
    let (stop, stopped) = watch::channel(false);
    let mut stopping = pin!(stopping);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        let served = tokio::select! {
            biased;
            () = &mut stopping => break,
            _ = looks.tick() => {
                options.memory.end_late();
                if let Some(give_back) = options.give_back
                    && options.memory.has_passed_a_peak()
                {
                    drop(tokio::task::spawn_blocking(give_back));
                }
                continue;
            }
            served = connections.recv() => match served {
                Some(served) => served,
                None => break stopping.await,
            },
        };
        let Served { carrier, connection, place } = served;
        options.memory.watch(connection.holder());
        let held = options.memory.charge(connection_bytes(options.memory.max()));
        let requests = Requests {
            routes: routes.clone(),
            memory: Arc::clone(&options.memory),
            connection: Arc::clone(&connection),
            rules: Arc::clone(&options.rules),
        };
        let serving = http.serve_connection(TokioIo::new(carrier), requests);
        let stopped = stopped.clone();
        tokio::spawn(async move {
            attend(pin!(serving), &connection, stopped).await;
            drop((held, place));
        });
    }
    drop((connections, stopped));
    stop.send_replace(true);
    // Each connection has a receiver until it has ended.
    stop.closed().await;
}

/// A connection of hyper's, whatever it serves.
trait Serving: Future<Output = Result<(), hyper::Error>> {
    fn end_gracefully(self: Pin<&mut Self>);
}

type HttpConnection = http2::Connection<TokioIo<Box<dyn Carrier>>, Requests, TokioExecutor>;

impl Serving for HttpConnection {
    fn end_gracefully(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Waits until the node stops.
async fn told(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|&stop| stop).await);
}

async fn attend(
    mut serving: Pin<&mut impl Serving>,
    connection: &Connection,
    mut stopped: watch::Receiver<bool>,
) {
    let mut timer = pin!(tokio::time::sleep_until(connection.ends()));
    let mut ending = None;
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
            () = connection.is_evicted() => {
                serving.as_mut().end_gracefully();
                let _ = tokio::time::timeout(EVICTION_GRACE, &mut serving).await;
                return;
            }
            () = told(&mut stopped), if ending.is_none() => {
                ending = Some(Instant::now() + connection.grace());
                serving.as_mut().end_gracefully();
                timer.as_mut().reset(Instant::now() + connection.grace().min(IDLE_GRACE));
            }
            () = &mut timer => {
                if let Some(until) = ending {
                    let is_idle = connection.idle_since().is_some();
                    let has_time = Instant::now() < until || connection.has_lasting();
                    if is_idle || !has_time {
                        tracing::debug!(is_idle, "a connection is closed: its grace is over");
                        return;
                    }
                    timer.as_mut().reset(Instant::now() + connection.grace().min(IDLE_GRACE));
                    continue;
                }
                let ends = connection.ends();
                if ends > Instant::now() {
                    timer.as_mut().reset(ends);
                    continue;
                }
                ending = Some(Instant::now() + connection.grace());
                connection.retire();
                serving.as_mut().end_gracefully();
                timer.as_mut().reset(Instant::now() + connection.grace().min(IDLE_GRACE));
            }
        }
    }
}
