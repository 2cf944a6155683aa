//! Tests plain HTTP with raw requests. LanceDB's own clients are tested in `loadtest/lancedb_clients`.

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, Int64Type, UInt64Type};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use query_node::{AccessConfig, QueryConfig, QueryNode};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::keys::with_metrics;
use crate::node::{config, metrics, near, serve_with, served};
use crate::table::{DIMENSION, ROWS, TestTable, live, vector};

pub struct Answer {
    pub status: StatusCode,
    pub version: Option<u64>,
    pub media_type: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the rows of an Arrow file or stream.
    pub fn rows(&self) -> RecordBatch {
        assert_eq!(self.status, StatusCode::OK, "{}", String::from_utf8_lossy(&self.body));
        let batches: Vec<RecordBatch> = match self.media_type.as_str() {
            "application/vnd.apache.arrow.file" => {
                let reader =
                    arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(&self.body), None);
                reader.unwrap().map(Result::unwrap).collect()
            }
            "application/vnd.apache.arrow.stream" => {
                let reader = arrow_ipc::reader::StreamReader::try_new(self.body.as_ref(), None);
                reader.unwrap().map(Result::unwrap).collect()
            }
            other => panic!("{other}"),
        };
        let schema = batches[0].schema();
        arrow_select::concat::concat_batches(&schema, &batches).unwrap()
    }

    pub fn ids(&self) -> Vec<i64> {
        self.rows()["id"].as_primitive::<Int64Type>().values().to_vec()
    }

    pub fn error(&self) -> (u16, u64, String) {
        let body = self.json();
        (
            self.status.as_u16(),
            body["code"].as_u64().unwrap(),
            body["error"].as_str().unwrap().into(),
        )
    }
}

/// Sends a request on a connection of its own.
pub async fn send(node: &QueryNode, request: Request<Full<Bytes>>) -> Answer {
    let stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driving = tokio::spawn(connection);
    let answer = received(sender.send_request(request).await.unwrap()).await;
    driving.abort();
    answer
}

async fn received(response: Response<Incoming>) -> Answer {
    let header = |name: &str| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
    assert_eq!(header("phalanx-version").as_deref(), Some("0.5.0"));
    let (status, media_type) = (response.status(), header("content-type").unwrap_or_default());
    let version = header("x-lancedb-version").map(|it| it.parse().unwrap());
    let headers = response.headers().clone();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { status, version, media_type, headers, body }
}

/// Sends a GET over HTTP/2, as LanceDB's clients do if the connection has TLS.
async fn send_by_http2(node: &QueryNode, path: &str) -> Answer {
    let stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let driving = tokio::spawn(connection);
    let uri = format!("http://node{path}");
    let answer = received(sender.send_request(request(Method::GET, &uri, "")).await.unwrap()).await;
    driving.abort();
    answer
}

pub fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("host", "node");
    request.body(Full::new(body.into())).unwrap()
}

pub async fn post(node: &QueryNode, path: &str, body: Value) -> Answer {
    send(node, request(Method::POST, path, body.to_string())).await
}

pub async fn post_with(
    node: &QueryNode,
    path: &str,
    body: Value,
    headers: &[(&'static str, String)],
) -> Answer {
    let mut request = request(Method::POST, path, body.to_string());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    send(node, request).await
}

pub async fn get(node: &QueryNode, path: &str) -> Answer {
    get_with(node, path, &[]).await
}

pub async fn get_with(node: &QueryNode, path: &str, headers: &[(&'static str, String)]) -> Answer {
    let mut request = request(Method::GET, path, "");
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    send(node, request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_descriptions() {
    let (_table, node, _client) = served().await;
    assert_eq!(get(&node, "/v1/table/").await.json(), json!({"tables": ["t"], "page_token": null}));
    let after = get(&node, "/v1/namespace/$/table/list?page_token=t&limit=3").await.json();
    assert_eq!(after["tables"], json!([]));
    let namespaces = get(&node, "/v1/namespace/%24/list?delimiter=%24").await.json();
    assert_eq!(namespaces["namespaces"], json!([]));
    let described = send(&node, request(Method::POST, "/v1/table/t/describe/", "")).await;
    assert_eq!(described.version, described.json()["version"].as_u64());
    let field = |described: &Answer, at: usize| described.json()["schema"]["fields"][at].clone();
    assert_eq!(
        field(&described, 0),
        json!({"name": "id", "type": {"type": "int64"}, "nullable": false})
    );
    assert_eq!(field(&described, 4)["type"]["fields"][0]["type"]["type"], "float");
    let namespace = post(&node, "/v1/table/t/describe?delimiter=%24", json!({"id": ["t"]})).await;
    assert_eq!(field(&namespace, 4)["type"]["fields"][0]["type"]["type"], "float32");
    let count = |body: Value| async { post(&node, "/v1/table/t/count_rows/", body).await.json() };
    assert_eq!(count(json!({"version": null})).await, live().count());
    let few = live().filter(|id| *id < 100).count();
    assert_eq!(count(json!({"predicate": "id < 100"})).await, few);
    assert_eq!(count(json!({"version": 1})).await, 2000);
    let stats = post(&node, "/v1/table/t/stats/", json!({})).await.json();
    assert_eq!(stats["num_deleted_rows"], ROWS / 10);
    assert_eq!(stats["fragment_stats"]["num_fragments"], 2);
    let indexes = post(&node, "/v1/table/t/index/list/", json!({})).await.json();
    let names: Vec<_> =
        indexes["indexes"].as_array().unwrap().iter().map(|it| &it["index_type"]).collect();
    assert!(names.contains(&&json!("IVF_RQ")) && names.contains(&&json!("FTS")), "{indexes}");
    let versions = post(&node, "/v1/table/t/version/list/", json!({})).await.json();
    assert_eq!(versions["versions"].as_array().unwrap().len() as u64, described.version.unwrap());
    assert_eq!(post(&node, "/v1/table/t/tags/list/", json!({})).await.json(), json!({}));
    let branches = post(&node, "/v1/table/t/branches/list/", json!({})).await.json();
    assert_eq!(branches, json!({"branches": {}}));
    assert_eq!(send(&node, request(Method::POST, "/v1/table/t/exists", "{}")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_are_described() {
    let (node, _client) = serve_with(config(&[])).await;
    let stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driving = tokio::spawn(connection);
    let asked = request(Method::GET, "/openapi.json", "");
    let response = sender.send_request(asked).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    driving.abort();
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/table/{id}/query"]["post"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_what_grpc_finds() {
    let (_table, node, client) = served().await;
    let grpc = client.search(near(vector(1), 7)).await.unwrap().rows;
    let body = json!({"vector": vector(1), "k": 7, "columns": ["id", "_distance", "key"], "with_row_id": true});
    let found = post(&node, "/v1/table/t/query/", body).await;
    let rows = found.rows();
    let names: Vec<_> = rows.schema().fields().iter().map(|it| it.name().clone()).collect();
    assert_eq!(names, ["id", "_distance", "key", "_rowid"]);
    let distances = |rows: &RecordBatch| rows["_distance"].as_primitive::<Float32Type>().clone();
    assert_eq!(distances(&rows), distances(&grpc));
    let addresses = grpc["_rowaddr"].as_primitive::<UInt64Type>();
    assert_eq!(rows["_rowid"].as_primitive::<UInt64Type>(), addresses);
    // Without `columns`, all columns are returned, vectors too. Several query vectors are several searches.
    let body = json!({"vector": [vector(1), vector(2)], "k": 2, "prefilter": true});
    let rows = post(&node, "/v1/table/t/query", body).await.rows();
    assert_eq!(rows["query_index"].as_primitive::<Int32Type>().values(), &[0, 0, 1, 1]);
    assert_eq!(rows["vector"].as_fixed_size_list().value_length(), DIMENSION as i32);
    // The nearest rows are put in order before some are skipped.
    let by = json!([{"column_name": "id", "ascending": false}]);
    let mut ordered = grpc["id"].as_primitive::<Int64Type>().values().to_vec();
    ordered.sort_unstable_by(|a, b| b.cmp(a));
    let body = json!({"vector": vector(1), "k": 5, "offset": 2, "order_by": by, "columns": ["_distance"], "with_row_id": true});
    assert_eq!(post(&node, "/v1/table/t/query/", body.clone()).await.rows().num_rows(), 5);
    let mut body = body;
    body["columns"] = json!(["id"]);
    assert_eq!(post(&node, "/v1/table/t/query/", body).await.ids(), ordered[2..]);
    let body =
        json!({"vector": [], "k": 4, "full_text_query": {"query": {"match": {"terms": "oak"}}}});
    let rows = post(&node, "/v1/table/t/query/", body).await.rows();
    assert!(rows["text"].as_string::<i32>().iter().all(|it| it.unwrap().starts_with("oak")));
    assert_eq!(rows.num_rows(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn words_without_letters_find_nothing() {
    let (_table, node, _client) = served().await;
    for words in ["!!!", "🙂", "   ", "", "\"!\""] {
        for query in [
            json!({"query": words, "columns": []}),
            json!({"query": {"match": {"terms": words, "column": "text"}}}),
            json!({"query": {"phrase": {"terms": words, "column": "text"}}}),
        ] {
            let body = json!({"vector": [], "k": 4, "full_text_query": query});
            let rows = post(&node, "/v1/table/t/query/", body).await.rows();
            assert_eq!(rows.num_rows(), 0, "{words}");
            assert!(rows.column_by_name("_score").is_some());
        }
    }
    let unknown = json!({"match": {"terms": "!", "column": "txt"}});
    let body = json!({"k": 4, "full_text_query": {"query": unknown}});
    let (status, _, said) = post(&node, "/v1/table/t/query/", body).await.error();
    assert!(status == 400 && said.contains("no column \"txt\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_read_in_pieces_by_filter_position_and_id() {
    let (_table, node, _client) = served().await;
    let ids = |body: Value| async { post(&node, "/v1/table/t/query/", body).await.ids() };
    let max = i64::MAX;
    // Rows have texts, so their size is not fixed: the first piece has only 256 rows, and an answer with all rows has
    // several pieces.
    let all = ids(json!({"vector": [], "k": max})).await;
    assert_eq!(all, live().collect::<Vec<_>>());
    assert_eq!(
        ids(json!({"k": 3, "offset": 2980 - 283, "columns": ["id"]})).await,
        [2996, 2998, 2999]
    );
    assert_eq!(
        ids(json!({"k": max, "filter": "id >= 2994"})).await,
        [2994, 2995, 2996, 2998, 2999]
    );
    let by = json!([{"column_name": "id", "ascending": false, "nulls_first": true}]);
    assert_eq!(
        ids(json!({"k": 3, "order_by": by, "filter": "id < 2000"})).await,
        [1999, 1998, 1996]
    );
    let row_ids =
        json!({"k": max, "filter": format!("_rowid IN ({}, 1, 7, {})", 1u64 << 32, 9u64 << 40)});
    assert_eq!(ids(row_ids).await, [1, 2000], "row 7 is deleted, and there is no fragment 2304");
    let limited = json!({"k": 2, "offset": 1, "filter": "_rowid IN (9, 8, 7, 1, 0)"});
    assert_eq!(ids(limited).await, [1, 8], "neither the limit nor the offset counts row 7");
    let positions = json!({"k": max, "filter": "_rowoffset IN (7, 0, 2699, 2700)", "columns": ["id", "_rowoffset"]});
    let rows = post(&node, "/v1/table/t/query/", positions).await.rows();
    assert_eq!(rows["id"].as_primitive::<Int64Type>().values(), &[0, 8, 2999]);
    assert_eq!(rows["_rowoffset"].as_primitive::<UInt64Type>().values(), &[0, 7, 2699]);
    let none = post(&node, "/v1/table/t/query/", json!({"k": max, "filter": "id < 0"})).await;
    assert_eq!((none.rows().num_rows(), none.rows().num_columns()), (0, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_by_a_filter_are_counted_as_searches() {
    let table = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let (node, _client) = serve_with(with_metrics(config(&[("t", &table)]))).await;
    let by = json!([{"column_name": "id", "ascending": false, "nulls_first": true}]);
    for body in [
        json!({"k": 3, "filter": "key IN ('row-1', 'row-2')"}),
        json!({"k": 3, "filter": "id < 50"}),
        json!({"k": 3, "filter": "id < 50", "order_by": by}),
        // The last two queries only name or list rows, which does not count as a search.
        json!({"k": 3, "filter": "_rowid IN (1, 2)"}),
        json!({"k": 3}),
    ] {
        assert_eq!(post(&node, "/v1/table/t/query/", body).await.status, StatusCode::OK);
    }
    let text = metrics(&node).await;
    let searches = text.lines().filter_map(|line| line.strip_prefix("bireme_query_searches_total"));
    let searches: Vec<&str> = searches.collect();
    let expected = [
        "{by=\"filter\",via=\"index\",index=\"planned\"} 1",
        "{by=\"filter\",via=\"scanner\",index=\"planned\"} 2",
    ];
    assert_eq!(searches, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_say_what_is_wrong() {
    let (_table, node, _client) = served().await;
    let nearest = |more: Value| {
        let mut body = json!({"vector": vector(1), "k": 2});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let too_many = format!("_rowid IN (1{})", ",1".repeat(1_000_000));
    for (path, body, status, code, said) in [
        ("/v1/table/u/query/", json!({}), 404, 4, "no table `u` is served here"),
        ("/v1/table/a$t/query/", json!({}), 404, 4, "no table `a$t` is served here"),
        ("/v1/table/t/describe/", json!({"version": 99}), 404, 11, "<t> has no version 99"),
        ("/v1/table/t/describe/", json!({"version": 0}), 404, 11, "<t> has no version 0"),
        ("/v1/table/t/query/", json!({"version": 0}), 404, 11, "<t> has no version 0"),
        ("/v1/table/t/describe", json!({"id": ["u"]}), 400, 13, "`id` is `u`, and the path names"),
        ("/v1/table/t/query", json!({"id": ["a", "t"], "k": 1}), 400, 13, "`id` is `a$t`"),
        ("/v1/namespace/$/exists", json!({"id": ["a"]}), 400, 13, "`id` is `a`"),
        (
            "/v1/table/t/explain_plan",
            json!({"id": ["u"], "query": {"k": 1}}),
            400,
            13,
            "`id` is `u`",
        ),
        ("/v1/table/t/tags/version/", json!({"tag": "x"}), 404, 8, "table `t` has no tag `x`"),
        ("/v1/table/t/index/x/stats/", json!({}), 404, 6, "table `t` has no index `x`"),
        ("/v1/table/t/query/", json!({"branch": "b"}), 404, 22, "<t> has no branch `b`"),
        ("/v1/table/t/version/list/?branch=b", json!({}), 404, 22, "<t> has no branch `b`"),
        ("/v1/table/t/query/", json!({"branch": "../u"}), 400, 13, "`branch` `../u` is no branch"),
        ("/v1/table/t/query/", json!([1]), 400, 13, "`body` is not the JSON of this call"),
        (
            "/v1/table/t/query/",
            nearest(json!({"k": 20_000})),
            400,
            13,
            "`k` is 20000; ask for 1 to 10000",
        ),
        ("/v1/table/t/query/", nearest(json!({"k": u64::MAX})), 400, 13, "too large for a search"),
        (
            "/v1/table/t/query/",
            nearest(json!({"offset": u64::MAX})),
            400,
            13,
            "give a smaller number",
        ),
        ("/v1/table/t/query/", nearest(json!({"vector": [1]})), 400, 13, "has 1 dimensions"),
        ("/v1/table/t/query/", nearest(json!({"filter": "idd = 3"})), 400, 13, "no column \"idd\""),
        ("/v1/table/t/query/", nearest(json!({"columns": ["x"]})), 400, 12, "no column \"x\""),
        (
            "/v1/table/t/query/",
            nearest(json!({"columns": {"a": "id + idd"}})),
            400,
            12,
            "no column \"idd\"",
        ),
        ("/v1/table/t/query/", nearest(json!({"distance_type": "l3"})), 400, 13, "choose l2"),
        (
            "/v1/table/t/query/",
            nearest(json!({"order_by": [{"column_name": "idd"}]})),
            400,
            12,
            "no column \"idd\"",
        ),
        (
            "/v1/table/t/query/",
            nearest(json!({"order_by": [{"column_name": "_rowoffset"}]})),
            400,
            13,
            "`order_by` names `_rowoffset`",
        ),
        (
            "/v1/table/t/query/",
            nearest(json!({"order_by": [{"column_name": "id"}], "offset": u32::MAX})),
            400,
            13,
            "`offset` is 4294967295, and k is 2",
        ),
        (
            "/v1/table/t/query/",
            nearest(json!({"offset": u32::MAX})),
            400,
            13,
            "`offset` is 4294967295, and k is 2",
        ),
        ("/v1/table/t/query/", json!({"k": 1, "filter": too_many}), 400, 13, "more than 1000000"),
        ("/v1/table/t/query/", json!({"k": 1, "filter": "id = = 1"}), 400, 13, "id = = 1"),
        ("/v1/table/t/insert/", json!({}), 501, 0, "a query node serves reads"),
        ("/v1/table/t/create/", json!({}), 501, 0, "a query node serves reads"),
        ("/v1/namespace/a/describe", json!({}), 404, 1, "no namespace `a`"),
    ] {
        let answer = post(&node, path, body.clone()).await;
        let (found, number, error) = answer.error();
        assert_eq!((found, number), (status, code), "{path} {body}: {error}");
        assert!(error.contains(said), "{path} {body}: {error}");
    }
    assert_eq!(get(&node, "/v1/table/t/query/").await.error().0, 405);
    for body in [json!({"id": ["t"], "k": 1}), json!({"id": [], "k": 1}), json!({"id": null})] {
        assert_eq!(post(&node, "/v1/table/t/count_rows", body).await.status, 200);
    }
    // A base URL may end with slashes.
    assert_eq!(get(&node, "///v1/table/").await.json()["tables"], json!(["t"]));
    assert_eq!(send_by_http2(&node, "/api/v1/table/").await.error().0, 404);
    // The connection stays usable after a refusal: the body is read to its end.
    let stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driving = tokio::spawn(connection);
    for _ in 0..20 {
        let refused = request(Method::POST, "/v1/table/t/insert/", vec![7; 300 << 10]);
        let response = sender.send_request(refused).await.unwrap();
        assert_eq!(response.status(), 501);
        response.into_body().collect().await.unwrap();
        sender.ready().await.unwrap();
    }
    driving.abort();
    let mut of_a_page = request(Method::POST, "/v1/table/t/describe/", "");
    of_a_page.headers_mut().insert("origin", "http://example.com".parse().unwrap());
    assert_eq!(send(&node, of_a_page).await.error().0, 403);
    let long = vec![b' '; 33 << 20];
    let (status, _, said) =
        send(&node, request(Method::POST, "/v1/table/t/query/", long)).await.error();
    assert!(status == 413 && said.contains("at most 33554432"), "{status}: {said}");
    let mut hasty = request(Method::POST, "/v1/table/t/version/list/", "");
    hasty.headers_mut().insert("x-request-timeout-ms", "0".parse().unwrap());
    let (status, _, said) = send(&node, hasty).await.error();
    assert!(status == 408 && said.starts_with("Query timeout"), "{status}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_see_what_their_grants_name() {
    let tables = [TestTable::plain().await, TestTable::plain().await];
    let folder = tempfile::tempdir().unwrap();
    let (policy, audit) = (folder.path().join("access.toml"), folder.path().join("audit.jsonl"));
    let digest = access::digest_of_key(b"the key of one");
    let grants = format!(
        "[keys.one]\nsha256 = [\"{digest}\"]\n[[grants]]\nname = \"one\"\nwho = [\"key:one\"]\ntables = [\"a\"]\nmay = [\"read\"]\nconcurrent = 1\n"
    );
    std::fs::write(&policy, grants).unwrap();
    let config = QueryConfig {
        access: Some(AccessConfig::Policy(policy)),
        audit: Some(audit.clone()),
        ..config(&[("a", &tables[0]), ("b", &tables[1])])
    };
    let (node, _client) = serve_with(config).await;
    node.ready().await;
    let keyed = |path: &str, body: &str| {
        let mut request = request(Method::POST, path, body.to_owned());
        request.headers_mut().insert("x-api-key", "the key of one".parse().unwrap());
        request
    };
    assert_eq!(get(&node, "/v1/table/").await.error().0, 401);
    let mut list = keyed("/v1/table/", "");
    *list.method_mut() = Method::GET;
    assert_eq!(send(&node, list).await.json()["tables"], json!(["a"]));
    assert_eq!(send(&node, keyed("/v1/table/a/count_rows/", "{}")).await.json(), live().count());
    // A query of two vectors is one request.
    let two = json!({"vector": [vector(1), vector(2)], "k": 2, "columns": ["id"]}).to_string();
    assert_eq!(send(&node, keyed("/v1/table/a/query/", &two)).await.ids().len(), 4);
    let forbidden = send(&node, keyed("/v1/table/b/count_rows/", "{}")).await.error();
    let absent = send(&node, keyed("/v1/table/c/count_rows/", "{}")).await.error();
    assert_eq!(forbidden.2.replace("`b`", "`c`"), absent.2);
    assert_eq!((forbidden.0, absent.0), (404, 404));
    drop(node.shutdown(Duration::from_secs(5)).await);
    let audit = std::fs::read_to_string(&audit).unwrap();
    let lines: Vec<Value> = audit.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let of_calls: Vec<_> =
        lines.iter().map(|it| (&it["rpc"], &it["verdict"], &it["table"])).collect();
    let count = json!("http/count_rows");
    assert!(of_calls.contains(&(&count, &json!("allowed"), &json!("a"))), "{audit}");
    assert!(of_calls.contains(&(&count, &json!("denied"), &json!("b"))), "{audit}");
}
