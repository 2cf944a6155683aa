//! The gRPC server of a core: tonic's, except for the responses of Fetch streams.
//!
//! tonic copies each message into a buffer before it becomes HTTP/2 frames. The rows of a reply go into frames without
//! that copy ([`ReplyBody`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use connections::{CallRule, Connection};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http::header::{CONTENT_TYPE, HeaderValue};
use peers::PROOF_HEADER;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codec::Codec as _;
use tonic::codegen::Service;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::NamedService;
use tonic::{Status, Streaming};
use traffic::IsCounted;
use wire::fetch::fetch_service_server::FetchServiceServer;
use wire::fetch::{FetchRequest, FetchResponse};
use wire::{Codec, FETCH_PATH, MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX, WARM_PATH};

use super::other_calls::OtherCalls;
use super::reply_body::ReplyBody;
use super::service_state::ServiceState;
use super::stream;

/// The largest Warm request, in bytes: it may list very many chunks or rows.
const WARM_BYTES_MAX: usize = 1 << 20;

/// Returns the rule for the call at `path`.
pub fn call_rule(path: &str) -> CallRule {
    match path {
        FETCH_PATH => CallRule::new(REQUEST_BYTES_MAX).talking(),
        // A Warm of a large table may take hours.
        WARM_PATH => CallRule::new(WARM_BYTES_MAX).outlasting(),
        _ => CallRule::for_path(path),
    }
}

/// `bireme.fetch.v1.FetchService`, which answers only the node's peers.
#[derive(Clone)]
pub struct FetchServer {
    shared: Arc<ServiceState>,
    stopping: CancellationToken,
    other_calls: FetchServiceServer<OtherCalls>,
}

impl FetchServer {
    /// Creates the server. Its streams end after `stopping` is cancelled.
    pub fn new(shared: Arc<ServiceState>, stopping: CancellationToken) -> Self {
        let calls = OtherCalls { shared: Arc::clone(&shared), stopping: stopping.clone() };
        let other_calls = FetchServiceServer::new(calls)
            .max_decoding_message_size(WARM_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Self { shared, stopping, other_calls }
    }

    fn fetch(&self, request: http::Request<Body>) -> http::Response<Body> {
        if request.headers().get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
            return Status::unimplemented("send messages uncompressed").into_http();
        }
        let extensions = request.extensions();
        let (Some(connection), Some(arriving)) =
            (extensions.get::<Arc<Connection>>().cloned(), extensions.get().cloned())
        else {
            return Status::internal("a stream without its connection").into_http();
        };
        let decoder = Codec::<FetchResponse, FetchRequest>::default().decoder();
        let body = request.into_body();
        let asked = Streaming::new_request(decoder, body, None, Some(REQUEST_BYTES_MAX));
        let stopping = self.stopping.clone();
        let replies: ReplyBody =
            stream::begin(&self.shared.node, asked, arriving, &connection, stopping);
        let mut response = http::Response::new(Body::new(replies));
        let grpc: HeaderValue = GRPC_CONTENT_TYPE;
        response.headers_mut().insert(CONTENT_TYPE, grpc);
        response.extensions_mut().insert(IsCounted);
        response
    }
}

impl Service<http::Request<Body>> for FetchServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let connection = request.extensions().get::<Arc<Connection>>();
        let proof = request.headers().get(PROOF_HEADER).map(HeaderValue::as_bytes);
        let rpc = request.uri().path();
        let admitted = self.shared.peers.admit(connection.map(AsRef::as_ref), rpc, proof);
        let answer = match admitted {
            Ok(admitted) => admitted.answer,
            Err(fault) => return std::future::ready(Ok(Status::from(fault).into_http())).boxed(),
        };
        let prove = |mut response: http::Response<Body>| {
            if let Some(answer) = answer {
                response.headers_mut().insert(PROOF_HEADER, answer);
            }
            response
        };
        match request.uri().path() {
            FETCH_PATH => std::future::ready(Ok(prove(self.fetch(request)))).boxed(),
            _ => self.other_calls.call(request).map_ok(prove).boxed(),
        }
    }
}

impl NamedService for FetchServer {
    const NAME: &'static str = <FetchServiceServer<OtherCalls> as NamedService>::NAME;
}
