//! A real S3 server (moto): tables behind it, and what it refuses.
//!
//! `BIREME_S3_SERVER` names `moto_server`; without it these tests say so and are skipped.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lake::{IngestOptions, Lake, LakeError, LakeOptions, ingest};
use wire::query::GetRequest;

use crate::cluster::{Cluster, sample};

/// The server, ended with the test.
struct S3 {
    server: Child,
    port: u16,
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl S3 {
    /// Starts one; with `authorizes` it refuses unknown keys after the first call.
    async fn start(authorizes: bool) -> Option<Self> {
        let Some(program) = std::env::var_os("BIREME_S3_SERVER").filter(|p| !p.is_empty()) else {
            println!("skipped: BIREME_S3_SERVER names no S3 server");
            return None;
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if authorizes {
            command.env("INITIAL_NO_AUTH_ACTION_COUNT", "1");
        }
        let s3 = Self { server: command.spawn().unwrap(), port };
        for _ in 0..300 {
            if s3.request("PUT", "/lake").is_some_and(|answer| answer.contains(" 200 ")) {
                return Some(s3);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the S3 server does not come up");
    }

    /// One plain request; the answer's first bytes.
    fn request(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn options(&self) -> HashMap<String, String> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        [
            ("aws_endpoint", endpoint.as_str()),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "someone"),
            ("aws_secret_access_key", "something"),
            ("allow_http", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_s3_is_served_by_both_tiers() {
    let Some(s3) = S3::start(false).await else { return };
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let options = IngestOptions { key: Some("synset".into()), ..Default::default() };
    ingest(&lake, &[sample()], "s3://lake/words", &options, |_| {}).await.unwrap();
    let cluster = Cluster::start_with(1, &[("words", "s3://lake/words".as_ref())], |io, query| {
        io.storage = s3.options();
        query.storage = s3.options();
    })
    .await;
    for _ in 0..2 {
        let keys = vec!["n02503517".into(), "n00000000".into()];
        let request = GetRequest { table: "words".into(), keys, ..Default::default() };
        let answer = cluster.client.get(request).await.unwrap();
        assert_eq!(answer.not_found, [1]);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_or_does_not_answer_is_named() {
    let Some(s3) = S3::start(true).await else { return };
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let refused = lake.open("s3://lake/words").await.unwrap_err();
    assert!(matches!(refused, LakeError::CredentialsRefused { .. }), "{refused}");
    assert!(refused.to_string().contains("s3://lake/words"));
    let options = s3.options();
    drop(s3);
    let lake = Lake::new(LakeOptions { storage: options, ..Default::default() });
    let gone = lake.open("s3://lake/words").await.unwrap_err();
    assert!(matches!(gone, LakeError::StoreUnreachable { .. }), "{gone}");
}
