//! The gRPC service. Each rpc becomes a [`Call`], which has a context and ends with an answer. Two rpcs consist of many
//! calls instead: a GetStream has one for each request, and a Lookup one for each opening of a projection and each
//! group of batches.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use connections::Connection;
use futures::future::{self, BoxFuture};
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use traffic::Arriving;
use wire::Fault;
use wire::query::query_service_server::QueryService;
use wire::query::*;

use crate::call::{Call, IdentifiedCaller, Stranger, StreamCalls, address_of, identify};
use crate::counters::Rpc;
use crate::request_context::RequestContext;
use crate::requests::{
    LookupStream, PIECES_AHEAD_MAX, Take, Tune, Warm, count, describe_table, get, get_stream,
    in_pieces, list_tables, list_tags, list_versions, placement, search, status,
};
use crate::state::ShardState;

/// Implements `bireme.query.v1.QueryService` on one core.
pub struct Service(pub Arc<ShardState>);

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    /// Identifies the caller and begins the call.
    pub async fn begin<T>(&self, rpc: Rpc, request: &Request<T>) -> Result<Call, Fault> {
        let context = self.context(request);
        let caller = self.identify(rpc, request, context).await?;
        Call::begin(&self.0, rpc, context, caller).await
    }

    /// Identifies the caller of a stream, on which calls begin later.
    async fn stream_calls<T>(&self, rpc: Rpc, request: &Request<T>) -> Result<StreamCalls, Fault> {
        let context = self.context(request);
        let caller = self.identify(rpc, request, context).await?;
        Ok(StreamCalls::new(Arc::clone(&self.0), rpc, context, caller))
    }

    fn context<T>(&self, request: &Request<T>) -> RequestContext {
        RequestContext::from_metadata(request.metadata(), self.0.shared.config.timeout)
    }

    /// Identifies the caller. A refusal is counted and written into the audit log.
    async fn identify<T>(
        &self,
        rpc: Rpc,
        request: &Request<T>,
        context: RequestContext,
    ) -> Result<IdentifiedCaller, Fault> {
        let began = Instant::now();
        match identify(&self.0.shared.access, request).await {
            Ok(caller) => Ok(caller),
            Err(denied) => {
                let stranger = Stranger { identity: None, address: address_of(request), denied };
                Err(stranger.refuse(&self.0, rpc, began.elapsed(), context).await)
            }
        }
    }
}

/// Returns a future that completes when the connection of a stream is about to end.
fn retirement<T>(request: &Request<T>) -> BoxFuture<'static, ()> {
    match request.extensions().get::<Arc<Connection>>() {
        Some(connection) => connection.retires().cancelled_owned().boxed(),
        None => future::pending().boxed(),
    }
}

fn answer<T>(call: Call, answer: crate::error::Result<T>) -> Result<Response<T>, Status> {
    Ok(Response::new(call.end(answer)?))
}

#[tonic::async_trait]
impl QueryService for Service {
    type GetStreamStream = Responses<GetResponse>;
    type LookupStream = Responses<LookupResponse>;
    type TakeStream = Responses<TakeResponse>;
    type TuneStream = Responses<TuneProgress>;
    type WarmStream = Responses<WarmProgress>;

    async fn search(
        &self,
        request: Request<SearchRequest>,
    ) -> Result<Response<SearchResponse>, Status> {
        let mut call = self.begin(Rpc::Search, &request).await?;
        let found = search(&self.0, request.into_inner(), &mut call).await;
        answer(call, found)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let mut call = self.begin(Rpc::Get, &request).await?;
        let rows = get(request.into_inner(), &mut call).await;
        let rows = rows.map(|rows| rows.sent(&mut call));
        answer(call, rows)
    }

    async fn get_stream(
        &self,
        request: Request<Streaming<GetRequest>>,
    ) -> Result<Response<Self::GetStreamStream>, Status> {
        let calls = self.stream_calls(Rpc::GetStream, &request).await?;
        let arriving = request.extensions().get::<Arriving>().cloned().unwrap_or_default();
        let retires = retirement(&request);
        let answers = get_stream(&self.0, calls, arriving, request.into_inner(), retires);
        Ok(Response::new(answers.boxed()))
    }

    async fn lookup(
        &self,
        request: Request<Streaming<LookupRequest>>,
    ) -> Result<Response<Self::LookupStream>, Status> {
        let calls = self.stream_calls(Rpc::Lookup, &request).await?;
        let arriving = request.extensions().get::<Arriving>().cloned().unwrap_or_default();
        let retires = retirement(&request);
        let stream = LookupStream::new(calls, arriving, request.into_inner(), retires);
        Ok(Response::new(stream.boxed()))
    }

    async fn take(
        &self,
        request: Request<TakeRequest>,
    ) -> Result<Response<Self::TakeStream>, Status> {
        let mut call = self.begin(Rpc::Take, &request).await?;
        let state = Arc::clone(&self.0);
        let mut take = match Take::new(&state, request.into_inner(), &mut call).await {
            Ok(take) => take,
            Err(error) => return answer(call, Err(error)),
        };
        if take.is_one_fetch() {
            let messages = take.next(&state, &mut call).await;
            // The messages are parts of one buffer, which lasts until the last of them has been read.
            let held = call.take_ready();
            let messages = call.end(messages)?.into_iter().map(move |message| {
                let _held = &held;
                Ok(message)
            });
            return Ok(Response::new(stream::iter(messages).boxed()));
        }
        let sent = in_pieces(call, move |messages, call| {
            async move { take.send(&state, messages, call).await }.boxed()
        });
        let (first, rest) = sent.await?;
        Ok(Response::new(stream::iter([Ok(first)]).chain(statuses(rest)).boxed()))
    }

    async fn count(
        &self,
        request: Request<CountRequest>,
    ) -> Result<Response<CountResponse>, Status> {
        let mut call = self.begin(Rpc::Count, &request).await?;
        let counted = count(&self.0, request.into_inner(), &mut call).await;
        answer(call, counted)
    }

    async fn list_tables(
        &self,
        request: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        let mut call = self.begin(Rpc::ListTables, &request).await?;
        let tables = list_tables(&self.0, &mut call);
        answer(call, tables)
    }

    async fn describe_table(
        &self,
        request: Request<DescribeTableRequest>,
    ) -> Result<Response<DescribeTableResponse>, Status> {
        let mut call = self.begin(Rpc::DescribeTable, &request).await?;
        let described = describe_table(&self.0, request.into_inner(), &mut call).await;
        answer(call, described)
    }

    async fn list_versions(
        &self,
        request: Request<ListVersionsRequest>,
    ) -> Result<Response<ListVersionsResponse>, Status> {
        let mut call = self.begin(Rpc::ListVersions, &request).await?;
        let listed = list_versions(&self.0, request.into_inner(), &mut call).await;
        answer(call, listed)
    }

    async fn list_tags(
        &self,
        request: Request<ListTagsRequest>,
    ) -> Result<Response<ListTagsResponse>, Status> {
        let mut call = self.begin(Rpc::ListTags, &request).await?;
        let listed = list_tags(&self.0, request.into_inner(), &mut call).await;
        answer(call, listed)
    }

    async fn tune(
        &self,
        request: Request<TuneRequest>,
    ) -> Result<Response<Self::TuneStream>, Status> {
        let mut call = self.begin(Rpc::Tune, &request).await?;
        let state = Arc::clone(&self.0);
        let context = call.context;
        let tune = Tune::new(request.into_inner(), &mut call).boxed();
        let tune = match context.bound("open", tune).await {
            Ok(tune) => tune,
            Err(error) => return answer(call, Err(error)),
        };
        let context = call.context;
        let (progress, responses) = mpsc::channel(PIECES_AHEAD_MAX);
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                // Dropping the run cancels its reads and searches.
                () = progress.closed() => return,
                ended = tune.run(&state, &progress, context).boxed() => ended,
                error = call.must_end("tune") => Err(error),
            };
            if let Err(fault) = call.end(ended) {
                let _ = progress.send(Err(fault)).await;
            }
        });
        Ok(Response::new(statuses(responses)))
    }

    async fn warm(
        &self,
        request: Request<WarmRequest>,
    ) -> Result<Response<Self::WarmStream>, Status> {
        let mut call = self.begin(Rpc::Warm, &request).await?;
        let state = Arc::clone(&self.0);
        let context = call.context;
        let warm = Warm::new(&state, request.into_inner(), &mut call).boxed();
        let warm = match context.bound("open", warm).await {
            Ok(warm) => warm,
            Err(error) => return answer(call, Err(error)),
        };
        let context = call.context;
        let (progress, responses) = mpsc::channel(PIECES_AHEAD_MAX);
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                // Dropping the run cancels it on the I/O nodes.
                () = progress.closed() => return,
                ended = warm.run(&progress, context) => ended,
                error = call.must_end("warm") => Err(error),
            };
            if let Err(fault) = call.end(ended) {
                let _ = progress.send(Err(fault)).await;
            }
        });
        Ok(Response::new(statuses(responses)))
    }

    async fn placement(
        &self,
        request: Request<PlacementRequest>,
    ) -> Result<Response<PlacementResponse>, Status> {
        let mut call = self.begin(Rpc::Placement, &request).await?;
        let placed = placement(&self.0, request.into_inner(), &mut call).await;
        answer(call, placed)
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let mut call = self.begin(Rpc::Status, &request).await?;
        let status = status(&self.0, &mut call).await;
        answer(call, status)
    }
}

fn statuses<T: Send + 'static>(responses: mpsc::Receiver<Result<T, Fault>>) -> Responses<T> {
    ReceiverStream::new(responses).map(|response| response.map_err(Status::from)).boxed()
}
