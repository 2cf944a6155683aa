//! The gRPC server of a core: tonic's, except for the responses of Fetch streams.
//!
//! tonic copies each message into a buffer before it becomes HTTP/2 frames. The rows of a reply go into frames without
//! that copy ([`ReplyBody`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use connections::{CallRule, Connection};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use peers::PROOF_HEADER;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::NamedService;
use tonic::{Status, Streaming};
use traffic::IsCounted;
use wire::fetch::fetch_service_server::FetchServiceServer;
use wire::{
    DESCRIBE_PATH, FETCH_PATH, FetchRequestDecoder, MESSAGE_BYTES_MAX, RELEASE_PATH,
    REQUEST_BYTES_MAX, WARM_PATH,
};

use super::other_calls::OtherCalls;
use super::peer_gate::{Admitted, Refusal};
use super::reply_body::ReplyBody;
use super::service_state::ServiceState;
use super::stream;
use crate::audit_line::{AuditLine, AuditedCall};

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

/// `bireme.fetch.v1.FetchService`, which answers the callers that [`PeerGate`](super::PeerGate) admits.
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

    fn fetch(
        &self,
        request: http::Request<Body>,
        audit: Option<(AuditedCall, AuditLine)>,
    ) -> http::Response<Body> {
        if request.headers().get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
            return Status::unimplemented("send messages uncompressed").into_http();
        }
        let extensions = request.extensions();
        let (Some(connection), Some(arriving)) =
            (extensions.get::<Arc<Connection>>().cloned(), extensions.get().cloned())
        else {
            return Status::internal("a stream without its connection").into_http();
        };
        let body = request.into_body();
        let asked =
            Streaming::new_request(FetchRequestDecoder, body, None, Some(REQUEST_BYTES_MAX));
        let stopping = self.stopping.clone();
        let replies: ReplyBody =
            stream::begin(&self.shared.node, asked, arriving, &connection, audit, stopping);
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
        let mut this = self.clone();
        async move { Ok(this.answer(request).await) }.boxed()
    }
}

impl FetchServer {
    /// Answers a call, or refuses its caller.
    async fn answer(&mut self, mut request: http::Request<Body>) -> http::Response<Body> {
        let connection = request.extensions().get::<Arc<Connection>>().map(AsRef::as_ref);
        let proof = request.headers().get(PROOF_HEADER).map(HeaderValue::as_bytes);
        let admitted = self.shared.peers.admit(connection, request.uri().path(), proof);
        let Admitted { caller, answer } = match admitted {
            Ok(admitted) => admitted,
            Err(Refusal { fault, cause }) => {
                if let Some(call) = self.audited(&request, None) {
                    call.line().await.is_refused(cause);
                }
                return Status::from(fault).into_http();
            }
        };
        let audited = self.audited(&request, caller);
        let mut response = match (request.uri().path(), audited) {
            (FETCH_PATH, Some(call)) => {
                let line = call.line().await;
                self.fetch(request, Some((call, line)))
            }
            (FETCH_PATH, None) => self.fetch(request, None),
            (_, audited) => {
                if let Some(call) = audited {
                    request.extensions_mut().insert(call);
                }
                let Ok(response) = self.other_calls.call(request).await;
                response
            }
        };
        if let Some(answer) = answer {
            response.headers_mut().insert(PROOF_HEADER, answer);
        }
        response
    }

    /// Returns the call for its lines in the audit log; `None` if the node has no audit log.
    fn audited(
        &self,
        request: &http::Request<Body>,
        caller: Option<String>,
    ) -> Option<AuditedCall> {
        let audit = self.shared.node.audit.as_ref()?;
        let connection = request.extensions().get::<Arc<Connection>>();
        let peer = connection.and_then(|connection| connection.peer().address);
        let rpc = match request.uri().path() {
            FETCH_PATH => "bireme.fetch.v1.FetchService/Fetch",
            WARM_PATH => "bireme.fetch.v1.FetchService/Warm",
            RELEASE_PATH => "bireme.fetch.v1.FetchService/Release",
            DESCRIBE_PATH => "bireme.fetch.v1.FetchService/Describe",
            _ => "bireme.fetch.v1.FetchService",
        };
        Some(AuditedCall::new(audit, &self.shared.node.config.name, caller, peer, rpc))
    }
}

impl NamedService for FetchServer {
    const NAME: &'static str = <FetchServiceServer<OtherCalls> as NamedService>::NAME;
}
