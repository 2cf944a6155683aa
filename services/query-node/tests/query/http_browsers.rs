//! Tests which requests of web pages are answered over plain HTTP.

use hyper::Method;
use query_node::{AccessConfig, QueryConfig};
use serde_json::json;

use crate::http::{request, send};
use crate::node::{config, serve_with};
use crate::table::TestTable;

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_allowed_origins_are_answered_and_no_others() {
    let app = "https://app.example.com";
    let browser_origins = vec![app.to_owned().try_into().unwrap()];
    let (node, _client) = serve_with(QueryConfig { browser_origins, ..config(&[]) }).await;
    let asked = async |method: Method, path: &str, origin: &'static str| {
        let mut request = request(method, path, "");
        request.headers_mut().insert("origin", origin.parse().unwrap());
        let wanted = "x-api-key, content-type".parse().unwrap();
        request.headers_mut().insert("access-control-request-headers", wanted);
        let answer = send(&node, request).await;
        let header = |name: &str| Some(answer.headers.get(name)?.to_str().unwrap().to_owned());
        let shared = header("access-control-allow-origin");
        (answer.status.as_u16(), shared, header("access-control-allow-headers"))
    };
    let shared = Some(app.to_owned());
    let listed = asked(Method::GET, "/v1/table/", app).await;
    assert_eq!(listed, (200, shared.clone(), None));
    let failed = asked(Method::POST, "/v1/table/t/describe/", app).await;
    assert_eq!(failed, (404, shared.clone(), None));
    let preflight = asked(Method::OPTIONS, "/v1/table/t/query/", app).await;
    assert_eq!(preflight, (204, shared, Some("x-api-key, content-type".into())));
    // A call that is refused before it reaches its service.
    let grpc = "/bireme.query.v1.QueryService/Status";
    let mut early = request(Method::POST, grpc, "");
    early.headers_mut().insert("origin", app.parse().unwrap());
    early.headers_mut().insert("x-request-id", "seven".parse().unwrap());
    let early = send(&node, early).await;
    assert_eq!(early.status, 400);
    assert_eq!(early.headers["access-control-allow-origin"], app);
    assert_eq!(early.headers["x-request-id"], "seven");
    for method in [Method::GET, Method::OPTIONS] {
        let refused = asked(method, "/v1/table/", "https://evil.example.com").await;
        assert_eq!(refused, (403, None, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_name_leads_to_the_node_reads_nothing() {
    let table = TestTable::plain().await;
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("access.toml");
    let digest = access::digest_of_key(b"the key of one");
    let grants = format!(
        "[keys.one]\nsha256 = [\"{digest}\"]\n[[grants]]\nname = \"all\"\nwho = [\"anyone\", \"key:one\"]\ntables = [\"*\"]\nmay = [\"read\"]\n"
    );
    std::fs::write(&policy, grants).unwrap();
    let named = "http://bireme.example.com:7070".to_owned().try_into().unwrap();
    let browser_origins = vec![named];
    let open = QueryConfig { browser_origins, ..config(&[("t", &table)]) };
    let access = Some(AccessConfig::Policy(policy));
    let guarded = QueryConfig { access, ..config(&[("t", &table)]) };
    let (open, _client) = serve_with(open).await;
    let (guarded, _client) = serve_with(guarded).await;
    open.ready().await;
    guarded.ready().await;
    for (node, host, key, status) in [
        (&open, "node.example.com", None, 403),
        (&open, "node.example.com", Some("any"), 403),
        (&open, "bireme.example.com:7070", None, 200),
        (&open, "bireme-query.default.svc", Some("any"), 200),
        (&open, "127.0.0.1:7070", None, 200),
        // The grant is for anyone, so a page needs no key, and does not know one.
        (&guarded, "node.example.com", None, 403),
        (&guarded, "node.example.com", Some("any"), 401),
        (&guarded, "node.example.com", Some("the key of one"), 200),
        (&guarded, "127.0.0.1", None, 200),
    ] {
        for (method, path) in [
            (Method::GET, "/v1/table/"),
            (Method::GET, "/v1/namespace/$/table/list"),
            (Method::POST, "/v1/table/t/count_rows/"),
        ] {
            let mut request = request(method, path, "");
            request.headers_mut().insert("host", host.parse().unwrap());
            if let Some(key) = key {
                request.headers_mut().insert("x-api-key", key.parse().unwrap());
            }
            let answer = send(node, request).await;
            assert_eq!(answer.status, status, "{host} {key:?} {path}");
            if status == 403 {
                let (_, _, said) = answer.error();
                assert!(said.contains("`node.example.com`"), "{said}");
                assert_eq!(answer.json()["tables"], json!(null));
            }
        }
    }
}
