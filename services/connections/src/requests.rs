//! Counts each request of a connection, bounds its memory and its time, and passes it on to the services of the core.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use traffic::{
    Arriving, Form, IsCounted, ReplyBody, RequestBody, StreamRoom, TrafficMemory, memory_full,
};
use wire::{DEADLINE_MAX, Fault, Reason, asked_timeout};

use crate::connection::{Connection, OpenStream, OpenWatch, WATCHES_MAX};

/// The memory that is charged for an open request: HTTP/2's state, its headers (at most 16 KiB), and its task.
pub const REQUEST_BYTES: u64 = 16 << 10;

/// The time for which the rest of a refused request is read, and the bytes after which reading stops. A stream that is
/// answered before its request has ended is reset. Data that arrives after h2 has forgotten that stream causes a
/// further reset, and h2 ends a connection after 1,024 of these. A caller with many requests in flight would lose all
/// of them because some were refused.
const REFUSED_TIME_MAX: Duration = Duration::from_millis(100);
const REFUSED_BYTES_MAX: usize = 64 << 10;

/// The rules for the requests of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRule {
    /// The size of the largest message, in bytes.
    pub message_bytes_max: usize,
    /// The effect of the method's streams on their connection.
    pub streams: Streams,
    /// Whether the service reads messages without taking their accounts ([`Arriving::take`]). Their bytes are given back
    /// when it reads on.
    pub frees_read: bool,
    /// Whether the call is plain HTTP rather than gRPC: its request and its reply are bodies without gRPC's frames.
    pub is_plain: bool,
}

/// The calls of a node that are plain HTTP.
#[derive(Clone)]
pub struct PlainCalls {
    /// Makes the answer to a call that is refused before its service sees it.
    pub refuse: Arc<Refuse>,
}

/// Makes the answer to a refused call from the headers of its request.
pub type Refuse = dyn Fn(Fault, &HeaderMap) -> Response<Body> + Send + Sync;

/// The effect of a stream on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// The connection is not idle while the stream is open. The stream ends with the connection.
    Use,
    /// Like `Use`, but the caller may take as long as it likes to send its messages.
    Talk,
    /// The stream may outlast the connection's grace, until it ends by itself, unless the connection is no longer
    /// trusted. No other stream can be opened on the connection once its grace has begun.
    Outlast,
    /// The stream does not count as use: the connection stays idle, and may be closed for a new one.
    Watch,
}

/// A function that returns the rules of a method by its path.
pub type CallRules = dyn Fn(&str) -> CallRule + Send + Sync;

/// The size of the largest message of health checks and reflection, in bytes. Such messages carry little more than a
/// name.
const NAME_BYTES_MAX: usize = 64 << 10;

impl CallRule {
    /// Creates the rule of a method whose messages have at most `message_bytes_max` bytes.
    pub fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, streams: Streams::Use, frees_read: false, is_plain: false }
    }

    /// Creates the rule of a plain call whose body has at most `body_bytes_max` bytes.
    pub fn plain(body_bytes_max: usize) -> Self {
        Self { is_plain: true, ..Self::new(body_bytes_max) }
    }

    /// Returns the rule of a method that every node serves: health checks and reflection.
    pub fn for_path(path: &str) -> Self {
        match path {
            "/grpc.health.v1.Health/Watch" => {
                Self { streams: Streams::Watch, ..Self::new(NAME_BYTES_MAX) }
            }
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => {
                Self { frees_read: true, ..Self::new(NAME_BYTES_MAX).talking() }
            }
            _ => Self::new(NAME_BYTES_MAX),
        }
    }

    /// Sets [`Streams::Talk`].
    pub fn talking(self) -> Self {
        Self { streams: Streams::Talk, ..self }
    }

    /// Sets [`Streams::Outlast`].
    pub fn outlasting(self) -> Self {
        Self { streams: Streams::Outlast, ..self }
    }
}

/// Serves the requests of one connection with the services of a core.
#[derive(Clone)]
pub struct Requests {
    pub routes: Routes,
    pub memory: Arc<TrafficMemory>,
    pub connection: Arc<Connection>,
    pub rules: Arc<CallRules>,
    pub plain: Option<PlainCalls>,
}

/// The resources that a request holds until its reply has been sent.
pub struct InFlight {
    _stream: Option<OpenStream>,
    _watch: Option<OpenWatch>,
    _room: Option<Arc<StreamRoom>>,
    _arriving: Arriving,
}

impl InFlight {
    /// Returns the resources of a request that is refused before it holds any.
    fn nothing() -> Self {
        Self { _stream: None, _watch: None, _room: None, _arriving: Arriving::default() }
    }
}

/// Why a request is refused, and the request.
type Refused = (Fault, Request<Incoming>);

impl Requests {
    fn begin(
        &self,
        request: Request<Incoming>,
        rule: CallRule,
    ) -> Result<(Request<Body>, InFlight), Box<Refused>> {
        let Some(room) = self.memory.open_stream(REQUEST_BYTES) else {
            self.memory.count_refused();
            return Err(Box::new((memory_full(), request)));
        };
        let CallRule { message_bytes_max, streams, frees_read, is_plain } = rule;
        let mut watch = None;
        let stream = match streams {
            Streams::Use | Streams::Talk => Some(self.connection.open(false)),
            Streams::Outlast => Some(self.connection.open(true)),
            Streams::Watch => {
                watch = self.connection.watch();
                if watch.is_none() {
                    let what = format!("a connection has at most {WATCHES_MAX} watches at a time");
                    return Err(Box::new((Fault::new(Reason::Overloaded, what), request)));
                }
                None
            }
        };
        let (head, body) = request.into_parts();
        let holder = self.connection.holder();
        let form = if is_plain { Form::Plain } else { Form::Grpc };
        let (body, arriving) =
            RequestBody::new(body, &self.memory, holder, form, message_bytes_max);
        let body = body.in_room(&room, streams == Streams::Talk, frees_read);
        let mut request = Request::from_parts(head, Body::new(body));
        request.extensions_mut().insert(arriving.clone());
        request.extensions_mut().insert(Arc::clone(&self.connection));
        let held =
            InFlight { _stream: stream, _watch: watch, _room: Some(room), _arriving: arriving };
        Ok((request, held))
    }

    fn refuse(&self, fault: Fault, rule: CallRule, headers: &HeaderMap) -> Response<Body> {
        match &self.plain {
            Some(plain) if rule.is_plain => (plain.refuse)(fault, headers),
            _ => Status::from(fault).into_http(),
        }
    }

    fn end(
        &self,
        response: Response<Body>,
        rule: CallRule,
        held: InFlight,
    ) -> Response<ReplyBody<InFlight>> {
        let is_counted = response.extensions().get::<IsCounted>().is_some();
        let form = if rule.is_plain { Form::Plain } else { Form::Grpc };
        let holder = self.connection.holder();
        response.map(|body| ReplyBody::new(body, &self.memory, holder, form, is_counted, held))
    }
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<ReplyBody<InFlight>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut this = self.clone();
        async move {
            let timeout = asked_timeout(request.headers()).map(|asked| asked.min(DEADLINE_MAX));
            let rule = (this.rules)(request.uri().path());
            if let Some(plain) = &this.plain
                && !rule.is_plain
                && request.version() < Version::HTTP_2
            {
                // Over HTTP/1.1 the status of an answer that breaks off would be lost.
                let what = "gRPC is served over HTTP/2 alone; plain HTTP has the paths below /v1/";
                let refused =
                    (plain.refuse)(Fault::new(Reason::BadProtocol, what), request.headers());
                let nothing = InFlight::nothing();
                return Ok(this.end(refused, CallRule { is_plain: true, ..rule }, nothing));
            }
            let headers = timeout.filter(|_| rule.is_plain).map(|_| request.headers().clone());
            let (request, held) = match this.begin(request, rule) {
                Ok(begun) => begun,
                Err(refused) => {
                    let (fault, request) = *refused;
                    let (head, body) = request.into_parts();
                    read_rest(body, REFUSED_TIME_MAX, REFUSED_BYTES_MAX).await;
                    let refused = this.refuse(fault, rule, &head.headers);
                    return Ok(this.end(refused, rule, InFlight::nothing()));
                }
            };
            let answer = this.routes.call(request);
            let answer = match timeout {
                None => answer.await,
                Some(timeout) => match tokio::time::timeout(timeout, answer).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        Ok(this.refuse(deadline_exceeded(), rule, &headers.unwrap_or_default()))
                    }
                },
            };
            let response = answer.unwrap_or_else(|never: Infallible| match never {});
            Ok(this.end(response, rule, held))
        }
        .boxed()
    }
}

/// Reads the rest of a refused request, so that the request ends on both sides. Stops after `time_max`, or after more
/// than `bytes_max` bytes.
pub async fn read_rest(
    mut body: impl http_body::Body<Data = Bytes> + Unpin,
    time_max: Duration,
    bytes_max: usize,
) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len());
            if bytes > bytes_max {
                break;
            }
        }
    };
    // The answer is the same whether the request has ended or not.
    let _ = tokio::time::timeout(time_max, reading).await;
}

fn deadline_exceeded() -> Fault {
    let what = "the deadline passed before the answer was ready; allow more time";
    Fault::new(Reason::DeadlineExceeded, what)
}
