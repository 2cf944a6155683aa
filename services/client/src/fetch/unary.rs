//! The calls that do not use a Fetch stream: Describe, Warm and Release.

use std::sync::Arc;
use std::time::Duration;

use endpoint::Endpoint;
use futures::{Stream, StreamExt};
use peers::{PROOF_HEADER, PendingProof, Prover};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::{DescribeRequest, DescribeResponse, ReleaseRequest, WarmProgress, WarmRequest};
use wire::{DESCRIBE_PATH, Fault, MESSAGE_BYTES_MAX, RELEASE_PATH, WARM_PATH};

use super::link::{no_io_node, unreachable};
use crate::transport::why;

/// A Warm's progress, until it is done. Dropping it cancels the Warm.
pub type WarmStream = std::pin::Pin<Box<dyn Stream<Item = Result<WarmProgress, Fault>> + Send>>;

/// A connection for Describe, Warm and Release. Cheap to clone.
#[derive(Clone)]
pub(super) struct Unary {
    endpoint: Endpoint,
    channel: Channel,
    service: FetchServiceClient<Channel>,
    prover: Option<Arc<Prover>>,
}

impl Unary {
    /// Creates a client that calls over `channel`. With a prover, the node has to prove that it knows the secret.
    pub fn new(endpoint: Endpoint, channel: Channel, prover: Option<Arc<Prover>>) -> Self {
        let service = FetchServiceClient::new(channel.clone());
        let service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
        Self { endpoint, channel, service, prover }
    }

    /// Returns the node's description and counters.
    pub async fn describe(&self, timeout: Duration) -> Result<DescribeResponse, Fault> {
        let (mut request, proof) = self.request(DescribeRequest {}, DESCRIBE_PATH);
        request.set_timeout(timeout);
        let mut service = self.service.clone();
        match tokio::time::timeout(timeout, service.describe(request)).await {
            Ok(answer) => self.answered(answer, proof).await,
            Err(_) => Err(self.late(timeout)),
        }
    }

    /// Evicts the blocks of a file. Returns how many there were. Idempotent.
    pub async fn release(&self, request: ReleaseRequest, timeout: Duration) -> Result<u64, Fault> {
        let (mut request, proof) = self.request(request, RELEASE_PATH);
        request.set_timeout(timeout);
        let mut service = self.service.clone();
        match tokio::time::timeout(timeout, service.release(request)).await {
            Ok(answer) => Ok(self.answered(answer, proof).await?.evicted),
            Err(_) => Err(self.late(timeout)),
        }
    }

    /// Fills chunks ahead of their use. Idempotent.
    pub async fn warm(&self, request: WarmRequest) -> Result<WarmStream, Fault> {
        let (request, proof) = self.request(request, WARM_PATH);
        let mut service = self.service.clone();
        let progress = service.warm(request).await;
        let progress = self.answered(progress, proof).await?;
        let this = self.clone();
        Ok(progress.map(move |step| step.map_err(|status| this.fault_of(&status))).boxed())
    }

    /// Returns the request for `rpc`, with a proof if there is a prover.
    fn request<T>(&self, message: T, rpc: &'static str) -> (Request<T>, Option<PendingProof>) {
        let mut request = Request::new(message);
        let proof = self.prover.as_ref().map(|prover| prover.begin(rpc, self.endpoint.address()));
        // A proof has only characters that a header may have.
        let header = proof.as_ref().and_then(|it| MetadataValue::try_from(it.header()).ok());
        if let Some(header) = header {
            request.metadata_mut().insert(PROOF_HEADER, header);
        }
        (request, proof)
    }

    async fn answered<T>(
        &self,
        answer: Result<Response<T>, Status>,
        proof: Option<PendingProof>,
    ) -> Result<T, Fault> {
        match answer {
            Ok(answer) => {
                let header = answer.metadata().get(PROOF_HEADER).map(|header| header.as_bytes());
                let proven = proof.map(|proof| proof.check(header)).transpose();
                proven.map_err(|error| self.unreachable(&error.to_string()))?;
                Ok(answer.into_inner())
            }
            Err(status) if status.code() == Code::Unimplemented => {
                Err(no_io_node(&self.endpoint, self.channel.clone(), &status).await)
            }
            Err(status) => Err(self.fault_of(&status)),
        }
    }

    fn late(&self, timeout: Duration) -> Fault {
        self.unreachable(&format!("no answer within {timeout:?}"))
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
