//! Tests with kube's client against a small API server that plays a script: lists, and watches that stay open, end
//! or expire.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::error::Result;
use crate::list::MemberList;

/// The server's answer to one request.
enum Answer {
    /// A document, with a status.
    Whole(u16, Value),
    /// The events of a watch, which then ends.
    Watch(Vec<Value>),
    /// The events of a watch that stays open.
    WatchOn(Vec<Value>),
}

/// The paths of the requests received.
type Seen = Arc<Mutex<Vec<String>>>;

/// Starts a server that gives each request the next of `answers`, and closes the connection on further requests.
async fn server(answers: Vec<Answer>) -> (Config, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, answers) = (Seen::default(), Arc::new(Mutex::new(VecDeque::from(answers))));
    tokio::spawn({
        let seen = Arc::clone(&seen);
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, Arc::clone(&seen), Arc::clone(&answers)));
            }
        }
    });
    let uri: http::Uri = format!("http://{address}").parse().unwrap();
    (Config::new(uri), seen)
}

async fn connection(stream: TcpStream, seen: Seen, answers: Arc<Mutex<VecDeque<Answer>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        seen.lock().unwrap().push(head.split(' ').nth(1).unwrap().to_owned());
        let Some(answer) = answers.lock().unwrap().pop_front() else { return };
        let chunk = |event: &Value| {
            let line = format!("{event}\n");
            format!("{:x}\r\n{line}\r\n", line.len())
        };
        let chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (response, stays_open) = match answer {
            Answer::Whole(status, document) => {
                let body = document.to_string();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n");
                (format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()), false)
            }
            Answer::Watch(events) => {
                let events: String = events.iter().map(chunk).collect();
                (format!("{chunked}{events}0\r\n\r\n"), false)
            }
            Answer::WatchOn(events) => {
                (format!("{chunked}{}", events.iter().map(chunk).collect::<String>()), true)
            }
        };
        stream.write_all(response.as_bytes()).await.unwrap();
        if stays_open {
            return std::future::pending().await;
        }
    }
}

fn slice(name: &str, version: u64, pods: &[(&str, &str)]) -> Value {
    let pod = |&(name, address): &(&str, &str)| json!({"addresses": [address], "hostname": name, "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version.to_string()},
        "addressType": "IPv4",
        "endpoints": pods.iter().map(pod).collect::<Vec<_>>(),
        "ports": [{"name": "grpc", "port": 7071, "protocol": "TCP"}],
    })
}

fn listing(version: u64, slices: &[Value]) -> Answer {
    Answer::Whole(
        200,
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSliceList",
            "metadata": {"resourceVersion": version.to_string()},
            "items": slices,
        }),
    )
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: u64) -> Value {
    let metadata = json!({"resourceVersion": version.to_string()});
    let object =
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata});
    event("BOOKMARK", object)
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("played: {reason}"), "reason": reason, "code": code,
    })
}

fn followed(config: Config) -> mpsc::Receiver<Result<MemberList>> {
    let (sender, lists) = mpsc::channel(1);
    let services = Services {
        namespace: Some("ns".into()),
        names: vec!["io".into(), "big".into()],
        port: Some(Port::Named("grpc".into())),
    };
    tokio::spawn(follow(services, Some(config), sender));
    lists
}

async fn names(lists: &mut mpsc::Receiver<Result<MemberList>>) -> Vec<String> {
    let list = lists.recv().await.unwrap().unwrap();
    list.entries().iter().map(|entry| entry.name.clone()).collect()
}

#[tokio::test]
async fn a_watch_resumes_at_its_bookmark_and_lists_again_when_it_has_expired() {
    let (a, b) = (slice("a", 3, &[("io-0", "10.0.0.1")]), slice("b", 4, &[("io-1", "10.0.0.2")]));
    let more = slice("a", 8, &[("io-0", "10.0.0.1"), ("io-2", "10.0.0.3")]);
    let (config, seen) = server(vec![
        listing(5, &[a.clone(), b.clone()]),
        Answer::Watch(vec![event("MODIFIED", more.clone()), bookmark(20)]),
        Answer::Watch(vec![event("DELETED", b.clone())]),
        Answer::Watch(vec![event("ERROR", status(410, "Expired"))]),
        listing(30, &[slice("c", 29, &[("io-9", "10.0.0.9")])]),
        Answer::WatchOn(vec![event("ADDED", a)]),
    ])
    .await;
    let mut lists = followed(config);
    assert_eq!(names(&mut lists).await, ["io-0", "io-1"]);
    assert_eq!(names(&mut lists).await, ["io-0", "io-1", "io-2"]);
    assert_eq!(names(&mut lists).await, ["io-0", "io-2"]);
    // The status 410 causes no error: only the complete new list is sent.
    assert_eq!(names(&mut lists).await, ["io-9"]);
    assert_eq!(names(&mut lists).await, ["io-0", "io-9"]);
    let seen = seen.lock().unwrap();
    assert!(
        seen[0].starts_with("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?"),
        "{seen:?}"
    );
    let of_both = "labelSelector=kubernetes.io%2Fservice-name+in+%28io%2Cbig%29";
    assert!(seen.iter().all(|path| path.contains(of_both)), "{seen:?}");
    let from = |at: usize, version: &str| seen[at].contains(&format!("resourceVersion={version}"));
    assert!(from(1, "5") && from(2, "20") && from(5, "30"), "{seen:?}");
    assert!(seen[1].contains("allowWatchBookmarks=true"), "{seen:?}");
}

#[tokio::test]
async fn api_errors_and_invalid_lists_are_reported() {
    let bad = slice("a", 2, &[("io-0", "10.0.0.1"), ("io-0", "10.0.0.2")]);
    let (config, _seen) = server(vec![
        Answer::Whole(403, status(403, "Forbidden")),
        listing(1, &[bad]),
        Answer::WatchOn(vec![event("MODIFIED", slice("a", 3, &[("io-0", "10.0.0.1")]))]),
    ])
    .await;
    let mut lists = followed(config);
    let forbidden = lists.recv().await.unwrap().unwrap_err();
    let message = forbidden.to_string();
    assert!(!forbidden.is_refusal());
    assert_eq!(
        message,
        "the list of I/O nodes can't be read from kubernetes:ns/io,big:grpc: played: Forbidden"
    );
    assert!(lists.recv().await.unwrap().unwrap_err().is_refusal());
    assert_eq!(names(&mut lists).await, ["io-0"]);
}
