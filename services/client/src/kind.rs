//! Detects, after a failed call, which kind of node listens at an endpoint and whether it speaks TLS. If the caller has
//! mixed up the ports of the two tiers, or forgotten TLS, the error can then say so.

use std::time::Duration;

use connections::tls::is_tls;
use endpoint::Endpoint;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use wire::fetch::DescribeRequest;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::query::ListTablesRequest;
use wire::query::query_service_client::QueryServiceClient;
use wire::{Fault, Reason};

/// Maximum time for each detection. It is short, because the call has already failed and only its error becomes
/// clearer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns whether an I/O node answers.
pub(crate) async fn is_io_node(channel: Channel) -> bool {
    let mut client = FetchServiceClient::new(channel);
    has_answered(client.describe(patiently(DescribeRequest {})).await)
}

/// Returns whether a query node answers.
pub(crate) async fn is_query_node(channel: Channel) -> bool {
    let mut client = QueryServiceClient::new(channel);
    has_answered(client.list_tables(patiently(ListTablesRequest {})).await)
}

/// Returns whether a service answered, if only to refuse the caller.
fn has_answered<T>(answer: Result<Response<T>, Status>) -> bool {
    match answer {
        Ok(_) => true,
        Err(status) => Fault::from_status(&status).reason == Reason::Unauthenticated,
    }
}

/// Returns whether an endpoint that was contacted without TLS speaks TLS. Gives up after `patience` or [`PATIENCE`],
/// whichever is shorter.
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
