//! Calls of gRPC methods whose messages are made and sent by hand.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

use super::cluster::Node;

/// A message that announces `announced` bytes, of which only `sent` are sent.
pub struct Unfinished {
    pub prefix: Option<Bytes>,
    pub left: usize,
}

impl Unfinished {
    pub fn new(announced: u32, sent: usize) -> Self {
        let mut prefix = BytesMut::new();
        prefix.put_u8(0);
        prefix.put_u32(announced);
        Self { prefix: Some(prefix.freeze()), left: sent }
    }
}

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(prefix) = self.prefix.take() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        let chunk = self.left.min(64 << 10);
        if chunk == 0 {
            return Poll::Pending;
        }
        self.left -= chunk;
        // Bytes with the continuation bit set: a varint that never ends.
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0xff; chunk])))))
    }
}

pub async fn call(
    mut channel: Channel,
    path: &'static str,
    body: Body,
    timeout: Option<&'static str>,
) -> Result<http::Response<Body>, String> {
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.map_err(|error| error.to_string())?;
    let mut request = http::Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = http::Uri::from_static(path);
    let headers = request.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static("application/grpc"));
    headers.insert("te", http::HeaderValue::from_static("trailers"));
    if let Some(timeout) = timeout {
        headers.insert("grpc-timeout", http::HeaderValue::from_static(timeout));
    }
    channel.call(request).await.map_err(|error| format!("{error:?}"))
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub async fn connect(node: &Node) -> Channel {
    let endpoint = Endpoint::from_shared(node.endpoint.clone()).unwrap();
    endpoint.initial_stream_window_size(64 << 10).connect().await.unwrap()
}

pub fn of_query(call: &str) -> &'static str {
    match call {
        "Take" => "/bireme.query.v1.QueryService/Take",
        "Get" => "/bireme.query.v1.QueryService/Get",
        "GetStream" => "/bireme.query.v1.QueryService/GetStream",
        "Lookup" => "/bireme.query.v1.QueryService/Lookup",
        "Search" => "/bireme.query.v1.QueryService/Search",
        _ => "/bireme.query.v1.QueryService/Status",
    }
}

/// Returns a Search for `k` rows with three columns, encoded for the wire.
pub fn search(k: u32) -> Bytes {
    use wire::query::{SearchRequest, Text, search_request::By};
    let words = Text { words: "a of the or".into(), ..Text::default() };
    let request = SearchRequest {
        table: "words".into(),
        by: Some(By::Text(words)),
        columns: ["synset", "gloss", "vector"].map(str::to_owned).into(),
        k,
        ..Default::default()
    };
    framed(&[request])
}

/// Returns messages as the body of a request has them.
pub fn framed(messages: &[impl prost::Message]) -> Bytes {
    let mut framed = BytesMut::new();
    for message in messages {
        let message = message.encode_to_vec();
        framed.put_u8(0);
        framed.put_u32(message.len() as u32);
        framed.put_slice(&message);
    }
    framed.freeze()
}

/// A body of one chunk.
pub struct Whole(pub Option<Bytes>);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}
