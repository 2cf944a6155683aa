//! A connection to a query node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connections::tls::ClientTlsConfig;
use endpoint::Endpoint;
use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, TimeoutExpired};
use wire::query::query_service_client::QueryServiceClient;
use wire::{Fault, MESSAGE_BYTES_MAX, ParentSpan, Reason};

use crate::kind::{is_io_node, speaks_tls};
use crate::network::Network;
use crate::transport::{WINDOW_BYTES_LIMIT, causes, lacks_tls, root_cause, transport, why};

/// The maximum time for connecting to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a connection that has calls under way is probed, and the time in which the node must answer. A
/// node that is cut off is noticed after the sum of both, so that calls without a timeout end too.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 window of a stream, in bytes, so that answers with many rows do not wait for acknowledgements. At a round
/// trip of 50 ms, 8 MiB carry 160 MB/s.
const WINDOW_BYTES: u32 = 8 << 20;

/// The longest timeout of a request: gRPC sends at most 8 digits, and hours are its largest unit.
const TIMEOUT_MAX: Duration = Duration::from_secs(99_999_999 * 60 * 60);

/// The generated gRPC client.
pub(super) type Service = QueryServiceClient<Channel>;

/// The client of one query node. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct QueryClient {
    endpoint: Endpoint,
    timeout: Option<Duration>,
    span: Option<ParentSpan>,
    authorization: Option<AsciiMetadataValue>,
    channel: Channel,
    service: Service,
    /// Whether the node may expect TLS although this connection is unencrypted TCP. False after the first answer.
    may_be_tls: Arc<AtomicBool>,
}

impl QueryClient {
    /// Connects. An `https` endpoint uses TLS with the authorities that the system trusts.
    ///
    /// # Errors
    /// `NODE_UNAVAILABLE`, with advice, if no node answers; `BAD_ARGUMENT` if the endpoint is `https` and the system
    /// trusts no authority.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, Fault> {
        Self::connect_with(endpoint, &ClientTlsConfig::default()).await
    }

    /// Connects, with the settings of `tls` if the endpoint is `https`.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect), and `BAD_ARGUMENT` for invalid TLS settings.
    pub async fn connect_with(endpoint: &Endpoint, tls: &ClientTlsConfig) -> Result<Self, Fault> {
        Self::connect_over(endpoint, &Network::of(endpoint, tls)?).await
    }

    /// Connects over `network`.
    ///
    /// # Errors
    /// `NODE_UNAVAILABLE`, with advice, if no node answers.
    pub async fn connect_over(endpoint: &Endpoint, network: &Network) -> Result<Self, Fault> {
        let transport = transport(endpoint)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .initial_stream_window_size(WINDOW_BYTES)
            // Each stream has a window of its own. Answers that their callers do not read would use up a smaller window of
            // the connection, so that no other call got its answer.
            .initial_connection_window_size(WINDOW_BYTES_LIMIT);
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, network.connect(transport));
        let channel = match connecting.await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                let why = root_cause(&error) + advice(&error);
                return Err(no_query_node(endpoint, &why));
            }
            Err(_) => {
                let why = format!("no answer within {CONNECT_TIMEOUT:?}");
                return Err(no_query_node(endpoint, &why));
            }
        };
        let service = QueryServiceClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let is_clear = matches!(network, Network::Tcp) && !endpoint.is_tls();
        Ok(Self {
            endpoint: endpoint.clone(),
            timeout: None,
            span: None,
            authorization: None,
            channel,
            service,
            may_be_tls: Arc::new(AtomicBool::new(is_clear)),
        })
    }

    /// Returns this client with `timeout` as the timeout of each request. It is at most 99,999,999 hours.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout.min(TIMEOUT_MAX));
        self
    }

    /// Returns this client with `span` as the parent span of each request (W3C Trace Context).
    pub fn with_parent_span(mut self, span: ParentSpan) -> Self {
        self.span = Some(span);
        self
    }

    /// Returns this client with `token`, a JSON Web Token or an API key, sent with each request.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` if the token has characters that a header can't contain.
    pub fn with_token(mut self, token: &str) -> Result<Self, Fault> {
        let value = format!("Bearer {token}").parse::<AsciiMetadataValue>();
        let mut value = value.map_err(|_| {
            let message =
                "the token has characters that a header can't contain; it is one line of ASCII";
            Fault::new(Reason::BadArgument, message)
        })?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// Returns the connection, for services that the node offers besides its own, such as health checks. Credentials
    /// are not sent with their requests.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns the node's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(super) fn service(&self) -> Service {
        self.service.clone()
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        self.request_within(message, self.timeout)
    }

    fn request_within<T>(&self, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        let span = self.span.and_then(|span| span.to_string().parse().ok());
        span.into_iter().for_each(|span| drop(request.metadata_mut().insert("traceparent", span)));
        request
    }

    /// Sends a request with `send`, and awaits the answer. If the connection ended before the node took the request,
    /// for example because the node has just asked the client to reconnect, sends it once more over a new connection,
    /// if some of the timeout is left. Both times together take at most the timeout.
    pub(super) async fn call<M: Clone, T, F>(
        &self,
        message: M,
        send: impl Fn(Service, Request<M>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let again = message.clone();
        let began = Instant::now();
        let once = |message, left| send(self.service(), self.request_within(message, left));
        let twice = async {
            let answer = once(message, self.timeout).await;
            let left = self.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            match answer {
                Err(status) if was_not_taken(&status) && left != Some(Duration::ZERO) => {
                    once(again, left).await
                }
                answer => answer,
            }
        };
        self.answered(twice).await
    }

    /// Awaits the answer of `call`, and converts an error to a fault.
    pub(super) async fn answered<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        let answer = call.await;
        // A fault from a node has details.
        let is_a_nodes =
            answer.as_ref().map_or_else(|status| !status.details().is_empty(), |_| true);
        let may_be_tls = self.may_be_tls.load(Ordering::Relaxed);
        if is_a_nodes && may_be_tls {
            self.may_be_tls.store(false, Ordering::Relaxed);
        }
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status)
                if status.code() == Code::Unimplemented
                    && is_io_node(self.channel.clone()).await =>
            {
                Err(an_io_node(&self.endpoint))
            }
            Err(status) => {
                let fault = self.fault_of(&status);
                let is_asked = fault.reason == Reason::NodeUnavailable && !is_a_nodes && may_be_tls;
                let left = self.timeout.unwrap_or(Duration::MAX).saturating_sub(began.elapsed());
                match is_asked && speaks_tls(&self.endpoint, left).await {
                    true => Err(a_tls_node(&self.endpoint)),
                    false => Err(fault),
                }
            }
        }
    }

    /// Converts a status to a fault. A status of the connection, or of something that is not a query node, becomes a
    /// fault with advice.
    pub(super) fn fault_of(&self, status: &Status) -> Fault {
        let fault = Fault::from_status(status);
        let has_cause = std::error::Error::source(status).is_some();
        let nobody = || no_query_node(&self.endpoint, &(why(status) + advice(status)));
        match (status.code(), self.timeout) {
            _ if !status.details().is_empty() => fault,
            // A call that is awaited is cancelled only by tonic after its timeout, or by a lost connection.
            (Code::Cancelled, Some(timeout)) if !has_cause || has_expired(status) => {
                no_answer_within(timeout)
            }
            (Code::Internal | Code::Cancelled, _) if has_cause => nobody(),
            (
                Code::Unavailable
                | Code::Unimplemented
                | Code::Unknown
                | Code::Unauthenticated
                | Code::PermissionDenied,
                _,
            ) => nobody(),
            _ => fault,
        }
    }
}

/// Returns whether the connection ended before the node took the request. hyper cancels a request that is still in its
/// queue when the connection ends. A request that is already sent, but that the node's GOAWAY does not count among the
/// last ones that it takes, was not processed either (RFC 9113, section 6.8): only such requests end with the GOAWAY.
fn was_not_taken(status: &Status) -> bool {
    let is_unsent = |error: &hyper::Error| error.is_canceled();
    let is_left_out = |error: &h2::Error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    };
    causes(status).any(|cause| {
        cause.downcast_ref().is_some_and(is_unsent) || cause.downcast_ref().is_some_and(is_left_out)
    })
}

/// Awaits the answer of a node for at most `timeout`.
pub(super) async fn within<T>(
    timeout: Option<Duration>,
    answer: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match timeout {
        None => answer.await,
        Some(timeout) => tokio::time::timeout(timeout, answer)
            .await
            .unwrap_or_else(|_| Err(no_answer_within(timeout))),
    }
}

fn no_answer_within(timeout: Duration) -> Fault {
    let message = format!("no answer within {timeout:?}; allow more time");
    Fault::new(Reason::DeadlineExceeded, message)
}

/// Returns whether tonic cancelled a call because of its timeout.
fn has_expired(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<TimeoutExpired>())
}

/// Returns advice for a failed connection, if the endpoint's scheme is wrong.
fn advice(error: &(dyn std::error::Error + 'static)) -> &'static str {
    if lacks_tls(error) { "; write it with http://" } else { "" }
}

fn no_query_node(endpoint: &Endpoint, why: &str) -> Fault {
    let message = format!(
        "no query node answers at {endpoint} ({why}): start one with `bireme up` or `bireme query`, \
         or give another endpoint"
    );
    Fault::new(Reason::NodeUnavailable, message).with("endpoint", endpoint)
}

fn an_io_node(endpoint: &Endpoint) -> Fault {
    let message = format!("the node at {endpoint} is an I/O node; give a query node's endpoint");
    Fault::new(Reason::NodeUnavailable, message).with("endpoint", endpoint)
}

fn a_tls_node(endpoint: &Endpoint) -> Fault {
    let message = format!("the node at {endpoint} speaks TLS; write its endpoint with https://");
    Fault::new(Reason::NodeUnavailable, message).with("endpoint", endpoint)
}

/// The fault of requests that have no answer when their stream has ended.
pub(super) fn ended() -> Fault {
    Fault::new(Reason::NodeUnavailable, "the query node has ended the stream; open another")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::AtomicUsize;

    use connections::Carrier;
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tonic::transport::Uri;
    use wire::query::ListTablesRequest;

    use super::*;
    use crate::network::Dial;

    /// A network on which nobody answers.
    struct Nobody;

    impl Dial for Nobody {
        fn dial(&self, _: &Uri) -> BoxFuture<'static, std::io::Result<Box<dyn Carrier>>> {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(theirs);
            });
            async { Ok(Box::new(ours) as Box<dyn Carrier>) }.boxed()
        }
    }

    #[tokio::test]
    async fn tls_is_looked_for_only_over_tcp_before_any_answer_and_within_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = listener.local_addr().unwrap().to_string().parse::<Endpoint>().unwrap();
        let dialled = || std::iter::from_fn(|| listener.accept().ok()).count();
        let gone = async |client: &QueryClient| {
            let call = async { Err::<Response<()>, _>(Status::unavailable("gone")) };
            let fault = client.answered(call).await.unwrap_err();
            assert_eq!(fault.reason, Reason::NodeUnavailable);
        };
        let soon = Duration::from_secs(1);

        let nobody = Network::Simulated(Arc::new(Nobody));
        let client = QueryClient::connect_over(&endpoint, &nobody).await.unwrap();
        gone(&client.with_timeout(soon)).await;
        assert_eq!(dialled(), 0, "a simulated network opens no socket");

        let client = QueryClient::connect_over(&endpoint, &Network::Tcp).await.unwrap();
        assert_eq!(dialled(), 1);
        gone(&client.clone().with_timeout(soon)).await;
        assert_eq!(dialled(), 1, "nobody has answered yet");
        gone(&client.clone().with_timeout(Duration::ZERO)).await;
        assert_eq!(dialled(), 0, "the time is over");
        let answer = async { Ok(Response::new(())) };
        client.clone().answered(answer).await.unwrap();
        gone(&client.with_timeout(soon)).await;
        assert_eq!(dialled(), 0, "what has answered speaks no TLS");
    }

    #[tokio::test]
    async fn a_timeout_of_any_length_can_be_sent() {
        let endpoint = "localhost:1".parse::<Endpoint>().unwrap();
        let nobody = Network::Simulated(Arc::new(Nobody));
        let client = QueryClient::connect_over(&endpoint, &nobody).await.unwrap();
        let request = client.with_timeout(Duration::MAX).request(ListTablesRequest {});
        let sent = request.metadata().get("grpc-timeout").unwrap();
        assert_eq!(sent.to_str().unwrap(), "99999999H");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_timeout_ends_if_the_node_is_cut_off() {
        let endpoint = "localhost:1".parse::<Endpoint>().unwrap();
        let nobody = Network::Simulated(Arc::new(Nobody));
        let client = QueryClient::connect_over(&endpoint, &nobody).await.unwrap();
        let check = |fault: Fault, reason, began: Instant, expected: Duration| {
            assert_eq!(fault.reason, reason, "{fault}");
            let took = began.elapsed();
            assert!(took.abs_diff(expected) < Duration::from_secs(1), "it took {took:?}");
        };
        let noticed = KEEP_ALIVE_INTERVAL + KEEP_ALIVE_TIMEOUT;
        let list =
            |mut service: Service, request| async move { service.list_tables(request).await };
        let began = Instant::now();
        let fault = client.call(ListTablesRequest {}, list).await.unwrap_err();
        check(fault, Reason::NodeUnavailable, began, noticed);
        let began = Instant::now();
        let fault = client.lookups().await.err().unwrap();
        check(fault, Reason::NodeUnavailable, began, noticed);
        // With a timeout, the client does not wait for so long.
        let (began, timeout) = (Instant::now(), Duration::from_secs(2));
        let fault = client.with_timeout(timeout).lookups().await.err().unwrap();
        check(fault, Reason::DeadlineExceeded, began, timeout);
    }

    /// A node that ends each connection by a GOAWAY some time after it has received a request, and then closes it.
    struct Retiring {
        after: Duration,
        /// The last stream that the GOAWAY says was taken.
        last_stream: u8,
        /// The number of connections on which a request arrived.
        asked: Arc<AtomicUsize>,
    }

    impl Dial for Retiring {
        fn dial(&self, _: &Uri) -> BoxFuture<'static, std::io::Result<Box<dyn Carrier>>> {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let (last_stream, asked) = (self.last_stream, Arc::clone(&self.asked));
            let after = self.after;
            tokio::spawn(async move {
                // The client may have given up.
                let _ = retire(theirs, last_stream, &asked, after).await;
            });
            async { Ok(Box::new(ours) as Box<dyn Carrier>) }.boxed()
        }
    }

    /// Speaks as much HTTP/2 (RFC 9113) as it takes to end a connection.
    async fn retire(
        mut carrier: DuplexStream,
        last_stream: u8,
        asked: &AtomicUsize,
        after: Duration,
    ) -> std::io::Result<()> {
        const HEADERS: u8 = 1;
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_stream, 0, 0, 0, 0];
        carrier.write_all(&settings).await?;
        let mut preface = [0; 24];
        carrier.read_exact(&mut preface).await?;
        loop {
            let mut head = [0; 9];
            carrier.read_exact(&mut head).await?;
            let mut body = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            carrier.read_exact(&mut body).await?;
            if head[3] == HEADERS {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(after).await;
                return carrier.write_all(&go_away).await;
            }
        }
    }

    /// Sends a request to a node that retires `after` it has received one. Returns the fault, and the number of times
    /// that the request arrived.
    async fn ask_retiring(
        last_stream: u8,
        after: Duration,
        timeout: Option<Duration>,
    ) -> (Fault, usize) {
        let endpoint = "localhost:1".parse::<Endpoint>().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let node = Retiring { after, last_stream, asked: Arc::clone(&asked) };
        let node = Network::Simulated(Arc::new(node));
        let mut client = QueryClient::connect_over(&endpoint, &node).await.unwrap();
        client.timeout = timeout;
        let send =
            |mut service: Service, request| async move { service.list_tables(request).await };
        let fault = client.call(ListTablesRequest {}, send).await.unwrap_err();
        (fault, asked.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_request_is_sent_again_only_if_the_node_did_not_take_it() {
        // A client's first stream is stream 1.
        for (last_stream, sent) in [(0, 2), (1, 1)] {
            let (fault, asked) = ask_retiring(last_stream, Duration::ZERO, None).await;
            assert_eq!(fault.reason, Reason::NodeUnavailable);
            assert_eq!(asked, sent, "last stream {last_stream}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_sent_again_has_the_time_that_is_left() {
        let after = Duration::from_millis(300);
        for (timeout_ms, took_ms, reason) in
            [(500, 500, Reason::DeadlineExceeded), (700, 600, Reason::NodeUnavailable)]
        {
            let began = Instant::now();
            let timeout = Duration::from_millis(timeout_ms);
            let (fault, asked) = ask_retiring(0, after, Some(timeout)).await;
            let took = began.elapsed().as_millis() as u64;
            assert_eq!((fault.reason, asked), (reason, 2), "{fault}");
            assert!(took.abs_diff(took_ms) < 20, "{timeout_ms} ms: it took {took} ms");
        }
    }
}
