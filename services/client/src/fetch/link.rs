//! Connects to a node and opens a Fetch stream, up to its welcome.

use std::time::Duration;

use endpoint::Endpoint;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Status};
use wire::fetch::fetch_response::Kind;
use wire::fetch::{FetchRequest, Welcome};
use wire::{FETCH_PATH, Fault, Reason};

use super::incoming::Incoming;
use super::options::FetchOptions;
use crate::kind::is_query_node;
use crate::transport::{self, root_cause, why};

/// Maximum number of messages that wait for HTTP/2. It is small, so that batches gather in the ledger while the
/// connection is busy, and leave together.
const OUTGOING_MESSAGES_MAX: usize = 2;

/// A stream that is connected and whose I/O node has sent its `Welcome`.
pub(super) struct Link {
    pub outgoing: mpsc::Sender<FetchRequest>,
    pub incoming: Incoming,
    pub welcome: Welcome,
}

impl Link {
    /// Connects, opens a stream and waits for its welcome. Every fault is `NODE_UNAVAILABLE`.
    pub async fn dial(endpoint: &Endpoint, options: &FetchOptions) -> Result<Self, Fault> {
        let dialling = Self::dial_without_timeout(endpoint, options);
        match tokio::time::timeout(options.connect_timeout, dialling).await {
            Ok(dialled) => dialled,
            Err(_) => {
                let waited = format!("no answer within {:?}", options.connect_timeout);
                Err(unreachable(endpoint, &waited))
            }
        }
    }

    async fn dial_without_timeout(
        endpoint: &Endpoint,
        options: &FetchOptions,
    ) -> Result<Self, Fault> {
        let channel = options.network.connect(transport(endpoint, options)).await;
        let channel = channel.map_err(|error| unreachable(endpoint, &root_cause(&error)))?;
        let (outgoing, requests) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        let prover = options.prover.as_ref();
        let proof = prover.map(|prover| prover.begin(FETCH_PATH, endpoint.address()));
        let incoming = Incoming::begin(channel.clone(), requests, &options.buffers, proof).await;
        let mut incoming = match incoming {
            Ok(incoming) => incoming,
            Err(status) => return Err(no_io_node(endpoint, channel, &status).await),
        };
        let first = incoming.message().await;
        let first = first.map_err(|status| unreachable(endpoint, &why(&status)))?;
        match first.and_then(|message| message.kind) {
            Some(Kind::Welcome(welcome))
                if welcome.credit_rows > 0 && welcome.batch_rows_max > 0 =>
            {
                Ok(Self { outgoing, incoming, welcome })
            }
            Some(Kind::Welcome(_)) => Err(unreachable(endpoint, "it gave no credit")),
            _ => Err(unreachable(endpoint, "its first message was no welcome")),
        }
    }
}

/// Returns the endpoint for streams and unary calls, with windows and timeouts.
pub(super) fn transport(endpoint: &Endpoint, options: &FetchOptions) -> tonic::transport::Endpoint {
    transport::transport(endpoint)
        .initial_stream_window_size(options.stream_window_bytes)
        .initial_connection_window_size(options.connection_window_bytes)
        .connect_timeout(options.connect_timeout)
        .tcp_keepalive(Some(Duration::from_secs(30)))
        .http2_keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout)
        .keep_alive_while_idle(true)
}

pub(super) fn unreachable(endpoint: &Endpoint, why: &str) -> Fault {
    let message = format!("the I/O node at {endpoint} can't be reached: {why}");
    Fault::new(Reason::NodeUnavailable, message).with("endpoint", endpoint)
}

/// Returns the fault for a call that got no answer from an I/O node.
pub(super) async fn no_io_node(endpoint: &Endpoint, channel: Channel, status: &Status) -> Fault {
    if status.code() == Code::Unimplemented && is_query_node(channel).await {
        let message =
            format!("the node at {endpoint} is a query node; give an I/O node's endpoint");
        return Fault::new(Reason::NodeUnavailable, message).with("endpoint", endpoint);
    }
    unreachable(endpoint, &why(status))
}
