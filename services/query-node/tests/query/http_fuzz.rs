//! Fuzzes plain HTTP: bodies of queries, and everything around bodies.

use std::time::Duration;

use ::fuzz::rand::Rng;
use ::fuzz::rand::rngs::StdRng;
use ::fuzz::rand::seq::IndexedRandom;
use ::fuzz::{cases, damage};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::blobs;
use crate::http::{get, request, send};
use crate::node::{serve, served};
use crate::table::{TestTable, vector};

#[tokio::test(flavor = "multi_thread")]
async fn fuzz_queries() {
    let (_table, node, _client) = served().await;
    let paths = [
        "query/",
        "query",
        "count_rows/",
        "explain_plan/",
        "describe",
        "tags/version/",
        "index/x/stats/",
    ];
    let values = [
        json!(null),
        json!([]),
        json!(0),
        json!(-1),
        json!(3.5),
        json!(u64::MAX),
        json!("id < 5"),
        json!("x"),
        json!({}),
        json!([1, [2]]),
        json!(vector(3)),
        json!([vector(1)]),
        json!(["id", "id"]),
        json!(["_rowid"]),
        json!(["_rowoffset", "_distance"]),
        json!({"a": "id"}),
        json!({"query": {"match": {"terms": "oak"}}}),
        json!({"single_vector": vector(2)}),
        json!("_rowid IN (1, 2)"),
        json!("_rowoffset IN (99999999)"),
        json!(true),
        json!([{"column_name": "id"}]),
        json!("cosine"),
        json!(10),
    ];
    let fields = [
        "k",
        "vector",
        "version",
        "branch",
        "prefilter",
        "filter",
        "columns",
        "offset",
        "with_row_id",
        "fast_search",
        "order_by",
        "full_text_query",
        "vector_column",
        "distance_type",
        "nprobes",
        "minimum_nprobes",
        "maximum_nprobes",
        "lower_bound",
        "upper_bound",
        "ef",
        "refine_factor",
        "bypass_vector_index",
        "predicate",
        "query",
        "tag",
    ];
    let mut calls = Vec::new();
    cases("fuzz_queries", 300, |rng| {
        let mut body = json!({"vector": vector(1), "k": 3});
        for _ in 0..rng.random_range(0..5) {
            let field = fields[rng.random_range(0..fields.len())];
            body[field] = values[rng.random_range(0..values.len())].clone();
        }
        let mut bytes = body.to_string().into_bytes();
        if rng.random_range(0..6) == 0 {
            damage(rng, &mut bytes);
        }
        calls.push((paths[rng.random_range(0..paths.len())], bytes));
    });
    for (path, bytes) in calls {
        let asked = request(Method::POST, &format!("/v1/table/t/{path}"), bytes.clone());
        let answer =
            tokio::time::timeout(Duration::from_secs(30), send(&node, asked)).await.unwrap();
        let body = String::from_utf8_lossy(&bytes);
        let said = String::from_utf8_lossy(&answer.body);
        assert!(answer.status.as_u16() < 500 || answer.status == 501, "{path} {body}: {said}");
        if answer.status != StatusCode::OK {
            answer.error();
        }
    }
}

/// Paths, with and without what they need. `%` begins an encoded byte.
const PATHS: [&str; 22] = [
    "/v1/table",
    "/v1/table/",
    "//v1/table",
    "/v1/namespace/$/table/list",
    "/v1/namespace/%24/list",
    "/v1/namespace/$/describe",
    "/v1/namespace/a%00b/exists",
    "/v1/table/t/describe/",
    "/v1/table/t/query",
    "/v1/table/t/version/list",
    "/v1/table/t/version/describe",
    "/v1/table/t/tags/list",
    "/v1/table/t/index/list/",
    "/v1/table/t/index/%ff%fe/stats/",
    "/v1/table/b/blob/image/3/bytes",
    "/v1/table/b/blob/image/2/bytes",
    "/v1/table/b/blob/image/99999999999/bytes",
    "/v1/table/b/blob/im%2Fage/-1/bytes",
    "/v1/table/b/fetch_blobs/",
    "/v1/table/%e2%82/count_rows",
    "/v1/%2e%2e/%2e%2e/etc/passwd",
    "/v1/table/t//query//",
];

const PARAMETERS: [&str; 9] =
    ["delimiter", "branch", "version", "limit", "page_token", "descending", "source_uri", "", "x"];

const VALUES: [&str; 16] = [
    "",
    "$",
    "%24",
    "%",
    "%zz",
    "%00",
    "main",
    "0",
    "-1",
    "1",
    "99999999999999999999999",
    "true",
    "../../x",
    "%c3%28",
    "t",
    "%F0%9F%98%80",
];

const HEADERS: [&str; 12] = [
    "x-lancedb-min-version",
    "x-lancedb-min-read-version",
    "x-lancedb-min-timestamp",
    "x-request-timeout-ms",
    "x-request-id",
    "range",
    "origin",
    "sec-fetch-site",
    "x-api-key",
    "authorization",
    "grpc-timeout",
    "content-type",
];

const HEADER_VALUES: [&str; 24] = [
    "",
    "0",
    "1",
    "-1",
    "18446744073709551616",
    "9007199254740993",
    "x",
    "\u{e9}",
    "2026-01-01T00:00:00Z",
    "1970-01-01T00:00:00+00:00",
    "2999-01-01T00:00:00Z",
    "0000-00-00T99:99:99Z",
    "bytes=0-",
    "bytes=0-0",
    "bytes=-1",
    "bytes=5-2",
    "bytes=0-1,3-4",
    "bytes=99999999999999999999-",
    "bits=0-1",
    "http://evil.example.com",
    "null",
    "same-origin",
    "Bearer x",
    "1S",
];

const HOSTS: [&str; 8] =
    ["node", "127.0.0.1:7070", "[::1]", "evil.example.com", "", "a b", ":", "x@node"];

const BODIES: [&str; 8] = [
    "",
    "{}",
    "{\"k\": 3}",
    "{\"limit\": 1, \"page_token\": \"a\", \"descending\": true}",
    "{\"column\": \"image\", \"row_ids\": [0, 1, 2, 3, 77]}",
    "{\"column\": \"id\", \"row_ids\": \"x\"}",
    "[]",
    "{\"version\": 2, \"branch\": \"main\"}",
];

/// Returns the bytes of a request, most of which are those of a call, and whether they are whole.
fn any_request(rng: &mut StdRng) -> (Vec<u8>, bool) {
    let of = |rng: &mut StdRng, list: &[&str]| (*list.choose(rng).unwrap()).to_owned();
    let method = of(rng, &["GET", "POST", "POST", "OPTIONS", "PUT", "HEAD"]);
    let mut path = of(rng, &PATHS);
    for at in 0..rng.random_range(0..4) {
        path.push(if at == 0 { '?' } else { '&' });
        path += &format!("{}={}", of(rng, &PARAMETERS), of(rng, &VALUES));
    }
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", of(rng, &HOSTS));
    for _ in 0..rng.random_range(0..4) {
        head += &format!("{}: {}\r\n", of(rng, &HEADERS), of(rng, &HEADER_VALUES));
    }
    let body = of(rng, &BODIES);
    head += &format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let mut bytes = head.into_bytes();
    let is_whole = rng.random_range(0..5) > 0;
    if !is_whole {
        damage(rng, &mut bytes);
    }
    bytes.extend(body.as_bytes());
    (bytes, is_whole)
}

/// Sends bytes on a connection of their own, and returns the bytes of the answer.
async fn raw_answer(node: &query_node::QueryNode, bytes: &[u8], is_whole: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(node.local_addr()).await.unwrap();
    let mut answer = Vec::new();
    // The node may answer and close the connection before it has read everything.
    let _closed = stream.write_all(bytes).await;
    if !is_whole {
        // The node would wait for the rest.
        let _closed = stream.shutdown().await;
    }
    let _reset = stream.read_to_end(&mut answer).await;
    answer
}

/// Joins the chunks of a chunked body (RFC 9112, 7.1).
fn without_chunks(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunked.windows(2).position(|it| it == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&chunked[..end]).unwrap(), 16).unwrap();
        body.extend_from_slice(&chunked[end + 2..][..len]);
        chunked = chunked.get(end + 2 + len + 2..).unwrap_or_default();
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn fuzz_requests() {
    let (table, blobs) = (TestTable::plain().await, blobs::table(true).await);
    let (node, _client) = serve(&[("t", &table), ("b", &blobs)]).await;
    node.ready().await;
    let mut requests = Vec::new();
    cases("fuzz_requests", 600, |rng| requests.push(any_request(rng)));
    let mut answered = 0;
    for (bytes, is_whole) in requests {
        let asked = String::from_utf8_lossy(&bytes);
        let answer = raw_answer(&node, &bytes, is_whole);
        let answer = tokio::time::timeout(Duration::from_secs(30), answer);
        let answer = answer.await.unwrap_or_else(|_| panic!("not answered: {asked}"));
        let Some(end) = answer.windows(4).position(|it| it == b"\r\n\r\n") else {
            // Not a request of HTTP at all.
            assert!(answer.is_empty(), "{asked}: {}", String::from_utf8_lossy(&answer));
            continue;
        };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status: u16 = head["http/1.1 ".len()..][..3].parse().unwrap();
        assert!(status < 500 || status == 501, "{asked}: {head}");
        let is_json = head.contains("content-type: application/json");
        let body = match head.contains("transfer-encoding: chunked") {
            true => without_chunks(&answer[end + 4..]),
            false => answer[end + 4..].to_vec(),
        };
        if status >= 400 && is_json && !body.is_empty() {
            let error: Value = serde_json::from_slice(&body).unwrap_or_else(|error| {
                panic!("{asked}: {error}: {}", String::from_utf8_lossy(&body))
            });
            assert!(error["error"].is_string() && error["code"].is_u64(), "{asked}: {error}");
        }
        // Pages are never told that they may read an answer.
        assert!(!head.contains("access-control-allow-origin"), "{asked}: {head}");
        answered += usize::from(status == 200);
    }
    assert!(answered > 10, "{answered} requests were answered with success");
    assert_eq!(get(&node, "/v1/table/").await.json()["tables"], json!(["b", "t"]));
}
