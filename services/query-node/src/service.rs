//! The gRPC service: each rpc gets its deadline, and its answer is counted.

use std::pin::Pin;
use std::sync::Arc;

use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::query::query_service_server::QueryService;
use wire::query::*;
use wire::{Fault, query};

use crate::deadline::{Deadline, asked_timeout};
use crate::describe::{describe_table, list_tables};
use crate::get::get;
use crate::search::search;
use crate::state::State;
use crate::status::status;
use crate::take::Take;
use crate::warm::Warm;

/// Messages of a stream that wait for the connection: the next one is made meanwhile.
const MESSAGES_AHEAD_MAX: usize = 2;

/// `bireme.query.v1.QueryService`.
pub struct Service(pub Arc<State>);

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    fn deadline<T>(&self, request: &Request<T>) -> Deadline {
        Deadline::of(request.metadata(), self.0.shared.config.timeout)
    }

    /// The deadline of a stream, and whether it is the caller's own.
    fn stream_deadline<T>(&self, request: &Request<T>) -> (Deadline, bool) {
        (self.deadline(request), asked_timeout(request.metadata()).is_some())
    }

    fn answer<T>(&self, answer: crate::error::Result<T>) -> Result<Response<T>, Status> {
        Ok(Response::new(self.0.shared.count(answer)?))
    }
}

#[tonic::async_trait]
impl QueryService for Service {
    type GetStreamStream = Responses<GetResponse>;
    type TakeStream = Responses<TakeResponse>;
    type WarmStream = Responses<WarmProgress>;

    async fn search(
        &self,
        request: Request<SearchRequest>,
    ) -> Result<Response<SearchResponse>, Status> {
        let deadline = self.deadline(&request);
        self.answer(search(&self.0, request.into_inner(), deadline).await)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let deadline = self.deadline(&request);
        self.answer(get(&self.0, request.into_inner(), deadline).await)
    }

    async fn get_stream(
        &self,
        request: Request<Streaming<GetRequest>>,
    ) -> Result<Response<Self::GetStreamStream>, Status> {
        let (deadline, asked) = self.stream_deadline(&request);
        let state = Arc::clone(&self.0);
        let answers = request.into_inner().map(move |request| {
            let state = Arc::clone(&state);
            async move {
                let deadline = deadline_of(asked, deadline, &state);
                let answer = state.shared.count(get(&state, request?, deadline).await);
                Ok(answer.unwrap_or_else(|fault| GetResponse {
                    error: Some(query::Error::from(fault)),
                    ..Default::default()
                }))
            }
        });
        Ok(Response::new(answers.buffered(self.0.shared.config.gets_in_flight).boxed()))
    }

    async fn take(
        &self,
        request: Request<TakeRequest>,
    ) -> Result<Response<Self::TakeStream>, Status> {
        let (deadline, asked) = self.stream_deadline(&request);
        let state = Arc::clone(&self.0);
        let take = Take::new(&state, request.into_inner(), deadline).await;
        let take = take.or_else(|error| state.shared.count(Err(error)))?;
        let (messages, mut responses) = mpsc::channel(MESSAGES_AHEAD_MAX);
        tokio::spawn(async move {
            let each = || deadline_of(asked, deadline, &state);
            let sent = take.send(&state, &messages, each).await;
            if let Err(fault) = state.shared.count(sent) {
                let _ = messages.send(Err(fault)).await;
            }
        });
        // With the first message at hand, headers, rows and trailers of a small answer leave in one
        // write; each would wake the caller for itself.
        match responses.recv().await {
            Some(Ok(first)) => {
                let first = stream::iter([Ok(first)]);
                Ok(Response::new(first.chain(statuses(responses)).boxed()))
            }
            Some(Err(fault)) => Err(fault.into()),
            None => Err(Status::internal("the rows were not sent; this is a defect")),
        }
    }

    async fn list_tables(
        &self,
        _: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        self.answer(Ok(list_tables(&self.0)))
    }

    async fn describe_table(
        &self,
        request: Request<DescribeTableRequest>,
    ) -> Result<Response<DescribeTableResponse>, Status> {
        let deadline = self.deadline(&request);
        self.answer(describe_table(&self.0, request.into_inner(), deadline).await)
    }

    async fn warm(
        &self,
        request: Request<WarmRequest>,
    ) -> Result<Response<Self::WarmStream>, Status> {
        let deadline = self.deadline(&request);
        let state = Arc::clone(&self.0);
        let warm = deadline.bound("open", Warm::new(&state, request.into_inner()).boxed()).await;
        let warm = state.shared.count(warm)?;
        let (progress, responses) = mpsc::channel(MESSAGES_AHEAD_MAX);
        tokio::spawn(async move {
            tokio::select! {
                () = warm.run(&progress) => {}
                // Dropping the run cancels it on the I/O nodes.
                () = progress.closed() => {}
            }
        });
        Ok(Response::new(statuses(responses)))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        self.answer(Ok(status(&self.0).await))
    }
}

/// The deadline of one piece of a stream's work: the caller's own is for the whole stream; without
/// one, each piece has the default for itself.
fn deadline_of(asked: bool, of_stream: Deadline, state: &State) -> Deadline {
    if asked { of_stream } else { Deadline::after(state.shared.config.timeout) }
}

fn statuses<T: Send + 'static>(responses: mpsc::Receiver<Result<T, Fault>>) -> Responses<T> {
    ReceiverStream::new(responses).map(|response| response.map_err(Status::from)).boxed()
}
