//! Stores that do not answer, or refuse requests.

use std::time::{Duration, Instant};

use lake::{Lake, LakeError, LakeOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn s3(endpoint: &str) -> Lake {
    let storage = [
        ("aws_endpoint", endpoint),
        ("allow_http", "true"),
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "x"),
        ("aws_secret_access_key", "y"),
    ];
    let storage = storage.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Lake::new(LakeOptions { storage, open_timeout: Duration::from_secs(8), ..Default::default() })
}

/// Starts a server that answers every request with `status` and `body`, or not at all if `status` is empty. Returns its
/// endpoint.
async fn server(status: &'static str, body: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 8192];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    if !status.is_empty() {
                        let length = body.len();
                        let answer =
                            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                }
            });
        }
    });
    endpoint
}

#[tokio::test]
async fn an_unreachable_store_is_reported_soon() {
    let silent = server("", "").await;
    for endpoint in ["http://127.0.0.1:9", &silent, "http://no-such-host.invalid"] {
        let started = Instant::now();
        let error = s3(endpoint).open("s3://bucket/table").await.unwrap_err();
        println!("{endpoint}: {:?}: {error}", started.elapsed());
        assert!(matches!(error, LakeError::StoreUnreachable { .. }), "{endpoint}: {error:?}");
        assert!(started.elapsed() < Duration::from_secs(12), "{endpoint}: {:?}", started.elapsed());
        let text = error.to_string();
        assert!(
            text.contains("s3://bucket/table") && !text.contains('\n') && !text.contains(".rs:"),
            "{text}"
        );
    }
}

/// An error in a request does not mean that the store is faulty, so the circuit breaker stays closed.
#[tokio::test]
async fn rejected_requests_do_not_open_the_circuit_breaker() {
    for status in ["400 Bad Request", "416 Range Not Satisfiable"] {
        let endpoint = server(status, "<Error><Code>Whatever</Code></Error>").await;
        let lake = s3(&endpoint);
        for _ in 0..12 {
            lake.open("s3://bucket/table").await.unwrap_err();
        }
        let of = lake.store_use();
        assert!(of.reads + of.writes >= 12, "{status}: {of:?}");
        assert_eq!((of.failed, of.breakers_open, of.refused), (0, 0, 0), "{status}: {of:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_not_reported_as_an_unreachable_store() {
    let body = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";
    let endpoint = server("403 Forbidden", body).await;
    let error = s3(&endpoint).open("s3://bucket/table").await.unwrap_err();
    println!("{error}");
    assert!(matches!(error, LakeError::CredentialsRefused { .. }), "{error:?}");
    assert!(!error.to_string().contains('\n'));
    let endpoint = server("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>").await;
    let error = s3(&endpoint).open("s3://bucket/table").await.unwrap_err();
    println!("{error}");
    assert!(matches!(error, LakeError::TableNotFound { .. }), "{error:?}");
}
