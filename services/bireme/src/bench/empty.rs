//! `bench empty`: messages that need no work, through the same server and client as all others. Their rate is the upper
//! limit for requests of any kind.
//!
//! Unary messages are health checks. Messages on streams ask gRPC reflection for the names of the services, because its
//! stream answers each message and needs neither a table nor an I/O node.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::query::QueryClient;
use futures::channel::mpsc;
use futures::future::try_join_all;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use wire::{Fault, Reason};

use super::workload::{Done, Workload};

/// The deadline of a unary message. Both sides keep a timer for it, as they do for the other calls.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A benchmark's load of empty messages.
pub enum EmptyLoad {
    Unary(Vec<HealthClient<Channel>>),
    Streams(Vec<EmptyStream>),
}

/// A stream of empty messages, which are answered in order.
pub struct EmptyStream(Arc<Mutex<Waiting>>);

struct Waiting {
    requests: mpsc::UnboundedSender<ServerReflectionRequest>,
    /// The callers whose messages are outstanding. Stays empty once the stream has ended.
    callers: VecDeque<oneshot::Sender<()>>,
    has_ended: bool,
}

impl EmptyLoad {
    /// Opens `streams` streams on each connection. If `streams` is 0, messages are unary.
    ///
    /// # Errors
    /// The node's fault if it refuses a stream.
    pub async fn prepare(clients: &[QueryClient], streams: usize) -> Result<Self, Fault> {
        if streams == 0 {
            let health = |client: &QueryClient| HealthClient::new(client.channel());
            return Ok(Self::Unary(clients.iter().map(health).collect()));
        }
        // Order the streams so that consecutive messages go to different connections.
        let connections = (0..streams).flat_map(|_| clients);
        let opened = connections.map(|client| EmptyStream::open(client.channel()));
        Ok(Self::Streams(try_join_all(opened).await?))
    }
}

impl EmptyStream {
    async fn open(channel: Channel) -> Result<Self, Fault> {
        let (requests, sent) = mpsc::unbounded();
        let answers = ServerReflectionClient::new(channel).server_reflection_info(sent).await;
        let answers = answers.map_err(|status| Fault::from_status(&status))?.into_inner();
        let waiting = Waiting { requests, callers: VecDeque::new(), has_ended: false };
        let waiting = Arc::new(Mutex::new(waiting));
        tokio::spawn(answer(answers, Arc::clone(&waiting)));
        Ok(Self(waiting))
    }

    async fn send(&self) -> Result<(), Fault> {
        let ended = || Fault::new(Reason::NodeUnavailable, "the node ended the stream");
        let (caller, answered) = oneshot::channel();
        {
            let mut waiting = locked(&self.0);
            let request = MessageRequest::ListServices(String::new());
            let request =
                ServerReflectionRequest { host: String::new(), message_request: Some(request) };
            if waiting.has_ended || waiting.requests.unbounded_send(request).is_err() {
                return Err(ended());
            }
            waiting.callers.push_back(caller);
        }
        answered.await.map_err(|_| ended())
    }
}

/// Passes each answer to the caller that has waited longest.
async fn answer(mut answers: Streaming<ServerReflectionResponse>, waiting: Arc<Mutex<Waiting>>) {
    while let Ok(Some(_)) = answers.message().await {
        let caller = locked(&waiting).callers.pop_front();
        caller.map(|caller| caller.send(()));
    }
    let mut waiting = locked(&waiting);
    waiting.has_ended = true;
    waiting.callers.clear();
}

fn locked(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workload for EmptyLoad {
    async fn request(&self, number: u64) -> Result<Done, Fault> {
        match self {
            Self::Unary(clients) => {
                let mut request = Request::new(HealthCheckRequest { service: String::new() });
                request.set_timeout(TIMEOUT);
                let mut client = clients[number as usize % clients.len()].clone();
                let checked = client.check(request).await;
                checked.map_err(|status| Fault::from_status(&status))?;
            }
            Self::Streams(streams) => streams[number as usize % streams.len()].send().await?,
        }
        Ok(Done { rows: 0, missing: 0 })
    }
}
