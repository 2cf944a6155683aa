//! What answers at an endpoint, asked for once it doesn't have the service that was called, or breaks off: whoever
//! mixed up two ports is told which of them it is, and whoever forgot TLS that it is spoken there.

use std::time::Duration;

use connections::tls::is_tls;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::Channel;
use wire::fetch::DescribeRequest;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::query::ListTablesRequest;
use wire::query::query_service_client::QueryServiceClient;

use crate::endpoint::Endpoint;

/// How long a node may take to show what it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether an I/O node answers.
pub(crate) async fn is_io_node(channel: Channel) -> bool {
    let mut client = FetchServiceClient::new(channel);
    client.describe(patiently(DescribeRequest {})).await.is_ok()
}

/// Whether a query node answers.
pub(crate) async fn is_query_node(channel: Channel) -> bool {
    let mut client = QueryServiceClient::new(channel);
    client.list_tables(patiently(ListTablesRequest {})).await.is_ok()
}

/// Whether an endpoint that was spoken to in the clear, over TCP, speaks TLS, if that shows within `patience`.
pub(crate) async fn speaks_tls(endpoint: &Endpoint, patience: Duration) -> bool {
    let (host, port) = endpoint.host_and_port();
    let asked = async {
        match TcpStream::connect((host, port)).await {
            Ok(stream) => is_tls(stream, host).await,
            Err(_) => false,
        }
    };
    let patience = patience.min(PATIENCE);
    !patience.is_zero() && timeout(patience, asked).await.unwrap_or(false)
}

fn patiently<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}
