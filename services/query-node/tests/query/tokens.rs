//! Rejected tokens: whatever is wrong with a token, the caller gets the same answer, byte for byte. Only the audit log
//! and the metrics have the cause.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use certificates::{RSA_PUBLIC_PEM, TokenSigner, key_set};
use futures::stream;
use jsonwebtoken::Algorithm;
use query_node::{AccessConfig, QueryConfig};
use serde_json::{Value, json};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use wire::query::query_service_client::QueryServiceClient;
use wire::query::{
    DescribeTableRequest, GetRequest, ListTablesRequest, PlacementRequest, SearchRequest,
    StatusRequest, TakeRequest, WarmRequest,
};

use crate::http::{get, get_with};
use crate::node::{config, serve_with};
use crate::table::TestTable;

const POLICY: &str = r#"
    [[grants]]
    name = "tokens"
    who = ["jwt:idp:*"]
    tables = ["*"]
    may = ["read", "warm", "observe"]
"#;

fn policy(jwks: &Path) -> String {
    format!(
        "[issuers.idp]\nissuer = \"https://idp\"\njwks = \"{}\"\naudiences = [\"bireme\"]\n\
         algorithms = [\"RS256\"]\n{POLICY}",
        jwks.display()
    )
}

/// Returns the claims of a good token, with changes; `null` removes a claim.
fn with(changes: Value) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let mut claims =
        json!({ "iss": "https://idp", "sub": "caller", "aud": "bireme", "exp": now + 600 });
    for (name, value) in changes.as_object().unwrap() {
        match (name.as_str(), value) {
            (_, Value::Null) => drop(claims.as_object_mut().unwrap().remove(name)),
            // Seconds from now.
            ("exp" | "nbf" | "iat", value) => claims[name] = (now + value.as_i64().unwrap()).into(),
            (_, value) => claims[name] = value.clone(),
        }
    }
    claims
}

/// Returns a token of each kind that must be rejected, with the cause that the audit log must have.
fn refused(issuer: &TokenSigner) -> Vec<(String, &'static str)> {
    let good = issuer.sign(&with(json!({})));
    let parts: Vec<&str> = good.split('.').collect();
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let none = part(r#"{"alg":"none"}"#);
    let changed = part(&with(json!({ "sub": "root" })).to_string());
    let public = issuer.public().to_string();
    let plain = with(json!({}));
    vec![
        (issuer.sign(&with(json!({ "exp": -60 }))), "expired"),
        (issuer.sign(&with(json!({ "nbf": 60 }))), "not_yet_valid"),
        (issuer.sign(&with(json!({ "exp": null }))), "malformed"),
        (issuer.sign(&with(json!({ "iss": "https://foreign" }))), "unknown_issuer"),
        (issuer.sign(&with(json!({ "aud": "another" }))), "audience"),
        (issuer.sign(&with(json!({ "aud": null }))), "audience"),
        // Unsigned, with and without the signature of a good token.
        (format!("{none}.{}.", parts[1]), "algorithm"),
        (format!("{none}.{}.{}", parts[1], parts[2]), "algorithm"),
        // The public key used as a shared secret, in both published forms.
        (TokenSigner::secret("k1", RSA_PUBLIC_PEM.as_bytes()).sign(&plain), "algorithm"),
        (TokenSigner::secret("k1", public.as_bytes()).sign(&plain), "algorithm"),
        // The right key with an algorithm that the policy does not allow.
        (issuer.sign_as(Algorithm::RS512, &plain), "algorithm"),
        (issuer.sign_as(Algorithm::PS256, &plain), "algorithm"),
        // Other keys under the issuer's `kid`, and the issuer's key under another one.
        (TokenSigner::rsa("k1", 1).sign(&plain), "bad_signature"),
        (TokenSigner::new("k1").sign(&plain), "algorithm"),
        (issuer.named("k2").sign(&plain), "unknown_key"),
        (format!("{}.{changed}.{}", parts[0], parts[2]), "bad_signature"),
        (format!("{}.{}.", parts[0], parts[1]), "bad_signature"),
        ("not.a.token".into(), "malformed"),
        ("an API key that nobody has".into(), "unknown_api_key"),
    ]
}

fn request<T>(token: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Makes each call of the service except Lookup and Tune. All must be refused. Returns the refusals.
async fn refusals(client: &QueryServiceClient<Channel>, token: Option<&str>) -> Vec<Status> {
    let table = || "t".to_owned();
    let search = SearchRequest { table: table(), k: 1, ..Default::default() };
    let get = GetRequest { table: table(), ..Default::default() };
    let gets = stream::iter([get.clone()]);
    let take = TakeRequest { table: table(), row_addrs: vec![1], ..Default::default() };
    let describe = DescribeTableRequest { table: table(), ..Default::default() };
    let warm = WarmRequest { table: table(), ..Default::default() };
    let placed = PlacementRequest { table: table(), ..Default::default() };
    let mut of = client.clone();
    vec![
        of.search(request(token, search)).await.unwrap_err(),
        of.get(request(token, get)).await.unwrap_err(),
        of.get_stream(request(token, gets)).await.unwrap_err(),
        of.take(request(token, take)).await.unwrap_err(),
        of.list_tables(request(token, ListTablesRequest {})).await.unwrap_err(),
        of.describe_table(request(token, describe)).await.unwrap_err(),
        of.warm(request(token, warm)).await.unwrap_err(),
        of.placement(request(token, placed)).await.unwrap_err(),
        of.status(request(token, StatusRequest {})).await.unwrap_err(),
    ]
}

/// Returns everything that a caller receives: the code, the text, the details, and all headers and trailers.
fn received(status: &Status) -> (Code, String, Vec<u8>, Vec<(String, String)>) {
    let headers = MetadataMap::into_headers(status.metadata().clone());
    let mut headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.to_string(), format!("{value:?}"))).collect();
    headers.sort();
    (status.code(), status.message().to_owned(), status.details().to_vec(), headers)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_with_a_token_the_answer_is_the_same() {
    let issuer = TokenSigner::rsa("k1", 0);
    let (table, folder) = (TestTable::plain().await, tempfile::tempdir().unwrap());
    let jwks = folder.path().join("jwks.json");
    std::fs::write(&jwks, key_set(&[&issuer])).unwrap();
    let file = folder.path().join("access.toml");
    std::fs::write(&file, policy(&jwks)).unwrap();
    let audit = folder.path().join("audit.jsonl");
    let config = QueryConfig {
        access: Some(AccessConfig::Policy(file)),
        audit: Some(audit.clone()),
        ..config(&[("t", &table)])
    };
    let (node, client) = serve_with(config).await;
    node.ready().await;
    let good = issuer.sign(&with(json!({})));
    client.clone().with_token(&good).unwrap().describe("t", 0).await.unwrap();

    let endpoint = format!("http://{}", node.local_addr());
    let channel = Channel::from_shared(endpoint).unwrap().connect().await.unwrap();
    let raw = QueryServiceClient::new(channel);
    let first = received(&refusals(&raw, None).await[0]);
    assert_eq!(first.0, Code::Unauthenticated);
    let (tokens, mut causes) = (refused(&issuer), vec!["no_credentials"]);
    for (token, cause) in &tokens {
        causes.push(cause);
        for status in refusals(&raw, Some(token)).await {
            assert_eq!(received(&status), first, "{cause}: {token}");
        }
    }
    // The audit log has each token's own cause, for each call.
    let lines = || std::fs::read_to_string(&audit).unwrap();
    let calls = 1 + 9 * causes.len();
    for _ in 0..500 {
        if lines().lines().count() == calls {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reasons: Vec<_> = lines()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["verdict"] == "denied")
        .map(|line| line["reason"].as_str().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = causes.iter().flat_map(|&cause| [cause; 9]).collect();
    assert_eq!(reasons, expected);
    // Plain HTTP accepts and refuses the same tokens.
    let over_http = async |token: &str| {
        let bearer = [("authorization", format!("Bearer {token}"))];
        get_with(&node, "/v1/table/", &bearer).await
    };
    assert_eq!(over_http(&good).await.json()["tables"], json!(["t"]));
    let (status, code, said) = get(&node, "/v1/table/").await.error();
    assert_eq!((status, code), (401, 16), "{said}");
    for (token, cause) in &tokens {
        let answer = over_http(token).await;
        assert_eq!(answer.error(), (status, code, said.clone()), "{cause}: {token}");
    }
}
