//! The calls beside the stream: Describe and Warm.

use std::time::Duration;

use endpoint::Endpoint;
use futures::{Stream, StreamExt};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::{DescribeRequest, DescribeResponse, WarmProgress, WarmRequest};
use wire::{Fault, MESSAGE_BYTES_MAX};

use super::link::{no_io_node, unreachable};
use crate::transport::why;

/// A Warm's progress, until it is done. Dropping it cancels the Warm.
pub type WarmStream = std::pin::Pin<Box<dyn Stream<Item = Result<WarmProgress, Fault>> + Send>>;

/// A connection for Describe and Warm. Cheap to clone.
#[derive(Clone)]
pub(super) struct Unary {
    endpoint: Endpoint,
    channel: Channel,
    service: FetchServiceClient<Channel>,
}

impl Unary {
    pub fn new(endpoint: Endpoint, channel: Channel) -> Self {
        let service = FetchServiceClient::new(channel.clone());
        let service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
        Self { endpoint, channel, service }
    }

    /// Returns the node's description and counters.
    pub async fn describe(&self, timeout: Duration) -> Result<DescribeResponse, Fault> {
        let mut request = Request::new(DescribeRequest {});
        request.set_timeout(timeout);
        let mut service = self.service.clone();
        match tokio::time::timeout(timeout, service.describe(request)).await {
            Ok(answer) => self.answered(answer).await,
            Err(_) => Err(self.unreachable(&format!("no answer within {timeout:?}"))),
        }
    }

    /// Fills chunks ahead of their use. Idempotent.
    pub async fn warm(&self, request: WarmRequest) -> Result<WarmStream, Fault> {
        let mut service = self.service.clone();
        let progress = service.warm(request).await;
        let progress = self.answered(progress).await?;
        let this = self.clone();
        Ok(progress.map(move |step| step.map_err(|status| this.fault_of(&status))).boxed())
    }

    async fn answered<T>(&self, answer: Result<Response<T>, Status>) -> Result<T, Fault> {
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) if status.code() == Code::Unimplemented => {
                Err(no_io_node(&self.endpoint, self.channel.clone(), &status).await)
            }
            Err(status) => Err(self.fault_of(&status)),
        }
    }

    fn unreachable(&self, why: &str) -> Fault {
        unreachable(&self.endpoint, why)
    }

    /// Converts a status to a fault. A status of the connection becomes a fault that names the endpoint.
    fn fault_of(&self, status: &Status) -> Fault {
        let has_cause = std::error::Error::source(status).is_some();
        match status.code() {
            _ if !status.details().is_empty() => Fault::from_status(status),
            Code::Unavailable | Code::Unimplemented | Code::Unknown => {
                self.unreachable(&why(status))
            }
            _ if has_cause => self.unreachable(&why(status)),
            _ => Fault::from_status(status),
        }
    }
}
