//! Tests telemetry: compares metrics with Status, and traces with the requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytesize::ByteSize;
use io_node::{IoConfig, ShareConfig, StartWarmConfig};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use query_node::QueryConfig;
use telemetry::TelemetryConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use wire::query::{SearchRequest, TakeRequest, WarmRequest, search_request::By};
use wire::{ParentSpan, Reason};

use crate::cluster::{Cluster, folder};
use crate::members;
use crate::words::words;

/// An OTLP receiver that keeps the spans and metrics that it receives, with the name of the sending service.
#[derive(Clone, Default)]
struct Receiver {
    spans: Arc<Mutex<Vec<(String, Span)>>>,
    metrics: Arc<Mutex<BTreeMap<(String, String), Data>>>,
}

fn service(resource: Option<Resource>) -> String {
    let attributes = resource.unwrap_or_default().attributes;
    let name = attributes.into_iter().find(|it| it.key == "service.name").unwrap();
    match name.value.unwrap().value.unwrap() {
        any_value::Value::StringValue(name) => name,
        other => panic!("{other:?}"),
    }
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_resource in request.into_inner().resource_spans {
            let service = service(of_resource.resource);
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.lock().unwrap().extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        // Real receivers refuse requests without these headers.
        let header = |name| request.metadata().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            (header("content-type"), header("te")),
            ("application/grpc".into(), "trailers".into())
        );
        for of_resource in request.into_inner().resource_metrics {
            let service = service(of_resource.resource);
            for metric in of_resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                let name = (service.clone(), metric.name);
                self.metrics.lock().unwrap().insert(name, metric.data.unwrap());
            }
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

impl Receiver {
    async fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let receiver = Self::default();
        let serving = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(receiver.clone()))
            .add_service(MetricsServiceServer::new(receiver.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        (receiver, endpoint)
    }

    /// Waits until a trace has spans of both tiers, and returns its spans.
    async fn trace(&self, trace: u128) -> Vec<(String, Span)> {
        let of_trace = |(_, span): &&(String, Span)| span.trace_id == trace.to_be_bytes();
        for _ in 0..200 {
            let spans: Vec<_> =
                self.spans.lock().unwrap().iter().filter(of_trace).cloned().collect();
            let services: BTreeSet<_> = spans.iter().map(|(service, _)| service).collect();
            if services.len() == 2 {
                return spans;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no trace of both tiers came within 20 s");
    }
}

/// Returns a function that sets the telemetry of both configurations.
fn with_telemetry(telemetry: TelemetryConfig) -> impl Fn(&mut IoConfig, &mut QueryConfig) {
    move |io, query| {
        io.telemetry = telemetry.clone();
        query.telemetry = telemetry.clone();
    }
}

/// Returns settings with which only failed requests and those that callers sample are traced.
fn sampled(endpoint: &str) -> TelemetryConfig {
    TelemetryConfig {
        otlp_endpoint: Some(endpoint.to_owned()),
        trace_ratio: 0.0,
        trace_slow: Duration::from_secs(3600),
        ..Default::default()
    }
}

/// Returns the names of the direct children of a span.
fn within<'a>(spans: &'a [(String, Span)], span: &Span) -> BTreeSet<&'a str> {
    let within = spans.iter().filter(|(_, it)| it.parent_span_id == span.span_id);
    within.map(|(_, it)| it.name.as_str()).collect()
}

async fn search(cluster: &Cluster, span: Option<ParentSpan>) {
    let client = match span {
        Some(span) => cluster.client.clone().with_parent_span(span),
        None => cluster.client.clone(),
    };
    let request = SearchRequest {
        table: "words".into(),
        by: Some(By::Like(words().await.keys()[7].clone())),
        k: 5,
        refine_factor: Some(4),
        columns: vec!["gloss".into()],
        ..Default::default()
    };
    let found = Box::pin(client.search(request)).await.unwrap();
    assert_eq!(found.rows.num_rows(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_through_both_tiers() {
    let words = words().await;
    let (receiver, endpoint) = Receiver::start().await;
    let cluster =
        Cluster::start_with(2, &[("words", &words.uri)], with_telemetry(sampled(&endpoint))).await;
    let asked = ParentSpan { trace: 0x5eed, span: 0xca11, is_sampled: true };
    search(&cluster, Some(asked)).await;
    // These two searches are neither sampled, nor slow, nor failed.
    search(&cluster, None).await;
    search(&cluster, Some(ParentSpan { trace: 0xdead, span: 1, is_sampled: false })).await;
    let spans = receiver.trace(asked.trace).await;
    let all: BTreeMap<&[u8], &(String, Span)> =
        spans.iter().map(|it| (it.1.span_id.as_slice(), it)).collect();
    let root = spans.iter().find(|(_, span)| span.name.ends_with("QueryService/Search")).unwrap();
    assert_eq!(root.1.parent_span_id, asked.span.to_be_bytes());
    let named = |name: &str, of: &str| {
        let of = |it: &&(String, Span)| it.0 == of && it.1.name == name;
        spans.iter().filter(of).collect::<Vec<_>>()
    };
    for stage in ["validate", "lookup", "vector", "search", "rerank", "rank", "fetch", "reply"] {
        let stage = named(stage, "bireme-query");
        assert_eq!(stage.len(), 1);
        assert_eq!(stage[0].1.parent_span_id, root.1.span_id);
        assert!(stage[0].1.start_time_unix_nano >= root.1.start_time_unix_nano);
        assert!(stage[0].1.end_time_unix_nano <= root.1.end_time_unix_nano);
    }
    let fetch = "bireme.fetch.v1.FetchService/Fetch";
    let (calls, batches) = (named(fetch, "bireme-query"), named(fetch, "bireme-io"));
    assert!(batches.len() >= 3 && calls.len() == batches.len(), "{}", calls.len());
    for (_, batch) in &batches {
        let (service, call) = all[batch.parent_span_id.as_slice()];
        assert_eq!((service.as_str(), call.name.as_str()), ("bireme-query", fetch));
        let stage = &all[call.parent_span_id.as_slice()].1;
        assert!(["vector", "rerank", "fetch"].contains(&stage.name.as_str()), "{}", stage.name);
        assert_eq!(within(&spans, batch), BTreeSet::from(["assemble", "locate", "queue", "read"]));
    }
    // The query node does not export the stages that the I/O node exports.
    for (_, call) in &calls {
        assert_eq!(within(&spans, call), BTreeSet::from(["batch", fetch, "stream"]));
    }
    for (_, plan) in named("plan", "bireme-query") {
        let stage = &all[plan.parent_span_id.as_slice()].1;
        assert!(["vector", "rerank", "fetch"].contains(&stage.name.as_str()), "{}", stage.name);
    }
    assert_eq!(named("plan", "bireme-query").len(), 3);
    cluster.stop().await;
    // The nodes sent the remaining spans when they stopped.
    let others = receiver.spans.lock().unwrap();
    let others = others.iter().filter(|(_, it)| it.trace_id != asked.trace.to_be_bytes()).count();
    assert_eq!(others, 0, "only sampled requests are exported");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_are_traced_whatever_the_ratio() {
    let words = words().await;
    let (receiver, endpoint) = Receiver::start().await;
    // Every request counts as slow.
    let slowly = TelemetryConfig { trace_slow: Duration::ZERO, ..sampled(&endpoint) };
    let cluster = Cluster::start_with(1, &[("words", &words.uri)], with_telemetry(slowly)).await;
    let slow = ParentSpan { trace: 0x510, span: 1, is_sampled: false };
    search(&cluster, Some(slow)).await;
    assert!(receiver.trace(slow.trace).await.len() > 10);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_request_has_the_stages_of_quick_io_nodes() {
    let words = words().await;
    let (receiver, endpoint) = Receiver::start().await;
    let cluster = Cluster::start_with(2, &[("words", &words.uri)], |io, query| {
        io.telemetry = sampled(&endpoint);
        query.telemetry = TelemetryConfig { trace_slow: Duration::ZERO, ..sampled(&endpoint) };
    })
    .await;
    let slow = ParentSpan { trace: 0x510e, span: 1, is_sampled: false };
    search(&cluster, Some(slow)).await;
    cluster.stop().await;
    let all = receiver.spans.lock().unwrap().clone();
    let spans: Vec<_> =
        all.into_iter().filter(|(_, it)| it.trace_id == slow.trace.to_be_bytes()).collect();
    assert!(spans.iter().all(|(service, _)| service == "bireme-query"));
    let calls: Vec<_> =
        spans.iter().filter(|(_, it)| it.name.ends_with("FetchService/Fetch")).collect();
    assert!(calls.len() >= 3, "{}", calls.len());
    let all = ["assemble", "batch", "locate", "queue", "read", "stream"];
    for (_, call) in calls {
        assert_eq!(within(&spans, call), BTreeSet::from(all));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_traced_unless_the_caller_caused_them() {
    let folder = folder();
    let uri = folder.path().join("table");
    members::write(&uri).await;
    let (receiver, endpoint) = Receiver::start().await;
    let cluster = Cluster::start_with(1, &[("t", &uri)], with_telemetry(sampled(&endpoint))).await;
    std::fs::remove_dir_all(uri.join("data")).unwrap();
    let take = async |row_addrs: Vec<u64>| {
        let request = TakeRequest { table: "t".into(), row_addrs, ..Default::default() };
        match cluster.client.take(request).await {
            Ok(taken) => taken.collect().await.unwrap_err(),
            Err(fault) => fault,
        }
    };
    assert_eq!(take(Vec::new()).await.reason, Reason::BadArgument);
    let lost = take(vec![5, 7]).await;
    assert_eq!(lost.reason, Reason::TableDamaged, "{lost}");
    cluster.stop().await;
    let spans = receiver.spans.lock().unwrap();
    let roots = spans.iter().filter(|(_, span)| span.name.ends_with("QueryService/Take"));
    let faults: Vec<_> = roots.map(|(_, span)| span.status.clone().unwrap().message).collect();
    assert_eq!(faults, [lost.message]);
}

/// Requests `path` over HTTP, and returns the head and the body of the response.
pub async fn scrape(address: SocketAddr, path: &str, accept: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let at = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    (String::from_utf8(answer[..at].to_vec()).unwrap(), answer[at + 4..].to_vec())
}

/// Returns the value of a series in the text format.
pub fn value(text: &str, series: &str) -> f64 {
    let line =
        text.lines().find(|line| line.strip_prefix(series).is_some_and(|it| it.starts_with(' ')));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_equal_status() {
    let words = words().await;
    let (receiver, endpoint) = Receiver::start().await;
    let settings = TelemetryConfig {
        metrics_listen: Some("127.0.0.1:0".parse().unwrap()),
        otlp_endpoint: Some(endpoint),
        otlp_interval: Duration::from_millis(100),
        ..Default::default()
    };
    let change = with_telemetry(settings);
    let uri = words.uri.to_str().unwrap();
    let label = io_node::table_label(&lake::TableUri::parse(uri).unwrap());
    let cluster = Cluster::start_with(1, &[("words", &words.uri)], |io, query| {
        change(io, query);
        let (minimum, maximum) = (ByteSize::mib(20), Some(ByteSize::gib(1)));
        io.shares = vec![ShareConfig { uri: uri.into(), minimum, maximum, pinned: false }];
        io.warm_at_start = vec![StartWarmConfig { uri: uri.into(), version: 0, columns: vec![] }];
    })
    .await;
    let warm = WarmRequest { table: "words".into(), ..Default::default() };
    let mut progress = cluster.client.warm(warm).await.unwrap();
    while let Some(step) = futures::StreamExt::next(&mut progress).await {
        step.unwrap();
    }
    for _ in 0..4 {
        search(&cluster, None).await;
    }
    while !cluster.io[0].node.is_ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let io = cluster.io[0].node.metrics_addr().unwrap();
    // Extents that the searches missed may still be filled, so scrape until nothing changes between two descriptions.
    let mut described = cluster.io[0].describe().await;
    let (head, text) = loop {
        let scraped = scrape(io, "/metrics", "*/*").await;
        let before = std::mem::replace(&mut described, cluster.io[0].describe().await);
        if (before.extents, &before.tables) == (described.extents, &described.tables) {
            break scraped;
        }
    };
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("# EOF\n"));
    // Parsers of the text format 0.0.4 know these types too, but not all types of OpenMetrics.
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.rsplit_once(' '));
    for (name, kind) in types {
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} is a {kind}");
    }
    let sum =
        |of: fn(&wire::fetch::Core) -> u64| described.cores.iter().map(of).sum::<u64>() as f64;
    assert_eq!(value(&text, "bireme_io_rows_total"), sum(|core| core.rows));
    assert_eq!(value(&text, "bireme_io_batches_total"), sum(|core| core.batches));
    assert_eq!(value(&text, "bireme_io_extents"), described.extents as f64);
    assert_eq!(value(&text, "bireme_io_ready"), f64::from(u8::from(described.ready)));
    let warmed = value(&text, "bireme_io_start_warm_extents{state=\"done\"}");
    let progress = described.start_warms[0].progress.as_ref().unwrap();
    assert!(warmed > 0.0 && described.ready);
    assert_eq!(warmed, progress.extents_done as f64);
    assert_eq!(value(&text, "bireme_io_start_warm_extents{state=\"left\"}"), 0.0);
    let usage = value(&text, "bireme_io_directory_usage_bytes");
    assert!(0.0 < usage && usage < value(&text, "bireme_io_directory_limit_bytes"));
    let table = described.tables.iter().find(|table| table.table == label).unwrap();
    let shares = [
        ("usage", table.bytes),
        ("held", table.held_bytes),
        ("minimum", 20 << 20),
        ("maximum", 1 << 30),
    ];
    for (what, bytes) in shares {
        let series = format!("bireme_io_share_{what}_bytes{{table=\"{label}\"}}");
        assert_eq!(value(&text, &series), bytes as f64, "{what}");
    }
    assert!(table.bytes > 0);
    assert_eq!(value(&text, "bireme_store_breakers_open"), 0.0);
    for cache in ["index", "metadata"] {
        let series = |what: &str| format!("bireme_lake_cache_{what}{{cache=\"{cache}\"}}");
        assert!(value(&text, &series("usage_bytes")) <= value(&text, &series("limit_bytes")));
    }
    assert!(value(&text, "bireme_lake_cache_hits_total{cache=\"metadata\"}") > 0.0);
    let drive = format!("{{drive=\"{}\"}}", described.drives[0].path);
    let shared = ["merged", "deduplicated"]
        .map(|how| value(&text, &format!("bireme_io_coalesced_total{{how=\"{how}\"}}")));
    assert_eq!(shared.iter().sum::<f64>(), sum(|core| core.shared_pieces));
    // No drive fails, so only rows without an extent are read from the table.
    let misses = value(&text, "bireme_io_extents_misses_total");
    assert_eq!(misses, value(&text, "bireme_io_rows_from_table_total"));
    let hits = value(&text, "bireme_io_extents_hits_total");
    assert!(hits > 0.0 && hits + misses >= sum(|core| core.rows));
    let heat = |core: usize, heat: u8| {
        let series = format!("bireme_io_extents_heat{{core=\"{core}\",heat=\"{heat}\"}}");
        value(&text, &series)
    };
    for core in 0..described.cores.len() {
        let extents: f64 = (0..=3).map(|class| heat(core, class)).sum();
        assert_eq!(extents, described.extents as f64);
    }
    assert!((0..described.cores.len()).any(|core| heat(core, 0) < described.extents as f64));
    let reads = value(&text, &format!("bireme_io_drive_reads_total{drive}"));
    assert_eq!(reads, sum(|core| core.drive_reads));
    assert!(reads > 0.0);
    assert_eq!(value(&text, &format!("bireme_io_drive_read_duration_seconds_count{drive}")), reads);
    assert_eq!(
        value(&text, "bireme_io_batch_duration_seconds_count{stage=\"all\"}"),
        sum(|core| core.batches)
    );
    // The metrics of the process are exported too.
    assert!(value(&text, "process_cpu_time_seconds_total") > 0.0);
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7";
    let (head, bytes) = scrape(io, "/metrics", protobuf).await;
    assert!(head.contains("proto=io.prometheus.client.MetricFamily"), "{head}");
    assert!(bytes.len() > 1000 && !bytes.starts_with(b"#"));
    assert!(scrape(io, "/", "*/*").await.0.starts_with("HTTP/1.1 404"));
    for node in [io, cluster.query.metrics_addr().unwrap()] {
        for probe in ["/live", "/ready"] {
            let (head, said) = scrape(node, probe, "*/*").await;
            assert!(head.starts_with("HTTP/1.1 200"), "{probe}: {head}");
            assert_eq!(String::from_utf8(said).unwrap(), format!("{}\n", &probe[1..]));
        }
    }

    let (_, text) = scrape(cluster.query.metrics_addr().unwrap(), "/metrics", "*/*").await;
    let text = String::from_utf8(text).unwrap();
    let searches = "rpc_server_call_duration_seconds_count{rpc_method=\"bireme.query.v1.QueryService/Search\",rpc_response_status_code=\"OK\"}";
    assert_eq!(value(&text, searches), 4.0);
    let searches = "bireme_query_searches_total{by=\"vector\",via=\"index\",index=\"IVF_RQ\"}";
    assert_eq!(value(&text, searches), 4.0);
    for of_search in ["candidates", "nprobes"] {
        let counted = format!("bireme_query_search_{of_search}_count{{index=\"IVF_RQ\"}}");
        assert_eq!(value(&text, &counted), 4.0);
    }
    let of_node =
        |what: &str| value(&text, &format!("bireme_query_io_node_{what}{{io_node=\"io-0\"}}"));
    let streams = of_node("streams");
    assert!(streams > 0.0);
    assert_eq!(of_node("credit_limit"), streams * f64::from(IoConfig::default().credit_rows));
    assert_eq!(
        (of_node("credit_waits_total"), of_node("credit_wait_time_seconds_total")),
        (0.0, 0.0)
    );
    assert_eq!(value(&text, "bireme_query_io_nodes{state=\"ready\"}"), 1.0);
    assert!(value(&text, "bireme_query_table_version{table=\"words\"}") > 0.0);
    let status = cluster.client.status().await.unwrap();
    let calls = status.calls.iter().find(|it| it.rpc == "Search").unwrap();
    assert_eq!(calls.seconds.as_ref().unwrap().counts.iter().sum::<u64>(), 4);
    assert!(status.io_nodes[0].batch_seconds.as_ref().unwrap().sum > 0.0);

    // The same metrics arrive over OTLP after the export interval.
    let name = |service: &str, name: &str| (service.to_owned(), name.to_owned());
    for _ in 0..100 {
        let metrics = receiver.metrics.lock().unwrap().clone();
        let rows = metrics.get(&name("bireme-io", "bireme.io.batch.duration"));
        let calls = metrics.get(&name("bireme-query", "rpc.server.call.duration"));
        if let (Some(Data::ExponentialHistogram(rows)), Some(Data::ExponentialHistogram(calls))) =
            (rows, calls)
            && calls.data_points.iter().any(|point| point.count == 4)
        {
            let point = &rows.data_points[0];
            let buckets = point.positive.as_ref().unwrap();
            let in_buckets: u64 = buckets.bucket_counts.iter().sum();
            assert_eq!(in_buckets + point.zero_count, point.count);
            assert_eq!(point.scale, 3);
            cluster.stop().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no metrics came over OTLP within 10 s");
}

#[tokio::test]
async fn every_metric_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/metrics.md");
    let tables = [
        ("io", io_node::METRICS),
        ("query", query_node::METRICS),
        ("store", stores::STORE_METRICS),
        ("tls", telemetry::TLS_METRICS),
        ("process", telemetry::PROCESS_METRICS),
    ];
    let mut text = std::fs::read_to_string(path).unwrap();
    for (name, metrics) in tables {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = text.find(&begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
        let to = from + text[from..].find(&end).unwrap_or_else(|| panic!("no {end}"));
        text.replace_range(from..to, &telemetry::table(metrics.iter().copied()));
    }
    if std::env::var_os("BIREME_WRITE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == text,
        "docs/operating/metrics.md is not what the code says; write it anew with BIREME_WRITE_DOCS=1"
    );
}
