//! Tests the access policy over real connections with API keys: who may do what with which tables.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use client::query::{
    Append, By, CountRequest, GetRequest, ListTagsRequest, ListVersionsRequest, LookupOpen,
    PlacementRequest, QueryClient, SearchRequest, TakeRequest, Vector, Vectors, WarmRequest,
    append_columns, presence_of,
};
use futures::{StreamExt, TryStreamExt};
use query_node::{AccessConfig, QueryConfig, QueryNode};
use serde_json::{Value, json};
use telemetry::TelemetryConfig;
use tempfile::TempDir;
use wire::query::lookup_response::Kind;
use wire::query::{DescribeTableRequest, LookupBatch, LookupRequest, RowFormat};
use wire::{Fault, Reason};

use crate::deadlines::large_take;
use crate::http::get_with;
use crate::lookups::{service, text_keys};
use crate::node::{by, config, metrics, near, serve_with};
use crate::table::{ROWS, TestTable, address_of, is_live, key, lake, vector};

/// The keys of the callers. With [`GRANTS`], `one` may read tables whose names begin with `a`; `two` may do everything
/// with `b`; `all` may observe all tables.
const KEYS: [&str; 3] = ["one", "two", "all"];

pub fn policy(grants: &str) -> String {
    let key = |name: &str| {
        let digest = access::digest_of_key(secret(name).as_bytes());
        format!("[keys.{name}]\nsha256 = [\"{digest}\"]\n")
    };
    KEYS.map(key).concat() + grants
}

pub fn secret(name: &str) -> String {
    format!("the key of {name}, which nobody can guess")
}

const GRANTS: &str = r#"
    [[grants]]
    name = "one"
    who = ["key:one"]
    tables = ["a*"]
    may = ["read"]
    [[grants]]
    name = "two"
    who = ["key:two"]
    tables = ["b"]
    may = ["read", "warm", "observe"]
    [[grants]]
    name = "all"
    who = ["key:all"]
    tables = ["*"]
    may = ["observe"]
"#;

struct Served {
    node: QueryNode,
    anonymous: QueryClient,
    folder: TempDir,
    _tables: [TestTable; 2],
}

impl Served {
    async fn new(grants: &str) -> Self {
        let tables = [TestTable::plain().await, TestTable::plain().await];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.toml");
        std::fs::write(&file, policy(grants)).unwrap();
        let config = QueryConfig {
            access: Some(AccessConfig::Policy(file)),
            audit: Some(folder.path().join("audit.jsonl")),
            telemetry: TelemetryConfig {
                metrics_listen: Some("127.0.0.1:0".parse().unwrap()),
                ..Default::default()
            },
            ..config(&[("a", &tables[0]), ("b", &tables[1])])
        };
        let (node, anonymous) = serve_with(config).await;
        node.ready().await;
        Self { node, anonymous, folder, _tables: tables }
    }

    fn with_key(&self, name: &str) -> QueryClient {
        self.anonymous.clone().with_token(&secret(name)).unwrap()
    }

    fn policy_file(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    /// Returns the lines of the audit log, once there are `count` of them.
    async fn audited(&self, count: usize) -> Vec<Value> {
        for _ in 0..500 {
            let lines = lines(&self.folder.path().join("audit.jsonl"));
            if lines.len() >= count {
                assert_eq!(lines.len(), count, "{lines:?}");
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", lines(&self.folder.path().join("audit.jsonl")));
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn get(table: &str) -> GetRequest {
    GetRequest {
        table: table.into(),
        keys: vec![key(1)],
        key_column: "key".into(),
        ..Default::default()
    }
}

/// Returns the faults of the rpcs that name a table, except Lookup and Tune.
async fn refusals(client: &QueryClient, table: &str) -> Vec<Fault> {
    let placed = PlacementRequest { table: table.into(), ..Default::default() };
    let warm = WarmRequest { table: table.into(), ..Default::default() };
    let (named, branch) = (table.into(), "exp".into());
    let branch = DescribeTableRequest { table: named, branch, version: 0 };
    let versions = ListVersionsRequest { table: table.into(), ..Default::default() };
    let tags = ListTagsRequest { table: table.into(), ..Default::default() };
    let take = TakeRequest {
        table: table.into(),
        row_addrs: vec![address_of(1).to_u64()],
        ..Default::default()
    };
    let mut search = near(vector(1), 1);
    search.table = table.into();
    let requests = futures::stream::iter([get(table)]);
    let mut answers = client.get_stream(requests, RowFormat::Arrow).await.unwrap();
    vec![
        client.search(search).await.unwrap_err(),
        client.get(get(table)).await.unwrap_err(),
        answers.next().await.unwrap().unwrap_err(),
        client.take(take).await.err().unwrap(),
        client.describe(table, 0).await.unwrap_err(),
        client.count(CountRequest { table: table.into(), ..Default::default() }).await.unwrap_err(),
        client.describe_version(branch).await.unwrap_err(),
        client.list_versions(versions).await.unwrap_err(),
        client.list_tags(tags).await.unwrap_err(),
        client.warm(warm).await.err().unwrap(),
        client.placement(placed).await.unwrap_err(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_tables_answer_like_tables_that_do_not_exist() {
    let served = Served::new(GRANTS).await;
    let one = served.with_key("one");
    assert_eq!(one.get(get("a")).await.unwrap().version, 3);
    let named: Vec<_> = one.tables().await.unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(named, ["a"]);
    let forbidden = Box::pin(refusals(&one, "b")).await;
    let absent = Box::pin(refusals(&one, "c")).await;
    for (forbidden, mut absent) in forbidden.into_iter().zip(absent) {
        absent.message = absent.message.replace("`c`", "`b`");
        absent.metadata.insert("table".into(), "b".into());
        assert_eq!(forbidden, absent);
        assert_eq!(forbidden.reason, Reason::TableNotFound);
        assert_eq!(forbidden.message, "no table `b` is served here; there is a");
    }
    // The pattern of the grant covers a name that no table has.
    let absent = one.get(get("a2")).await.unwrap_err();
    assert!(absent.message.starts_with("no table `a2` is served here; there is a"), "{absent}");
    assert!(!absent.message.contains("`b`"), "{absent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_verifies_no_certificates_refuses_grants_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    std::fs::write(&file, policy(&GRANTS.replace("key:one", "san:one.example"))).unwrap();
    let config = QueryConfig { access: Some(AccessConfig::Policy(file)), ..config(&[]) };
    let error = QueryNode::start(config, lake()).await.err().unwrap().to_string();
    assert!(error.contains("`san:one.example`") && error.contains("`tls.client_ca`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_missing_is_named() {
    let served = Served::new(GRANTS).await;
    let one = served.with_key("one");
    let warm = WarmRequest { table: "a".into(), ..Default::default() };
    let fault = one.warm(warm).await.err().unwrap();
    assert_eq!(fault.reason, Reason::Forbidden);
    assert!(fault.message.starts_with("no grant lets you warm table `a`"), "{fault}");
    let fault = one.status().await.unwrap_err();
    assert!(fault.message.starts_with("no grant lets you observe this node"), "{fault}");
    let status = served.with_key("two").status().await.unwrap();
    assert_eq!(status.tables.len(), 1);
    assert_eq!(served.with_key("all").status().await.unwrap().tables.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_are_not_identified_get_one_answer() {
    let served = Served::new(GRANTS).await;
    let mut faults = refused_streams(&served.anonymous).await;
    for token in ["nonsense", "eyJhbGciOiJub25lIn0.e30.", &secret("nobody")] {
        faults.extend(refused_streams(&served.anonymous.clone().with_token(token).unwrap()).await);
    }
    assert!(faults.iter().all(|fault| *fault == faults[0]), "{faults:?}");
    assert_eq!(faults[0].reason, Reason::Unauthenticated);
}

async fn refused_streams(client: &QueryClient) -> Vec<Fault> {
    let requests = futures::stream::iter([get("a")]);
    vec![
        client.get(get("a")).await.unwrap_err(),
        client.tables().await.unwrap_err(),
        client.status().await.unwrap_err(),
        client.get_stream(requests, RowFormat::Arrow).await.err().unwrap(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_loses_its_rights_when_the_policy_changes() {
    let served = Served::new(GRANTS).await;
    let (send, requests) = futures::channel::mpsc::unbounded();
    let mut answers = served.with_key("one").get_stream(requests, RowFormat::Arrow).await.unwrap();
    send.unbounded_send(get("a")).unwrap();
    answers.next().await.unwrap().unwrap();
    std::fs::write(served.policy_file(), policy(&GRANTS.replace("a*", "b"))).unwrap();
    served.node.reload_policy().await;
    send.unbounded_send(get("a")).unwrap();
    let fault = answers.next().await.unwrap().unwrap_err();
    assert_eq!(fault.reason, Reason::TableNotFound);
    send.unbounded_send(get("b")).unwrap();
    answers.next().await.unwrap().unwrap();
    // The key is replaced by another: no request of the stream is answered any more.
    let digest = |name: &str| access::digest_of_key(secret(name).as_bytes());
    let without = policy(GRANTS).replace(&digest("one"), &digest("another"));
    std::fs::write(served.policy_file(), without).unwrap();
    served.node.reload_policy().await;
    send.unbounded_send(get("b")).unwrap();
    let fault = answers.next().await.unwrap().unwrap_err();
    assert_eq!(fault.reason, Reason::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_refuse_with_the_time_to_wait() {
    let limited = GRANTS.replace("may = [\"read\"]", "may = [\"read\"]\nrows_per_second = 1");
    let served = Served::new(&limited).await;
    let one = served.with_key("one");
    one.get(get("a")).await.unwrap();
    let fault = one.get(get("a")).await.unwrap_err();
    assert_eq!(fault.reason, Reason::LimitReached);
    assert_eq!(fault.metadata["limit"], "rows_per_second");
    // A grant of one row per second allows the next row after a second, a part of which may have passed.
    let after = fault.retry_after().unwrap();
    assert!((1..=1000).contains(&after.as_millis()), "{after:?}");
    assert!(fault.message.contains(&format!("try again in {} ms", after.as_millis())), "{fault}");
    // Another grant has limits of its own.
    served.with_key("two").get(get("b")).await.unwrap();
}

/// Calls that use no table run under a grant too.
#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_for_status_and_lists() {
    let served = Served::new(&GRANTS.replace("may = [", "concurrent = 1\nmay = [")).await;
    let (one, two) = (served.with_key("one"), served.with_key("two"));
    two.status().await.unwrap();
    one.tables().await.unwrap();
    let key = [("x-api-key", secret("one"))];
    let list = "/v1/namespace/$/table/list";
    assert_eq!(get_with(&served.node, list, &key).await.json()["tables"], json!(["a"]));
    let shown: Vec<_> = served.audited(3).await.into_iter().map(|it| it["grant"].clone()).collect();
    assert_eq!(shown, ["two", "one", "one"]);

    // A Take that nobody reads is the one request that each grant allows at a time.
    let mut takes = Vec::new();
    for (client, table) in [(&one, "a"), (&two, "b")] {
        let mut taken = client.take(large_take(table)).await.unwrap();
        assert!(taken.next().await.unwrap().is_some());
        takes.push(taken);
    }
    for fault in [two.status().await.unwrap_err(), one.tables().await.unwrap_err()] {
        assert_eq!(fault.reason, Reason::LimitReached, "{fault}");
        assert_eq!(fault.metadata["limit"], "concurrent");
    }
    let refused = get_with(&served.node, list, &key).await;
    assert_eq!(refused.status, 429);
    served.with_key("all").status().await.unwrap();
}

fn ids_by_key() -> LookupOpen {
    let (key_column, columns) = ("key".into(), vec!["id".into()]);
    LookupOpen { handle: 1, table: "a".into(), key_column, columns, ..Default::default() }
}

/// Batches that are looked up together are refused together: once, and as denied.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_batches_that_reaches_a_limit_is_one_refusal() {
    let limited = GRANTS.replace("may = [\"read\"]", "may = [\"read\"]\nrows_per_second = 1");
    let served = Served::new(&limited).await;
    let minutes = GetRequest { keys: vec![key(1); 600], ..get("a") };
    served.with_key("one").get(minutes).await.unwrap();
    let batch = |id| LookupBatch { id, handle: 1, keys: Some(text_keys(&[key(1), key(2)])) };
    let batches = vec![batch(1), batch(2), batch(3)];
    let message = LookupRequest { open: vec![ids_by_key()], batches, close: Vec::new() };
    let mut request = tonic::Request::new(futures::stream::iter([message]));
    let token = format!("Bearer {}", secret("one")).parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    let mut answers = service(&served.node).await.lookup(request).await.unwrap().into_inner();
    let mut refused = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        let Some(Kind::Reply(reply)) = answer.kind else { continue };
        refused.extend(reply.results.into_iter().map(|it| (it.id, it.error.unwrap().reason)));
    }
    assert_eq!(refused, [1, 2, 3].map(|id| (id, "LIMIT_REACHED".to_owned())));

    // The Get, the open, and the group.
    let lines = served.audited(3).await;
    let denied: Vec<_> = lines.iter().filter(|line| line["verdict"] == "denied").collect();
    assert_eq!(denied.len(), 1, "{lines:?}");
    assert_eq!(denied[0]["reason"], "LIMIT_REACHED");
    let series = "bireme_query_denied_total{error_type=\"rows_per_second\"} 1\n";
    let metrics = metrics(&served.node).await;
    assert!(metrics.contains(series), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_waits_for_the_rows_that_its_limit_allows() {
    let limited = GRANTS.replace("may = [\"read\"]", "may = [\"read\"]\nrows_per_second = 2000");
    let served = Served::new(&limited).await;
    let lookups = served.with_key("one").lookups().await.unwrap();
    let lookup = lookups.open(ids_by_key()).await.unwrap();
    // The first 2,000 rows are allowed at once.
    let wanted: Vec<i64> = (0..6_000).map(|at| at * 7 % ROWS).collect();
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(wanted.iter().map(|&id| key(id))));
    let input = RecordBatch::try_from_iter([("k", texts)]).unwrap();
    let counts = Arc::default();
    let append = Append { lookup, on: "k".into(), counts: Arc::clone(&counts) };
    let input = futures::stream::iter([Ok(input)]);
    let joined: Vec<RecordBatch> =
        append_columns(input, Arc::from([append])).try_collect().await.unwrap();
    let ids = joined.iter().flat_map(|rows| rows["id"].as_primitive::<Int64Type>().iter());
    let expected = wanted.iter().map(|&id| is_live(id).then_some(id));
    assert!(ids.eq(expected));
    assert_eq!(counts.keys(), 6_000, "no key is counted twice");
    // It did reach the limit.
    let text = metrics(&served.node).await;
    assert!(!text.contains("bireme_query_denied_total{error_type=\"rows_per_second\"} 0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_of_presence_waits_for_the_rows_that_its_limit_allows() {
    let limited = GRANTS.replace("may = [\"read\"]", "may = [\"read\"]\nrows_per_second = 4000");
    let served = Served::new(&limited).await;
    let lookups = served.with_key("one").lookups().await.unwrap();
    let open = LookupOpen { columns: Vec::new(), only_presence: true, ..ids_by_key() };
    let lookup = lookups.open(open).await.unwrap();
    // More than the node looks up together.
    let ids = (0..12_000).map(|at| at % ROWS);
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(key)));
    let absent = presence_of(&lookup, &keys).await.unwrap().not_found;
    let expected = (0_u32..).zip(ids).filter(|(_, id)| !is_live(*id)).map(|(at, _)| at);
    assert!(absent.into_iter().eq(expected));
    // It did reach the limit.
    let text = metrics(&served.node).await;
    assert!(!text.contains("bireme_query_denied_total{error_type=\"rows_per_second\"} 0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_vectors_are_charged_together_once_the_request_is_valid() {
    let limited = GRANTS.replace("may = [\"read\"]", "may = [\"read\"]\nrows_per_second = 1");
    let served = Served::new(&limited).await;
    let one = served.with_key("one");
    let vectors = [1, 2].map(|id| Vector { values: vector(id) }).into();
    let search = SearchRequest { table: "a".into(), ..by(By::Vectors(Vectors { vectors }), 3) };
    let wrong = SearchRequest { ef: u32::MAX, ..search.clone() };
    let fault = one.search(wrong).await.unwrap_err();
    assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
    assert_eq!(one.search(search).await.unwrap().rows.num_rows(), 6);
    let fault = one.get(get("a")).await.unwrap_err();
    assert_eq!(fault.reason, Reason::LimitReached);
    // Six rows take 6 s, of which the search took a part. The rows of one vector would take at most 3 s.
    let after = fault.retry_after().unwrap();
    assert!((3001..=6000).contains(&after.as_millis()), "{after:?}");
}

/// A request that the policy refuses is `denied` in the audit log and counted by cause, also within a stream.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_audited_and_counted_by_cause() {
    let limited = GRANTS.replace("may = [\"read\"]", "may = [\"read\"]\nrows_per_second = 1");
    let served = Served::new(&limited).await;
    let one = served.with_key("one");
    one.get(get("a")).await.unwrap();
    one.get(get("a")).await.unwrap_err();
    served.with_key("all").get(get("a")).await.unwrap_err();
    let (send, requests) = futures::channel::mpsc::unbounded();
    let mut answers = one.get_stream(requests, RowFormat::Arrow).await.unwrap();
    let digest = |name: &str| access::digest_of_key(secret(name).as_bytes());
    let without = policy(&limited).replace(&digest("one"), &digest("another"));
    std::fs::write(served.policy_file(), without).unwrap();
    served.node.reload_policy().await;
    send.unbounded_send(get("a")).unwrap();
    answers.next().await.unwrap().unwrap_err();

    let lines = served.audited(4).await;
    let of = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| ["caller", "grant", "verdict", "reason"].map(|name| of(line, name)))
        .collect();
    let expected = [
        ["key:one", "one", "allowed", ""],
        ["key:one", "one", "denied", "LIMIT_REACHED"],
        ["key:all", "", "denied", "FORBIDDEN"],
        ["key:one", "", "denied", "withdrawn"],
    ];
    assert_eq!(shown, expected);

    let metrics = metrics(&served.node).await;
    let denied = |cause: &str| {
        let series = format!("bireme_query_denied_total{{error_type=\"{cause}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&series)).map(str::to_owned)
    };
    for cause in ["rows_per_second", "forbidden", "withdrawn"] {
        assert_eq!(denied(cause).as_deref(), Some("1"), "{cause}: {metrics}");
    }
    assert_eq!(denied("concurrent").as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_reader_hangs_up_counts_as_cancelled() {
    let served = Served::new(GRANTS).await;
    let mut taken = served.with_key("one").take(large_take("a")).await.unwrap();
    assert!(taken.next().await.unwrap().is_some());
    drop(taken);
    let lines = served.audited(1).await;
    assert_eq!(lines[0]["code"], "CANCELLED", "{}", lines[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_of_a_request_that_shutdown_drops_is_written() {
    let Served { node, anonymous, folder, _tables } = Served::new(GRANTS).await;
    let one = anonymous.with_token(&secret("one")).unwrap();
    let mut taken = one.take(large_take("a")).await.unwrap();
    assert!(taken.next().await.unwrap().is_some());
    // The Take waits for its reader, so it is still running when the patience is over.
    node.shutdown(Duration::from_millis(100)).await.unwrap();
    let lines = lines(&folder.path().join("audit.jsonl"));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(line["code"], "CANCELLED", "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_wait_for_the_audit_log_until_their_deadlines_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, pipe) = (folder.path().join("access.toml"), folder.path().join("audit"));
    std::fs::write(&file, policy(GRANTS)).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Nobody reads the pipe, so it takes a few hundred lines, and then lines wait for it.
    let _pipe = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let metrics_listen = Some("127.0.0.1:0".parse().unwrap());
    let (node, anonymous) = serve_with(QueryConfig {
        access: Some(AccessConfig::Policy(file)),
        audit: Some(pipe),
        timeout: Duration::from_secs(1),
        telemetry: TelemetryConfig { metrics_listen, ..Default::default() },
        ..config(&[])
    })
    .await;
    let requests = futures::stream::repeat(()).map(|()| anonymous.get(get("a")));
    let mut refused = requests.buffer_unordered(64);
    let late = async {
        loop {
            let fault = refused.next().await.unwrap().unwrap_err();
            if fault.reason != Reason::Unauthenticated {
                return fault;
            }
        }
    };
    let late = tokio::time::timeout(Duration::from_secs(120), late).await;
    let fault = late.expect("a caller is answered");
    assert_eq!(fault.reason, Reason::DeadlineExceeded, "{fault}");
    assert!(fault.message.contains("during audit"), "{fault}");
    drop(refused);

    // A caller with a key waits too. Its call is one of those that metrics count, and no longer under way.
    let one = anonymous.clone().with_token(&secret("one")).unwrap();
    let fault = one.count(CountRequest { table: "a".into(), ..Default::default() }).await;
    let fault = fault.unwrap_err();
    assert!(fault.message.contains("during audit"), "{fault}");
    let metrics = metrics(&node).await;
    let counted = "rpc_server_call_duration_seconds_count{\
         rpc_method=\"bireme.query.v1.QueryService/Count\",\
         rpc_response_status_code=\"DEADLINE_EXCEEDED\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("bireme_query_requests_under_way 0\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_the_names_of_refused_requests_too_but_not_all_of_long_ones() {
    let served = Served::new(GRANTS).await;
    let one = served.with_key("one");
    let long = "é".repeat(200);
    for (table, branch) in [("b", "exp"), ("a", "exp"), ("a", &long), (&long, "exp")] {
        let request =
            DescribeTableRequest { table: table.into(), branch: branch.into(), version: 0 };
        one.describe_version(request).await.unwrap_err();
    }
    let lines = served.audited(4).await;
    let of = |name: &str| -> Vec<_> {
        lines.iter().map(|line| line[name].as_str().unwrap().to_owned()).collect()
    };
    let cut = "é".repeat(128);
    assert_eq!(of("branch"), ["exp", "exp", &cut, "exp"]);
    assert_eq!(of("table"), ["b", "a", "a", &cut]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_has_a_line_in_the_audit_log() {
    let served = Served::new(GRANTS).await;
    let one = served.with_key("one");
    one.get(get("a")).await.unwrap();
    one.get(get("b")).await.unwrap_err();
    served.anonymous.get(get("a")).await.unwrap_err();
    let take = TakeRequest {
        table: "a".into(),
        row_addrs: vec![address_of(1).to_u64(), address_of(2).to_u64()],
        ..Default::default()
    };
    let mut taken = one.take(take).await.unwrap();
    while taken.next().await.unwrap().is_some() {}
    let lines = served.audited(4).await;
    let of = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            let rpc = of(line, "rpc").rsplit('/').next().unwrap().to_owned();
            let words = [of(line, "caller"), rpc, of(line, "table"), of(line, "grant")];
            (words, of(line, "verdict"), of(line, "reason"), line["rows"].as_u64().unwrap())
        })
        .collect();
    let words = |caller: &str, rpc: &str, table: &str, grant: &str| {
        [caller, rpc, table, grant].map(str::to_owned)
    };
    let expected = [
        (words("key:one", "Get", "a", "one"), "allowed".into(), String::new(), 1),
        (words("key:one", "Get", "b", ""), "denied".into(), "TABLE_NOT_FOUND".into(), 0),
        (words("", "Get", "", ""), "denied".into(), "no_credentials".into(), 0),
        (words("key:one", "Take", "a", "one"), "allowed".into(), String::new(), 2),
    ];
    assert_eq!(shown, expected);
    assert!(lines.iter().all(|line| line["peer"].as_str().unwrap().starts_with("127.0.0.1:")));
    assert!(lines[0]["bytes"].as_u64().unwrap() > 0 && lines[0]["version"] == 3, "{}", lines[0]);
}
