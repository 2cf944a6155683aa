//! The gRPC service. Each rpc becomes a [`Call`], which has a context and ends with an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use traffic::Arriving;
use wire::query::query_service_server::QueryService;
use wire::query::*;
use wire::{Fault, asked_timeout, query};

use crate::call::Call;
use crate::counters::Rpc;
use crate::describe::{describe_table, list_tables};
use crate::get::get;
use crate::placement::placement;
use crate::request_context::RequestContext;
use crate::search::search;
use crate::state::ShardState;
use crate::status::status;
use crate::take::Take;
use crate::warm::Warm;

/// Maximum number of a stream's messages that wait for the connection while the next one is made.
const MESSAGES_AHEAD_MAX: usize = 2;

/// `bireme.query.v1.QueryService`.
pub struct Service(pub Arc<ShardState>);

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    fn begin<T>(&self, rpc: Rpc, request: &Request<T>) -> Call {
        let timeout = self.0.shared.config.timeout;
        let context = RequestContext::from_metadata(request.metadata(), timeout);
        Call::begin(&self.0, rpc, context)
    }
}

fn answer<T>(call: Call, answer: crate::error::Result<T>) -> Result<Response<T>, Status> {
    Ok(Response::new(call.end(answer)?))
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
        let mut call = self.begin(Rpc::Search, &request);
        let found = search(&self.0, request.into_inner(), &mut call).await;
        answer(call, found)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let mut call = self.begin(Rpc::Get, &request);
        let rows = get(&self.0, request.into_inner(), &mut call).await;
        answer(call, rows)
    }

    async fn get_stream(
        &self,
        request: Request<Streaming<GetRequest>>,
    ) -> Result<Response<Self::GetStreamStream>, Status> {
        let of_stream = StreamContext::of(&request, self.0.shared.config.timeout);
        let state = Arc::clone(&self.0);
        let arriving = request.extensions().get::<Arriving>().cloned().unwrap_or_default();
        let answers = request.into_inner().map(move |request| {
            let (state, arriving) = (Arc::clone(&state), arriving.clone());
            async move {
                let request = request?;
                let mut call = Call::begin(&state, Rpc::GetStream, of_stream.for_piece());
                let rows = get(&state, request, &mut call).await;
                arriving.taken();
                Ok(call.end(rows).unwrap_or_else(|fault| GetResponse {
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
        let of_stream = StreamContext::of(&request, self.0.shared.config.timeout);
        let mut call = self.begin(Rpc::Take, &request);
        let state = Arc::clone(&self.0);
        let mut take = match Take::new(&state, request.into_inner(), &mut call).await {
            Ok(take) => take,
            Err(error) => return answer(call, Err(error)),
        };
        let each = move |call: RequestContext| of_stream.for_piece().for_piece_of(call);
        if take.is_one_fetch() {
            let context = each(call.context);
            let messages = take.next(&state, &mut call, context).await;
            let messages = call.end(messages)?.into_iter().map(Ok);
            return Ok(Response::new(stream::iter(messages).boxed()));
        }
        let (messages, mut responses) = mpsc::channel(MESSAGES_AHEAD_MAX);
        tokio::spawn(async move {
            let sent = tokio::select! {
                biased;
                sent = take.send(&state, &messages, &mut call, each) => sent,
                // The caller is gone: dropping `take` cancels its reads, and the call ends as abandoned.
                () = messages.closed() => return,
            };
            if let Err(fault) = call.end(sent) {
                let _ = messages.send(Err(fault)).await;
            }
        });
        // An error of the first rows becomes the rpc's status.
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
        request: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        let call = self.begin(Rpc::ListTables, &request);
        answer(call, Ok(list_tables(&self.0)))
    }

    async fn describe_table(
        &self,
        request: Request<DescribeTableRequest>,
    ) -> Result<Response<DescribeTableResponse>, Status> {
        let call = self.begin(Rpc::DescribeTable, &request);
        let described = describe_table(&self.0, request.into_inner(), call.context).await;
        answer(call, described)
    }

    async fn warm(
        &self,
        request: Request<WarmRequest>,
    ) -> Result<Response<Self::WarmStream>, Status> {
        let call = self.begin(Rpc::Warm, &request);
        let state = Arc::clone(&self.0);
        let context = call.context;
        let warm = Warm::new(&state, request.into_inner(), context).boxed();
        let warm = match context.bound("open", warm).await {
            Ok(warm) => warm,
            Err(error) => return answer(call, Err(error)),
        };
        let (progress, responses) = mpsc::channel(MESSAGES_AHEAD_MAX);
        tokio::spawn(async move {
            tokio::select! {
                // The run has sent its errors as progress.
                () = warm.run(&progress, context) => drop(call.end(Ok(()))),
                // Dropping the run cancels it on the I/O nodes.
                () = progress.closed() => {}
            }
        });
        Ok(Response::new(statuses(responses)))
    }

    async fn placement(
        &self,
        request: Request<PlacementRequest>,
    ) -> Result<Response<PlacementResponse>, Status> {
        let call = self.begin(Rpc::Placement, &request);
        let placed = placement(&self.0, request.into_inner(), call.context).await;
        answer(call, placed)
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let call = self.begin(Rpc::Status, &request);
        answer(call, Ok(status(&self.0).await))
    }
}

/// The context of a stream, from which each request or fetch of the stream gets its own. If the caller has set a
/// deadline, it applies to the whole stream; otherwise each piece gets the default timeout.
#[derive(Clone, Copy)]
struct StreamContext {
    base: RequestContext,
    is_bound: bool,
    timeout: Duration,
}

impl StreamContext {
    fn of<T>(request: &Request<T>, timeout: Duration) -> Self {
        let base = RequestContext::from_metadata(request.metadata(), timeout);
        Self { base, is_bound: asked_timeout(request.metadata().as_ref()).is_some(), timeout }
    }

    fn for_piece(self) -> RequestContext {
        if self.is_bound { self.base } else { self.base.with_timeout(self.timeout) }
    }
}

fn statuses<T: Send + 'static>(responses: mpsc::Receiver<Result<T, Fault>>) -> Responses<T> {
    ReceiverStream::new(responses).map(|response| response.map_err(Status::from)).boxed()
}
