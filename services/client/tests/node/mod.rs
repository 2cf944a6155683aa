//! A small I/O node that follows the protocol, checks that the client follows it, and records what it receives.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use futures::Stream;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::fetch_service_server::{FetchService, FetchServiceServer};
use wire::fetch::reply::Outcome;
use wire::fetch::*;
use wire::{ArrowBatch, Fault, Reason, schema_to_bytes};

#[derive(Clone, Copy)]
pub struct Settings {
    pub credit_rows: u32,
    pub batch_rows_max: u32,
    /// Maximum number of rows in a reply. A larger batch fails with `TOO_LARGE`.
    pub reply_rows_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { credit_rows: 1000, batch_rows_max: 100, reply_rows_max: 100 }
    }
}

#[derive(Clone, Default)]
pub struct Seen {
    pub opens: usize,
    pub cancelled: usize,
    pub batches_of_messages: Vec<usize>,
    /// The numbers of rows of the batches.
    pub batch_rows: Multiset,
    pub outstanding_rows_max: usize,
    pub timeout_us_max: u64,
}

/// A multiset of numbers: how often each number occurs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Multiset(BTreeMap<usize, usize>);

impl FromIterator<usize> for Multiset {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut all = Self::default();
        numbers.into_iter().for_each(|number| *all.0.entry(number).or_default() += 1);
        all
    }
}

pub struct Node {
    address: SocketAddr,
    inner: Arc<Inner>,
    runtime: Option<Runtime>,
}

struct Inner {
    settings: Settings,
    seen: Mutex<Seen>,
    held: watch::Sender<bool>,
    breaks: Mutex<usize>,
}

impl Inner {
    fn breaks_now(&self) -> bool {
        let mut breaks = self.breaks.lock().unwrap();
        let now = *breaks > 0;
        *breaks = breaks.saturating_sub(1);
        now
    }
}

impl Node {
    pub fn start(settings: Settings) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), settings)
    }

    pub fn start_at(address: SocketAddr, settings: Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (seen, breaks) = Default::default();
        let held = watch::Sender::new(false);
        let inner = Arc::new(Inner { settings, seen, held, breaks });
        let service = FetchServiceServer::new(Service(Arc::clone(&inner)));
        let (bound, listening) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        Self { address: listening.recv().unwrap(), inner, runtime: Some(runtime) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Seen {
        self.inner.seen.lock().unwrap().clone()
    }

    /// Sets whether answers are held back.
    pub fn hold(&self, held: bool) {
        self.inner.held.send_replace(held);
    }

    /// Breaks the streams of the next `requests` batches, and Opens of tables other than `t`, instead of answering them.
    pub fn break_next(&self, requests: usize) {
        *self.inner.breaks.lock().unwrap() = requests;
    }
}

impl Drop for Node {
    /// Resets every connection.
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

struct Service(Arc<Inner>);

type Out = mpsc::Sender<Result<FetchResponse, Status>>;
type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl FetchService for Service {
    type FetchStream = Responses<FetchResponse>;
    type WarmStream = Responses<WarmProgress>;

    async fn fetch(
        &self,
        request: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let (out, responses) = mpsc::channel(64);
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            if let Err(status) = Conversation::new(inner, out.clone()).run(request).await {
                let _ = out.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn warm(&self, _: Request<WarmRequest>) -> Result<Response<Self::WarmStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn release(
        &self,
        _: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse { node: "small".into(), ..Default::default() }))
    }
}

/// For each outstanding batch, by id: its number of rows, and the sender that cancels it.
type Outstanding = Arc<Mutex<HashMap<u64, (usize, watch::Sender<bool>)>>>;

/// One stream with a client.
struct Conversation {
    inner: Arc<Inner>,
    out: Out,
    open: Vec<u32>,
    batches: Outstanding,
}

impl Conversation {
    fn new(inner: Arc<Inner>, out: Out) -> Self {
        Self { inner, out, open: Vec::new(), batches: Arc::default() }
    }

    async fn run(&mut self, request: Request<Streaming<FetchRequest>>) -> Result<(), Status> {
        let Settings { credit_rows, batch_rows_max, .. } = self.inner.settings;
        let node = "small".into();
        let welcome = Welcome { credit_rows, batch_rows_max, node, revision: 1 };
        self.say(ResponseKind::Welcome(welcome)).await;
        let mut requests = request.into_inner();
        while let Some(message) = requests.message().await? {
            match message.kind.expect("a message of a known kind") {
                RequestKind::Open(open) => self.on_open(open).await?,
                RequestKind::Close(close) => self.open.retain(|&handle| handle != close.handle),
                RequestKind::Cancel(cancel) => {
                    self.inner.seen.lock().unwrap().cancelled += 1;
                    if let Some((_, cancelled)) = self.batches.lock().unwrap().get(&cancel.id) {
                        cancelled.send_replace(true);
                    }
                }
                RequestKind::Batches(batches) => self.on_batches(batches.batches).await?,
            }
        }
        Ok(())
    }

    async fn say(&self, kind: ResponseKind) {
        let _ = self.out.send(Ok(FetchResponse { kind: Some(kind) })).await;
    }

    async fn on_open(&mut self, open: Open) -> Result<(), Status> {
        self.inner.seen.lock().unwrap().opens += 1;
        if open.table_uri == "hangs" {
            return Ok(());
        }
        if open.table_uri != "t" && self.inner.breaks_now() {
            return Err(Status::unavailable("broken on purpose"));
        }
        let mut opened = Opened { handle: open.handle, ..Default::default() };
        if open.table_uri == "t" {
            self.open.push(open.handle);
            opened.schema = schema_to_bytes(&schema()).unwrap();
        } else {
            let message = format!("no table `{}`", open.table_uri);
            opened.error = Some(Fault::new(Reason::TableNotFound, message).into());
        }
        self.say(ResponseKind::Opened(opened)).await;
        Ok(())
    }

    async fn on_batches(&mut self, batches: Vec<Batch>) -> Result<(), Status> {
        {
            let mut seen = self.inner.seen.lock().unwrap();
            seen.batches_of_messages.push(batches.len());
            for batch in &batches {
                *seen.batch_rows.0.entry(batch.row_addrs.len()).or_default() += 1;
                seen.timeout_us_max = seen.timeout_us_max.max(batch.timeout_us);
            }
        }
        for batch in batches {
            if self.inner.breaks_now() {
                return Err(Status::unavailable("broken on purpose"));
            }
            assert!(self.open.contains(&batch.handle), "a batch of a projection that is not open");
            self.start_batch(batch);
        }
        Ok(())
    }

    fn start_batch(&self, batch: Batch) {
        let (cancel, mut cancelled) = watch::channel(false);
        let rows = batch.row_addrs.len();
        let outstanding: usize = {
            let mut batches = self.batches.lock().unwrap();
            assert!(batches.insert(batch.id, (rows, cancel)).is_none(), "an id used twice");
            batches.values().map(|(rows, _)| rows).sum()
        };
        assert!(outstanding <= self.inner.settings.credit_rows as usize, "credit exceeded");
        let mut seen = self.inner.seen.lock().unwrap();
        seen.outstanding_rows_max = seen.outstanding_rows_max.max(outstanding);
        drop(seen);
        let (inner, out, batches) =
            (Arc::clone(&self.inner), self.out.clone(), Arc::clone(&self.batches));
        tokio::spawn(async move {
            let mut held = inner.held.subscribe();
            let reply = tokio::select! {
                _ = async {
                    let _ = held.wait_for(|held| !held).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                } => answer(&batch, inner.settings.reply_rows_max),
                _ = cancelled.wait_for(|&cancelled| cancelled) => {
                    let fault = Fault::new(Reason::Cancelled, "cancelled");
                    Reply { outcome: Some(Outcome::Error(fault.into())), ..Default::default() }
                }
            };
            batches.lock().unwrap().remove(&batch.id);
            let kind = Some(ResponseKind::Reply(Reply { id: batch.id, ..reply }));
            let _ = out.send(Ok(FetchResponse { kind })).await;
        });
    }
}

fn schema() -> Schema {
    Schema::new(vec![Field::new("x", DataType::UInt64, false)])
}

fn answer(batch: &Batch, reply_rows_max: usize) -> Reply {
    if batch.row_addrs.len() > reply_rows_max {
        let fault = Fault::new(Reason::TooLarge, "too large for a message");
        return Reply { outcome: Some(Outcome::Error(fault.into())), ..Default::default() };
    }
    let is_missing = |addr: &u64| addr >> 32 == 9;
    let at = batch.row_addrs.iter().enumerate();
    let missing = at.filter(|(_, addr)| is_missing(addr)).map(|(at, _)| at as u32).collect();
    let found = batch.row_addrs.iter().copied().filter(|addr| !is_missing(addr));
    let outcome = match &batch.rerank {
        None => {
            let column = Arc::new(UInt64Array::from_iter_values(found));
            let rows = RecordBatch::try_new(Arc::new(schema()), vec![column]).unwrap();
            Outcome::Rows(ArrowBatch::from_record_batch(&rows).unwrap())
        }
        Some(rerank) => {
            let query = f32::from_le_bytes(rerank.vector[..4].try_into().unwrap());
            let mut near: Vec<_> = found.map(|a| ((a as f32 - query).powi(2), a)).collect();
            near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            near.truncate(rerank.k as usize);
            let (distances, row_addrs) = near.into_iter().unzip();
            Outcome::Neighbors(Neighbors { row_addrs, distances })
        }
    };
    Reply { outcome: Some(outcome), missing, ..Default::default() }
}
