//! The client of one I/O node: splits fetches into batches, picks a stream for each batch, retries, and joins replies.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use address::RowAddr;
use arrow_schema::SchemaRef;
use endpoint::Endpoint;
use futures::future::{BoxFuture, FutureExt, try_join_all};
use moka::future::Cache;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use wire::fetch::{DescribeResponse, Predicate, ReleaseRequest, WarmRequest};
use wire::{Fault, Reason};

use super::backoff::Backoff;
use super::context::FetchContext;
use super::driver::{Driver, shutting_down};
use super::job::{Command, Job, Ticket};
use super::ledger::deadline_passed;
use super::link::transport;
use super::options::FetchOptions;
use super::outage::Outage;
use super::projection::{Projection, ProjectionKey, Rerank, TableFile, TableVersion};
use super::reply::{RawReply, Reply};
use super::split::{join, split};
use super::state::{Counters, LinkState, QueuePlace, StreamState};
use super::unary::{Unary, WarmStream};
use crate::network::Network;

/// Maximum number of schemas cached for callers, over all streams. Two streams, the default, have at most 512
/// projections open.
const PROJECTIONS_KNOWN_MAX: u64 = 1024;

/// The client of one I/O node. Cheap to clone; clones share the streams.
#[derive(Clone)]
pub struct FetchClient {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    streams: Vec<Stream>,
    /// Notified when the link of a stream changes.
    links_changed: Arc<Notify>,
    projections: Cache<Arc<ProjectionKey>, SchemaRef>,
    unary: Unary,
    next_id: AtomicU64,
    retries: AtomicU64,
}

/// A caller's side of a stream.
struct Stream {
    shared: Arc<StreamState>,
    commands: mpsc::UnboundedSender<Command>,
    cancels: mpsc::UnboundedSender<u64>,
}

/// The request of one batch.
struct Ask<'a> {
    projection: &'a Projection,
    addrs: &'a [RowAddr],
    rerank: Option<&'a Rerank>,
    predicate: Option<&'a Predicate>,
    context: FetchContext,
}

impl FetchClient {
    /// Starts connecting to the node in the background, and retries until it succeeds. Must be called within a Tokio
    /// runtime.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` if the options are invalid, or the endpoint needs TLS and the network has none.
    pub fn new(endpoint: Endpoint, options: FetchOptions) -> Result<Self, Fault> {
        options.check()?;
        if endpoint.is_tls() && matches!(options.network, Network::Tcp) {
            let message = format!("{endpoint} needs TLS, which is not configured");
            return Err(Fault::new(Reason::BadArgument, message).with("endpoint", &endpoint));
        }
        let outage = options.outage.clone().unwrap_or_default();
        let links_changed = Arc::new(Notify::new());
        let stream = |number: usize| {
            let shared =
                Arc::new(StreamState::new(Arc::clone(&links_changed), options.queue_batches_max));
            Stream::start(&endpoint, &options, &outage, shared, number as u64)
        };
        let streams = (0..options.streams).map(stream);
        Ok(Self {
            inner: Arc::new(Inner {
                streams: streams.collect(),
                links_changed,
                projections: Cache::new(PROJECTIONS_KNOWN_MAX),
                unary: Unary::new(
                    endpoint.clone(),
                    options.network.connect_lazy(transport(&endpoint, &options)),
                    options.prover.clone(),
                ),
                next_id: AtomicU64::new(1),
                retries: AtomicU64::new(0),
                endpoint,
            }),
        })
    }

    /// Returns the node's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Returns the client's gauges and counters.
    pub fn counters(&self) -> Counters {
        let retries = self.inner.retries.load(Ordering::Relaxed);
        let mut total = Counters { retries, ..Default::default() };
        self.inner.streams.iter().for_each(|stream| stream.shared.add_to(&mut total));
        total
    }

    /// Returns whether a stream is connected now.
    pub fn is_connected(&self) -> bool {
        self.batch_rows_max_now().is_some()
    }

    /// Returns whether the latest connection attempt of every stream failed, so that requests would be refused at once.
    /// The streams keep trying to connect.
    pub fn is_down(&self) -> bool {
        let is_down = |stream: &Stream| matches!(*stream.shared.link(), LinkState::Down(_));
        self.inner.streams.iter().all(is_down)
    }

    /// Waits until a stream is connected.
    ///
    /// # Errors
    /// `NODE_UNAVAILABLE` if the last attempts of all streams failed, or `DEADLINE_EXCEEDED`.
    pub async fn ready(&self, deadline: Instant) -> Result<(), Fault> {
        self.batch_rows_max(deadline).await.map(drop)
    }

    /// Opens a projection. One that was opened before is returned from a cache.
    ///
    /// # Errors
    /// The node's fault for the table, version or columns, `OVERLOADED` if a stream has the maximum number of
    /// projections open and all are in use, or an error of [`ready`](Self::ready).
    pub async fn open(
        &self,
        table: TableVersion<'_>,
        columns: &[String],
        deadline: Instant,
    ) -> Result<Projection, Fault> {
        let key = Arc::new(ProjectionKey {
            table_uri: table.uri.to_owned(),
            branch: table.branch.to_owned(),
            version: table.version,
            identity: table.identity.to_owned(),
            columns: columns.to_owned(),
            file: String::new(),
            file_bytes: 0,
        });
        self.open_key(key, deadline).await
    }

    /// Opens a file of a table. Its rows are the file's sectors, and the schema's metadata has the file's size.
    ///
    /// # Errors
    /// The node's fault for the table or file, or the other errors of [`open`](Self::open).
    pub async fn open_file(
        &self,
        file: TableFile<'_>,
        deadline: Instant,
    ) -> Result<Projection, Fault> {
        let key = Arc::new(ProjectionKey {
            table_uri: file.uri.to_owned(),
            file: file.path.to_owned(),
            file_bytes: file.bytes,
            ..ProjectionKey::default()
        });
        self.open_key(key, deadline).await
    }

    async fn open_key(
        &self,
        key: Arc<ProjectionKey>,
        deadline: Instant,
    ) -> Result<Projection, Fault> {
        let open = |at: usize| self.open_on(&self.inner.streams[at], &key);
        let opening = self.on_a_stream(None, open);
        let opening = self.inner.projections.try_get_with(Arc::clone(&key), opening);
        let schema = timeout_at(deadline, opening)
            .await
            .map_err(|_| deadline_passed(true))?
            .map_err(|fault: Arc<Fault>| Fault::clone(&fault))?;
        Ok(Projection { key, schema })
    }

    /// Asks on a stream, whose number `ask` gets. If the stream breaks before the deadline, asks once more, on another
    /// connected stream if there is one.
    async fn on_a_stream<T, F: Future<Output = Result<T, Fault>>>(
        &self,
        deadline: Option<Instant>,
        ask: impl Fn(usize) -> F,
    ) -> Result<T, Fault> {
        let first = self.pick(None)?;
        match ask(first).await {
            Err(fault)
                if fault.reason == Reason::NodeUnavailable
                    && deadline.is_none_or(|deadline| Instant::now() < deadline) =>
            {
                self.inner.retries.fetch_add(1, Ordering::Relaxed);
                ask(self.pick(Some(first))?).await
            }
            other => other,
        }
    }

    async fn open_on(&self, stream: &Stream, key: &Arc<ProjectionKey>) -> Result<SchemaRef, Fault> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Open { projection: Arc::clone(key), answer };
        stream.commands.send(command).map_err(|_| shutting_down(self.endpoint()))?;
        answered.await.map_err(|_| shutting_down(self.endpoint()))?
    }

    /// Fetches rows, or has the node score them.
    ///
    /// A fetch of more rows than the node accepts in one batch is split, and its replies are joined. A batch whose
    /// stream breaks is tried once more, on another connected stream if there is one. Dropping the future cancels
    /// outstanding batches.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` if `addrs` is empty, `OVERLOADED` if too many batches wait, `DEADLINE_EXCEEDED`,
    /// `NODE_UNAVAILABLE` if the node cannot be reached, `INTERNAL` if a reply is damaged, or the node's fault for the
    /// batch.
    pub async fn fetch(
        &self,
        projection: &Projection,
        addrs: Vec<RowAddr>,
        rerank: Option<Rerank>,
        context: impl Into<FetchContext>,
    ) -> Result<Reply, Fault> {
        let (rerank, context) = (rerank.as_ref(), context.into());
        self.fetch_all(Ask { projection, addrs: &addrs, rerank, predicate: None, context }).await
    }

    /// Has the node evaluate `predicate` for rows. The columns of `projection` are those that the predicate is about. A
    /// node that does not know predicates returns the rows instead.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn check(
        &self,
        projection: &Projection,
        addrs: &[RowAddr],
        predicate: &Predicate,
        context: impl Into<FetchContext>,
    ) -> Result<Reply, Fault> {
        let (predicate, context) = (Some(predicate), context.into());
        self.fetch_all(Ask { projection, addrs, rerank: None, predicate, context }).await
    }

    async fn fetch_all(&self, ask: Ask<'_>) -> Result<Reply, Fault> {
        if ask.addrs.is_empty() {
            let message = "the batch is empty; give at least one row address";
            return Err(Fault::new(Reason::BadArgument, message));
        }
        let rows_max = self.batch_rows_max(ask.context.deadline).await?;
        let fetched = self.fetch_in_parts(&ask, split(ask.addrs.len(), rows_max)).await;
        let key = &ask.projection.key;
        if !key.file.is_empty() && is_damaged(&fetched) {
            self.open_anew(key).await;
        }
        fetched
    }

    /// Has the next requests for a file open it anew. The node found that the file was replaced or missing when it read
    /// it, and refuses reads of it until it is opened again.
    async fn open_anew(&self, file: &Arc<ProjectionKey>) {
        // An opener that did not know the size got that of the replaced file.
        let unsized_key = ProjectionKey { file_bytes: 0, ..ProjectionKey::clone(file) };
        for key in [Arc::clone(file), Arc::new(unsized_key)] {
            self.inner.projections.invalidate(&key).await;
            for stream in &self.inner.streams {
                // A stream without a task has nothing open.
                let _ = stream.commands.send(Command::OpenAnew(Arc::clone(&key)));
            }
        }
    }

    async fn fetch_in_parts(
        &self,
        ask: &Ask<'_>,
        mut parts: Vec<Range<usize>>,
    ) -> Result<Reply, Fault> {
        if parts.len() == 1 {
            return self.fetch_part(ask, parts.remove(0)).await;
        }
        let fetches = parts.into_iter().map(|part| async move {
            let reply = self.fetch_part(ask, part.clone()).await?;
            Ok::<_, Fault>((part, reply))
        });
        join(try_join_all(fetches).await?, ask.rerank.map(|rerank| rerank.k))
    }

    /// Fetches one part. If its reply would not fit in a message, or the node accepts fewer rows in a batch than when
    /// the part was made, the part is halved until it fits.
    fn fetch_part<'a>(
        &'a self,
        ask: &'a Ask<'a>,
        part: Range<usize>,
    ) -> BoxFuture<'a, Result<Reply, Fault>> {
        async move {
            let ask = &Ask { addrs: &ask.addrs[part.clone()], ..*ask };
            match self.fetch_with_retry(ask).await {
                Err(fault) if fault.reason == Reason::TooLarge && part.len() > 1 => {
                    self.fetch_in_parts(ask, split(part.len(), part.len().div_ceil(2))).await
                }
                other => other,
            }
        }
        .boxed()
    }

    async fn fetch_with_retry(&self, ask: &Ask<'_>) -> Result<Reply, Fault> {
        let fetch = |at: usize| self.fetch_on(&self.inner.streams[at], ask);
        self.on_a_stream(Some(ask.context.deadline), fetch).await
    }

    async fn fetch_on(&self, stream: &Stream, ask: &Ask<'_>) -> Result<Reply, Fault> {
        let Some(place) = QueuePlace::take(&stream.shared, ask.context.flow) else {
            let message =
                format!("too many batches wait for {}; try again a little later", self.endpoint());
            return Err(Fault::new(Reason::Overloaded, message).with("endpoint", self.endpoint()));
        };
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let opening = Arc::<AtomicBool>::default();
        let job = Job {
            id,
            projection: Arc::clone(&ask.projection.key),
            row_addrs: ask.addrs.iter().map(|addr| addr.to_u64()).collect(),
            rerank: ask.rerank.map(Rerank::to_wire),
            predicate: ask.predicate.cloned(),
            context: ask.context,
            asked: Instant::now(),
            opening: Arc::clone(&opening),
            _place: place,
            answer,
        };
        stream
            .commands
            .send(Command::Fetch(Box::new(job)))
            .map_err(|_| shutting_down(self.endpoint()))?;
        let ticket = Ticket::new(id, &stream.cancels);
        let deadline = ask.context.deadline;
        let answer: Result<RawReply, Fault> = match timeout_at(deadline, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(shutting_down(self.endpoint()))),
            Err(_) => return Err(deadline_passed(opening.load(Ordering::Relaxed))),
        };
        ticket.done();
        Reply::decode(answer?, ask.addrs.len())
    }

    /// Picks a stream: a connected one rather than a connecting one, then any other than `tried`, then the least
    /// loaded. Fails if no stream is connected or connecting.
    fn pick(&self, tried: Option<usize>) -> Result<usize, Fault> {
        let rank = |(at, stream): &(usize, &Stream)| {
            let link = match *stream.shared.link() {
                LinkState::Up { .. } => 0,
                LinkState::Connecting => 1,
                LinkState::Down(_) => 2,
            };
            let waiting = stream.shared.waiting();
            let outstanding = stream.shared.outstanding_rows.load(Ordering::Relaxed);
            (link, Some(*at) == tried, waiting, outstanding)
        };
        let best = self.inner.streams.iter().enumerate().min_by_key(rank);
        let (at, stream) = best.ok_or_else(|| shutting_down(self.endpoint()))?;
        match &*stream.shared.link() {
            LinkState::Down(fault) => Err(fault.clone()),
            LinkState::Up { .. } | LinkState::Connecting => Ok(at),
        }
    }

    /// Returns the maximum number of rows in a batch that every connected stream accepts. Waits until one is connected.
    async fn batch_rows_max(&self, deadline: Instant) -> Result<usize, Fault> {
        if let Some(rows) = self.batch_rows_max_now() {
            return Ok(rows);
        }
        loop {
            // Register before the links are checked, so that no change is missed.
            let mut changed = pin!(self.inner.links_changed.notified());
            changed.as_mut().enable();
            let mut fault = None;
            let mut connecting = false;
            for stream in &self.inner.streams {
                match &*stream.shared.link() {
                    LinkState::Up { .. } => {}
                    LinkState::Connecting => connecting = true,
                    LinkState::Down(why) => fault = Some(why.clone()),
                }
            }
            if let Some(rows) = self.batch_rows_max_now() {
                return Ok(rows);
            }
            if let Some(fault) = fault.filter(|_| !connecting) {
                return Err(fault);
            }
            timeout_at(deadline, changed).await.map_err(|_| deadline_passed(false))?;
        }
    }

    fn batch_rows_max_now(&self) -> Option<usize> {
        let rows = |stream: &Stream| match *stream.shared.link() {
            LinkState::Up { batch_rows_max } => Some(batch_rows_max),
            LinkState::Connecting | LinkState::Down(_) => None,
        };
        self.inner.streams.iter().filter_map(rows).min()
    }

    /// Returns the node's description and counters.
    pub async fn describe(&self, timeout: Duration) -> Result<DescribeResponse, Fault> {
        self.inner.unary.describe(timeout).await
    }

    /// Fills chunks ahead of their use. Idempotent.
    pub async fn warm(&self, request: WarmRequest) -> Result<WarmStream, Fault> {
        self.inner.unary.warm(request).await
    }

    /// Evicts the blocks of a file that is not used any more. Returns how many there were. Idempotent.
    pub async fn release(&self, request: ReleaseRequest, timeout: Duration) -> Result<u64, Fault> {
        self.inner.unary.release(request, timeout).await
    }
}

fn is_damaged(fetched: &Result<Reply, Fault>) -> bool {
    fetched.as_ref().is_err_and(|fault| fault.reason == Reason::TableDamaged)
}

impl Stream {
    fn start(
        endpoint: &Endpoint,
        options: &FetchOptions,
        outage: &Arc<Outage>,
        shared: Arc<StreamState>,
        number: u64,
    ) -> Self {
        let (commands, commanded) = mpsc::unbounded_channel();
        let (cancels, cancelled) = mpsc::unbounded_channel();
        let seed = options.jitter_seed.wrapping_add(number);
        let driver = Driver {
            endpoint: endpoint.clone(),
            options: options.clone(),
            shared: Arc::clone(&shared),
            outage: Arc::clone(outage),
            backoff: Backoff::new(options.backoff_min, options.backoff_max, seed),
            commands: commanded,
            cancels: cancelled,
            unsent: Vec::new(),
        };
        tokio::spawn(driver.run());
        Self { shared, commands, cancels }
    }
}
