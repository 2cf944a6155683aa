//! The gRPC server of a core: tonic's own, but for what Fetch streams send.
//!
//! tonic encodes each message into a buffer of its own before it becomes HTTP/2 frames; the rows of a reply
//! go into frames as they are ([`ReplyBody`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codec::Codec as _;
use tonic::codegen::Service;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::NamedService;
use tonic::{Status, Streaming};
use wire::fetch::fetch_service_server::FetchServiceServer;
use wire::fetch::{FetchRequest, FetchResponse};
use wire::{Codec, FETCH_PATH, Fault, MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX, Reason};

use super::edge::Edge;
use super::reply_body::ReplyBody;
use super::request_body::RequestBody;
use super::stream::{self, STREAM_BYTES};
use crate::core::here;
use crate::node::Shared;

/// The largest message of a call beside Fetch, in bytes: a Warm of very many ranges.
const CALL_BYTES_MAX: usize = 1 << 20;

/// `bireme.fetch.v1.FetchService`.
#[derive(Clone)]
pub struct FetchServer {
    shared: Arc<Shared>,
    stopping: watch::Receiver<bool>,
    rest: FetchServiceServer<Edge>,
}

impl FetchServer {
    /// Serves until told to stop.
    pub fn new(shared: Arc<Shared>, stopping: watch::Receiver<bool>) -> Self {
        let edge = Edge { shared: Arc::clone(&shared), stopping: stopping.clone() };
        let rest = FetchServiceServer::new(edge)
            .max_decoding_message_size(CALL_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Self { shared, stopping, rest }
    }

    fn fetch(&self, request: http::Request<Body>) -> http::Response<Body> {
        if request.headers().get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
            return Status::unimplemented("send messages uncompressed").into_http();
        }
        let core = here();
        let Some(held) = core.traffic_memory.hold_standing(STREAM_BYTES) else {
            core.stats.shed.add(1);
            let what = "others hold all memory for streams; try again later";
            return Status::from(Fault::new(Reason::Overloaded, what)).into_http();
        };
        let decoder = Codec::<FetchResponse, FetchRequest>::default().decoder();
        let (body, arriving) = RequestBody::new(request.into_body());
        let asked = Streaming::new_request(decoder, body, None, Some(REQUEST_BYTES_MAX));
        let stopping = self.stopping.clone();
        let replies: ReplyBody = stream::begin(&self.shared, asked, arriving, held, stopping);
        let mut response = http::Response::new(Body::new(replies));
        let grpc: HeaderValue = GRPC_CONTENT_TYPE;
        response.headers_mut().insert(CONTENT_TYPE, grpc);
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
        match request.uri().path() {
            FETCH_PATH => std::future::ready(Ok(self.fetch(request))).boxed(),
            _ => self.rest.call(request),
        }
    }
}

impl NamedService for FetchServer {
    const NAME: &'static str = <FetchServiceServer<Edge> as NamedService>::NAME;
}
