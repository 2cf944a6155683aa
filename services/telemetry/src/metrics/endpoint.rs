//! `/metrics` over HTTP, for Prometheus; `/live` and `/ready` for whoever probes a node that speaks TLS and can't: a
//! kubelet, a load balancer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::debug;

use super::format::{Format, wanted};
use super::prometheus::{to_plain_text, to_protobuf, to_text};
use super::serve::Source;
use crate::resource::Identity;

/// Connections at the same time: a few Prometheus servers, probes and a curious human.
const CONNECTIONS_MAX: usize = 64;

/// How long the headers of a request may take, and a collection of the metrics.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a connection may stay: some scrapes of a Prometheus.
const CONNECTION_MAX: Duration = Duration::from_secs(300);

const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Takes a port.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Answers until dropped.
pub async fn serve(listener: TcpListener, source: Arc<impl Source>, identity: Identity) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "a connection for metrics was not taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (source, identity) = (Arc::clone(&source), identity.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(request, source.as_ref(), &identity));
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), answer);
            match tokio::time::timeout(CONNECTION_MAX, serving).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%error, "a connection for metrics broke"),
                // It gives its place to another, whether it reads or not.
                Err(_) => debug!("a connection for metrics has had its time"),
            }
            drop(place);
        });
    }
}

fn late() -> String {
    format!("the node's cores did not answer within {PATIENCE:?}\n")
}

async fn answer(
    request: Request<Incoming>,
    source: &impl Source,
    identity: &Identity,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/live" | "/ready") {
        let text = "the metrics are at /metrics, the node's health at /live and /ready\n";
        return Ok(plain(StatusCode::NOT_FOUND, text.into()));
    }
    if request.method() != Method::GET {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET"));
        return Ok(response);
    }
    match path {
        "/live" => {
            let alive = tokio::time::timeout(PATIENCE, source.is_alive()).await;
            return Ok(match alive {
                Ok(true) => plain(StatusCode::OK, "live\n".into()),
                Ok(false) => plain(StatusCode::SERVICE_UNAVAILABLE, "a core has ended\n".into()),
                Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, late()),
            });
        }
        "/ready" if source.is_ready() => return Ok(plain(StatusCode::OK, "ready\n".into())),
        "/ready" => return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".into())),
        _ => {}
    }
    let Ok(samples) = tokio::time::timeout(PATIENCE, source.collect()).await else {
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, late()));
    };
    let samples = Arc::new(samples);
    let encoded = match wanted(request.headers()) {
        Format::Protobuf => {
            to_protobuf(samples, identity).map(|bytes| (PROTOBUF, Bytes::from(bytes)))
        }
        Format::OpenMetrics => to_text(samples, identity).map(|text| (TEXT, Bytes::from(text))),
        Format::Plain => to_plain_text(samples, identity).map(|text| (PLAIN, Bytes::from(text))),
    };
    Ok(match encoded {
        Ok((content_type, body)) => {
            let mut response = Response::new(Full::from(body));
            let content_type = hyper::header::HeaderValue::from_static(content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Err(_) => {
            let text = "the metrics can't be written; this is a defect\n";
            plain(StatusCode::INTERNAL_SERVER_ERROR, text.into())
        }
    })
}
