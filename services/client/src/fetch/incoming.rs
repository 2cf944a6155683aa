//! Receives the messages of an I/O node on a Fetch stream.
//!
//! tonic carries the call, but its messages are joined and decoded here ([`ResponseDecoder`]), because tonic's decoder
//! copies all rows a second time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body::Body as _;
use peers::{PROOF_HEADER, PendingProof, Secret};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{Codec as _, EncodeBody};
use tonic::codegen::Service;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::transport::Channel;
use tonic::{Code, Status};
use wire::fetch::{FetchRequest, FetchResponse};
use wire::{BufferPool, Codec, FETCH_PATH, MESSAGE_BYTES_MAX, ResponseDecoder, status_of};

/// The messages of one stream.
pub(super) struct Incoming {
    body: Body,
    decoder: ResponseDecoder,
    /// The secret that the node has proved it knows, if there is one.
    secret: Option<Arc<Secret>>,
}

impl Incoming {
    /// Begins a stream that sends `requests`. Large replies use memory from `buffers`. With a proof, the node has to
    /// prove that it knows the secret too. Until then, the node is sent only this side's proof, and only the headers of
    /// its response are read.
    pub async fn begin(
        mut channel: Channel,
        requests: mpsc::Receiver<FetchRequest>,
        buffers: &Arc<BufferPool>,
        proof: Option<PendingProof>,
    ) -> Result<Self, Status> {
        let broken = |error: tonic::transport::Error| Status::from_error(Box::new(error));
        poll_fn(|cx| channel.poll_ready(cx)).await.map_err(broken)?;
        let encoder = Codec::<FetchRequest, FetchResponse>::default().encoder();
        let requests = ReceiverStream::new(requests).map(Ok);
        let body = EncodeBody::new_client(encoder, requests, None, Some(MESSAGE_BYTES_MAX));
        let mut request = http::Request::new(Body::new(body));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = http::Uri::from_static(FETCH_PATH);
        let grpc: HeaderValue = GRPC_CONTENT_TYPE;
        request.headers_mut().insert(CONTENT_TYPE, grpc);
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        if let Some(proof) = &proof {
            request.headers_mut().insert(PROOF_HEADER, header(proof)?);
        }
        let response = channel.call(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        match status_of(&head.headers) {
            // A response without a body has its status in the headers.
            Some(status) if status.code() != Code::Ok => Err(status),
            _ if head.status == StatusCode::NOT_FOUND => {
                Err(Status::unimplemented("it has no such service"))
            }
            _ if head.status != StatusCode::OK => {
                Err(Status::unknown(format!("it answered with HTTP status {}", head.status)))
            }
            _ if !is_grpc(&head.headers) => Err(Status::unknown("it speaks no gRPC")),
            _ => {
                let answer = head.headers.get(PROOF_HEADER).map(HeaderValue::as_bytes);
                let secret = proof.map(|proof| proof.check(answer)).transpose();
                let secret = secret.map_err(|error| Status::unauthenticated(error.to_string()))?;
                Ok(Self { body, decoder: ResponseDecoder::new(Arc::clone(buffers)), secret })
            }
        }
    }

    /// Returns whether the secret that the node has proved it knows has been withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.secret.as_ref().is_some_and(|secret| secret.is_withdrawn())
    }

    /// Returns the next message, or `None` after the last one. Cancel-safe.
    pub async fn message(&mut self) -> Result<Option<FetchResponse>, Status> {
        loop {
            if let Some(message) = self.decoder.next_message() {
                return Ok(Some(message));
            }
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            let Some(frame) = frame.transpose()? else {
                return self.end(Status::ok(""));
            };
            match frame.into_data() {
                Ok(data) => {
                    let pushed = self.decoder.push(data);
                    pushed.map_err(|error| Status::internal(error.to_string()))?;
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return self.end(status_of(&trailers).unwrap_or(Status::ok("")));
                }
            }
        }
    }

    fn end(&self, status: Status) -> Result<Option<FetchResponse>, Status> {
        match status.code() {
            Code::Ok if self.decoder.is_empty() => Ok(None),
            Code::Ok => Err(Status::internal("the stream ended within a message")),
            _ => Err(status),
        }
    }
}

fn header(proof: &PendingProof) -> Result<HeaderValue, Status> {
    HeaderValue::try_from(proof.header()).map_err(|error| Status::internal(error.to_string()))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let grpc: HeaderValue = GRPC_CONTENT_TYPE;
    headers.get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().starts_with(grpc.as_bytes()))
}
