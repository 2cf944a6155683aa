//! A fake I/O node, whose answers a test provides.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use query_node::IoNodeConfig;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::fetch_service_server::{FetchService, FetchServiceServer};
use wire::fetch::*;

type Answers = dyn Fn(RequestKind) -> Vec<ResponseKind> + Send + Sync;

struct FakeIo(Arc<Answers>);

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves a node that welcomes each stream and answers each message with `answers`, and whose Warms never end. Returns
/// its configuration.
pub async fn serve(
    answers: impl Fn(RequestKind) -> Vec<ResponseKind> + Send + Sync + 'static,
) -> IoNodeConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let io = listener.local_addr().unwrap();
    let service = FetchServiceServer::new(FakeIo(Arc::new(answers)));
    let serving = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    IoNodeConfig::at(io.to_string()).named("io-0")
}

#[tonic::async_trait]
impl FetchService for FakeIo {
    type FetchStream = Responses<FetchResponse>;
    type WarmStream = Responses<WarmProgress>;

    async fn fetch(
        &self,
        request: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let welcome = Welcome { credit_rows: 1000, batch_rows_max: 1000, ..Default::default() };
        let answers = Arc::clone(&self.0);
        let said = request.into_inner().flat_map(move |request| {
            let asked = request.ok().and_then(|request| request.kind);
            futures::stream::iter(asked.map(|asked| answers(asked)).unwrap_or_default())
        });
        let said = futures::stream::iter([ResponseKind::Welcome(welcome)]).chain(said);
        Ok(Response::new(said.map(|kind| Ok(FetchResponse { kind: Some(kind) })).boxed()))
    }

    async fn warm(&self, _: Request<WarmRequest>) -> Result<Response<Self::WarmStream>, Status> {
        Ok(Response::new(futures::stream::pending().boxed()))
    }

    async fn release(
        &self,
        _: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse::default()))
    }
}
