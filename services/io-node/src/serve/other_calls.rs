//! The calls of `bireme.fetch.v1` that tonic encodes: all but Fetch (`server.rs`).

use std::sync::Arc;

use tokio_stream::Pending;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_service_server::FetchService;
use wire::fetch::{
    DescribeRequest, DescribeResponse, FetchRequest, FetchResponse, ReleaseRequest,
    ReleaseResponse, WarmProgress, WarmRequest,
};

use super::service_state::ServiceState;
use super::{describe, release, warm};
use crate::audit_line::{AuditLine, AuditedCall};

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
        let line = line(&request).await;
        let stopping = self.stopping.clone();
        let warmed = warm::begin(&self.shared.node, request.into_inner(), line, stopping).await;
        Ok(Response::new(warmed?))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let line = line(&request).await;
        let released = release::release(&self.shared.node, request.into_inner(), line).await;
        Ok(Response::new(released?))
    }

    async fn describe(
        &self,
        request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let mut line = line(&request).await;
        let described = describe::describe(&self.shared).await;
        if let Some(line) = &mut line {
            line.ends(Ok(()));
        }
        Ok(Response::new(described))
    }
}

/// Returns the line of a call in the audit log; `None` if the node has no audit log.
async fn line<T>(request: &Request<T>) -> Option<AuditLine> {
    match request.extensions().get::<AuditedCall>() {
        Some(call) => Some(call.line().await),
        None => None,
    }
}
