//! The calls of `bireme.fetch.v1` that tonic encodes: all but Fetch (`server.rs`).

use std::sync::Arc;

use tokio_stream::Pending;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_service_server::FetchService;
use wire::fetch::{
    DescribeRequest, DescribeResponse, FetchRequest, FetchResponse, WarmProgress, WarmRequest,
};

use super::service_state::ServiceState;
use super::{describe, warm};

/// The service without Fetch.
pub struct OtherCalls {
    /// The state that the services of all cores share.
    pub shared: Arc<ServiceState>,
    /// Cancelled when the node stops.
    pub stopping: CancellationToken,
}

#[tonic::async_trait]
impl FetchService for OtherCalls {
    type FetchStream = Pending<Result<FetchResponse, Status>>;
    type WarmStream = ReceiverStream<Result<WarmProgress, Status>>;

    async fn fetch(
        &self,
        _: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        Err(Status::internal("Fetch is answered by FetchServer"))
    }

    async fn warm(
        &self,
        request: Request<WarmRequest>,
    ) -> Result<Response<Self::WarmStream>, Status> {
        warm::begin(&self.shared.node, request.into_inner(), self.stopping.clone())
            .await
            .map(Response::new)
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(describe::describe(&self.shared).await))
    }
}
