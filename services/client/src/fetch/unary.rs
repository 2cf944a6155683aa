//! The calls beside the stream: Describe and Warm.

use futures::{Stream, StreamExt};
use tonic::Request;
use tonic::transport::Channel;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::{DescribeRequest, DescribeResponse, WarmProgress, WarmRequest};
use wire::{Fault, MESSAGE_BYTES_MAX};

use super::pool::FetchClient;

/// A Warm's progress, until it is done. Dropping it cancels the Warm.
pub type WarmStream = std::pin::Pin<Box<dyn Stream<Item = Result<WarmProgress, Fault>> + Send>>;

pub(super) fn unary_client(channel: Channel) -> FetchServiceClient<Channel> {
    FetchServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

impl FetchClient {
    /// The node's shape and counters.
    pub async fn describe(&self, timeout: std::time::Duration) -> Result<DescribeResponse, Fault> {
        let mut request = Request::new(DescribeRequest {});
        request.set_timeout(timeout);
        match tokio::time::timeout(timeout, self.unary().describe(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.blame(&status)),
            Err(_) => Err(self.unreachable(&format!("no answer within {timeout:?}"))),
        }
    }

    /// Fills chunks ahead of their use. Idempotent.
    pub async fn warm(&self, request: WarmRequest) -> Result<WarmStream, Fault> {
        let response = self.unary().warm(request).await.map_err(|status| self.blame(&status))?;
        let this = self.clone();
        let progress = response.into_inner();
        Ok(progress.map(move |step| step.map_err(|status| this.blame(&status))).boxed())
    }
}
