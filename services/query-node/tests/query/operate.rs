use std::path::PathBuf;
use std::time::Duration;

use certificates::Authority;
use client::ClientTlsConfig;
use client::query::{
    LookupOpen, NodePlacement, PlacementRequest, PlacementResponse, QueryClient, TakeRequest,
    WarmRequest,
};
use futures::StreamExt;
use lake::{Metric, VectorIndexKind};
use query_node::{IoNodeConfig, QueryConfig, QueryError, QueryNode};
use telemetry::TelemetryConfig;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use wire::Reason;
use wire::query::MemberState;

use crate::fake_io;
use crate::keys::with_metrics;
use crate::lookups::text_keys;
use crate::node::{NOBODY, assert_true, config, metrics, near, serve, serve_with, served};
use crate::table::{TestTable, key, lake, vector};

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_described() {
    let (_table, _node, client) = served().await;
    let described = client.describe("t", 0).await.unwrap();
    let response = &described.response;
    assert_eq!((response.rows, response.fragments), (2700, 2));
    assert_eq!(response.key_column, "key");
    let sizes: Vec<_> =
        response.fragment_sizes.iter().map(|f| (f.id, f.physical_rows, f.deleted_rows)).collect();
    assert_eq!(sizes, [(0, 2000, 200), (1, 1000, 100)]);
    let packs: Vec<u32> = response.columns.iter().map(|column| column.pack).collect();
    assert_eq!(packs, [0, 0, 0, 0, 1]);
    assert_eq!(described.schema.field(4).name(), "vector");
    let vector_index = response.indexes.iter().find(|index| index.columns == ["vector"]).unwrap();
    assert_eq!((vector_index.kind.as_str(), vector_index.metric.as_str()), ("IVF_RQ", "l2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn io_nodes_out_of_reach_are_told_by_status_and_warm() {
    let table = TestTable::plain().await;
    let (node, client) = serve_with(with_metrics(config(&[("t", &table)]))).await;
    let status = client.status().await.unwrap();
    assert_eq!(status.node, "query-0");
    assert!(status.cpu_us > 0 && status.resident_bytes > 0);
    for (io_node, endpoint) in status.io_nodes.iter().zip(NOBODY) {
        assert!(!io_node.reachable && io_node.endpoint == endpoint);
        assert!(io_node.error.contains("refused"), "{}", io_node.error);
    }
    let request = WarmRequest { table: "t".into(), ..Default::default() };
    let steps: Vec<_> = client.warm(request).await.unwrap().collect().await;
    let fault = steps.last().unwrap().as_ref().unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable);
    let failures = "bireme_query_failures_total{error_type=\"NODE_UNAVAILABLE\"}";
    assert_eq!(metric(&node, failures).await, 1.0);
    for (column, reason) in [("x", Reason::ColumnNotFound), ("_rowaddr", Reason::BadArgument)] {
        let columns = vec![column.into()];
        let request = WarmRequest { table: "t".into(), columns, ..Default::default() };
        let fault = client.warm(request).await.err().unwrap();
        assert_eq!(fault.reason, reason, "{fault}");
    }
}

/// An I/O node on another machine is verified by TLS or by the secret of both tiers. No machine has the address
/// 192.0.2.1: it is reserved for documentation (RFC 5737).
#[tokio::test(flavor = "multi_thread")]
async fn status_warns_of_io_nodes_that_an_impostor_could_replace() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a-secret-of-at-least-32-characters").unwrap();
    let ca = Some(Authority::new(folder.path(), "ours").ca.clone());
    let io_tls = Some(ClientTlsConfig { ca, ..Default::default() });
    let unverified = async |endpoint: &str, peer_secret: Option<PathBuf>| {
        let io_tls = io_tls.clone().filter(|_| endpoint.starts_with("https"));
        let io_nodes = vec![IoNodeConfig::at(endpoint)];
        let config = QueryConfig { io_nodes, io_tls, peer_secret, ..config(&[]) };
        let (_node, client) = serve_with(config).await;
        client.status().await.unwrap().io_nodes[0].unverified
    };
    assert!(unverified("http://192.0.2.1:7071", None).await);
    assert!(!unverified("http://192.0.2.1:7071", Some(secret)).await);
    assert!(!unverified("https://192.0.2.1:7071", None).await);
    assert!(!unverified("http://127.0.0.1:1", None).await);
}

/// Returns the value of a series from the Prometheus endpoint.
pub async fn metric(node: &QueryNode, name: &str) -> f64 {
    let text = metrics(node).await;
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value).unwrap_or_else(|| panic!("{name} is not in\n{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_anything_are_under_way_until_they_are_answered() {
    // This I/O node answers no request.
    let io = fake_io::serve(|_| Vec::new()).await;
    let table = TestTable::indexed(VectorIndexKind::IvfRq, Metric::L2).await;
    let (node, client) = serve_with(QueryConfig {
        io_nodes: vec![io],
        telemetry: TelemetryConfig {
            metrics_listen: Some("127.0.0.1:0".parse().unwrap()),
            ..Default::default()
        },
        ..config(&[("t", &table)])
    })
    .await;
    const UNDER_WAY: &str = "bireme_query_requests_under_way";
    assert_eq!(metric(&node, UNDER_WAY).await, 0.0);
    let searches: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.search(near(vector(7), 3)).await.map(drop) })
        })
        .collect();
    // Returns false once all searches are in progress and none of them waits for a permit.
    let waits = async || {
        metric(&node, UNDER_WAY).await < 3.0 || metric(&node, "bireme_query_queue").await > 0.0
    };
    while_soon_over(waits).await;
    // The callers cancel their requests.
    searches.iter().for_each(|search| search.abort());
    while_soon_over(async || metric(&node, UNDER_WAY).await > 0.0).await;
    // A batch of a Lookup stream, which ends at its deadline at the latest.
    let lookups = client.lookups().await.unwrap();
    let open = LookupOpen { table: "t".into(), columns: vec!["id".into()], ..Default::default() };
    let by_key = lookups.open(open).await.unwrap();
    let getting = tokio::spawn(async move { by_key.get(text_keys(&[key(1)])).await.map(drop) });
    while_soon_over(async || metric(&node, UNDER_WAY).await < 1.0).await;
    drop(getting.await.unwrap());
    while_soon_over(async || metric(&node, UNDER_WAY).await > 0.0).await;
}

/// Waits while `is` returns true. Panics if that takes too long.
pub async fn while_soon_over(is: impl AsyncFn() -> bool) {
    let over = async {
        while is().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), over).await.expect("it is never over");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_has_one_owner_that_is_told() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let asked = PlacementRequest { table: "t".into(), name_chunks: true, ..Default::default() };
    let placed = client.placement(asked.clone()).await.unwrap();
    let names: Vec<_> = placed.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, NOBODY, "whether they answer or not");
    let told = |node: &NodePlacement| node.state() == MemberState::Ready && !node.connected;
    assert!(placed.nodes.iter().all(told), "{placed:?}");
    assert_eq!(placed.nodes.iter().map(|node| node.share).sum::<f64>(), 2.0);
    // Both fragments, of 2,000 rows and 1,000, are smaller than a chunk.
    assert_eq!(owned(&placed), [(0, 0), (1, 0)]);
    let rows: Vec<u64> = placed.nodes.iter().map(|node| node.rows).collect();
    assert_eq!(rows.iter().sum::<u64>(), 3000);
    for node in &placed.nodes {
        assert_eq!(
            node.ranges.iter().map(|range| u64::from(range.count)).sum::<u64>(),
            node.chunks
        );
    }
    let counted = PlacementRequest { name_chunks: false, ..asked.clone() };
    let counted = client.placement(counted).await.unwrap();
    assert!(counted.nodes.iter().all(|node| node.ranges.is_empty()));
    assert_eq!(counted.nodes.iter().map(|node| node.rows).collect::<Vec<_>>(), rows);
    let second = PlacementRequest { fragments: vec![1], ..asked.clone() };
    assert_eq!(owned(&client.placement(second).await.unwrap()), [(1, 0)]);
    let none = PlacementRequest { fragments: vec![1, 9], ..asked };
    let fault = client.placement(none).await.unwrap_err();
    assert!(fault.message.contains("names fragment 9, which version"), "{fault}");
}

/// Returns the fragment and number of each chunk that the response names, ascending, whoever owns it.
fn owned(placed: &PlacementResponse) -> Vec<(u32, u32)> {
    let ranges = placed.nodes.iter().flat_map(|node| &node.ranges);
    let ids = ranges.flat_map(|range| {
        (range.first..range.first + range.count).map(|chunk| (range.fragment, chunk))
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids
}

/// Returns the node's health: of its service, and of the node as a whole.
async fn health(node: &QueryNode) -> [i32; 2] {
    let endpoint = format!("http://{}", node.local_addr());
    let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let mut said = [0; 2];
    for (said, service) in said.iter_mut().zip(["bireme.query.v1.QueryService", ""]) {
        let request = HealthCheckRequest { service: service.into() };
        *said = client.check(request).await.unwrap().into_inner().status;
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_once_it_has_a_list_and_answers_before() {
    let table = TestTable::plain().await;
    // This source never gives a list: the name does not exist, or no DNS server answers.
    let nowhere = QueryConfig {
        io_nodes: Vec::new(),
        io_nodes_from: Some("dns:io.bireme.invalid:7071".parse().unwrap()),
        ..config(&[("t", &table)])
    };
    let (node, client) = serve_with(nowhere).await;
    let not_serving = ServingStatus::NotServing as i32;
    assert_eq!(health(&node).await, [not_serving; 2]);
    let status = client.status().await.unwrap();
    assert_eq!(status.membership.unwrap().generation, 0);
    assert!(status.io_nodes.is_empty());
    let row_addrs = vec![crate::table::address_of(6).to_u64()];
    let request = TakeRequest { table: "t".into(), row_addrs, ..Default::default() };
    let rows = client.take(request).await.unwrap().collect().await.unwrap();
    rows.batches.iter().for_each(assert_true);
    let request = WarmRequest { table: "t".into(), ..Default::default() };
    let fault = client.warm(request).await.err().unwrap();
    assert_eq!(fault.reason, Reason::NodeUnavailable);
    assert!(fault.message.contains("see dns:io.bireme.invalid:7071"), "{fault}");
    let placed = PlacementRequest { table: "t".into(), ..Default::default() };
    assert_eq!(client.placement(placed).await.unwrap().nodes, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_answer() {
    let (node, _client) = serve(&[]).await;
    node.ready().await;
    assert_eq!(health(&node).await, [ServingStatus::Serving as i32; 2]);
    let endpoint = format!("http://{}", node.local_addr());
    let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
    let mut reflection = ServerReflectionClient::new(channel);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures::stream::iter([request]);
    let mut answers = reflection.server_reflection_info(requests).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"bireme.query.v1.QueryService".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_told_with_what_to_do() {
    let (node, _client) = serve(&[]).await;
    let mut taken = config(&[]);
    taken.listen = node.local_addr();
    let error = QueryNode::start(taken, lake()).await.err().unwrap();
    assert!(matches!(error, QueryError::Listen { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&node.local_addr().to_string()) && text.contains("--listen"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shut_down_node_lets_requests_end_and_then_nobody_answers() {
    let (_table, node, client) = served().await;
    let endpoint = client.endpoint().clone();
    let running = tokio::spawn({
        let client = client.clone();
        async move { client.search(near(vector(3), 500)).await }
    });
    tokio::time::sleep(Duration::from_millis(2)).await;
    node.shutdown(Duration::from_secs(10)).await.unwrap();
    // Either the search arrived before the shutdown and is answered, or it fails with `NODE_UNAVAILABLE`.
    if let Err(fault) = running.await.unwrap() {
        assert_eq!(fault.reason, Reason::NodeUnavailable);
    }
    let fault = QueryClient::connect(&endpoint).await.err().unwrap();
    assert_eq!(fault.reason, Reason::NodeUnavailable);
    assert!(fault.message.contains("bireme up"), "{fault}");
    let fault = client.search(near(vector(3), 5)).await.unwrap_err();
    assert_eq!(fault.reason, Reason::NodeUnavailable);
}
