//! What kind of node answers at an endpoint, asked for once it doesn't have the service that was
//! called: whoever mixed up two ports is told which of them it is.

use std::time::Duration;

use tonic::Request;
use tonic::transport::Channel;
use wire::fetch::DescribeRequest;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::query::ListTablesRequest;
use wire::query::query_service_client::QueryServiceClient;

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

fn patiently<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}
