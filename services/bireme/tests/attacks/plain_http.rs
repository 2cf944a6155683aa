//! Attacks on the plain HTTP of a query node.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::cluster::{Cluster, PATIENCE};
use super::connections::{
    QUERY_MEMORY_MIB, assert_newcomer_is_answered, assert_soon_answered, connections, settings,
};
use super::good_caller::GoodCaller;
use super::report::held;

/// The row of the table in `docs/security.md` that lists these attacks.
const ROW: u32 = 17;

/// Returns the head of a query, without the empty line that ends it.
fn head(length: usize) -> String {
    format!("POST /v1/table/words/query/ HTTP/1.1\r\nHost: node\r\nContent-Length: {length}\r\n")
}

/// Sends a query, and returns the whole answer, with its head.
fn answer(node: SocketAddr, body: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&node, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("{}Connection: close\r\n\r\n{body}", head(body.len()));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn unfinished_requests_keep_nobody_out() {
    let cluster = Cluster::start(&settings());
    let (query, address) = (&cluster.query, cluster.query.address());
    let caller = GoodCaller::start(&cluster);
    let endless_head = head(2);
    let silent = connections(address, 2043, endless_head.as_bytes());
    query.assert_answers_probes();
    assert_newcomer_is_answered(&cluster);
    let before = query.resident_mib();
    // 64 bodies of 32 MiB, each without its last byte.
    let unfinished = [head(32 << 20).as_bytes(), b"\r\n", &vec![b' '; (32 << 20) - 1]].concat();
    let send = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(5))).ok()?;
        // The node may refuse the body before its end.
        let _refused = stream.write_all(&unfinished);
        Some(stream)
    };
    let kept: Vec<_> = std::thread::scope(|scope| {
        let sending: Vec<_> = (0..64).map(|_| scope.spawn(send)).collect();
        sending.into_iter().map(|it| it.join().unwrap()).collect()
    });
    query.assert_answers_probes();
    assert_soon_answered(&cluster);
    assert!(query.peak_mib() <= QUERY_MEMORY_MIB, "{} MiB", query.peak_mib());
    let grown = query.peak_mib().saturating_sub(before);
    assert!(caller.stop().answered > 0);
    drop((silent, kept));
    cluster.assert_healthy();
    let seen = format!("newcomers and probes are answered; {grown} MiB more");
    held(ROW, "2,043 unfinished heads, and 64 unfinished bodies of 32 MiB, over HTTP/1.1", &seen);
}

#[test]
fn answers_that_nobody_reads_are_held_within_the_memory_for_them() {
    let cluster = Cluster::start(&settings());
    let (query, address) = (&cluster.query, cluster.query.address());
    let before = query.resident_mib();
    let all = r#"{"k": 1000000}"#;
    // Each connection asks eight times, and reads nothing.
    let asked = format!("{}\r\n{all}", head(all.len())).repeat(8);
    let unread = connections(address, 100, asked.as_bytes());
    std::thread::sleep(Duration::from_secs(3));
    query.assert_answers_probes();
    assert_soon_answered(&cluster);
    assert!(query.peak_mib() <= QUERY_MEMORY_MIB, "{} MiB", query.peak_mib());
    let grown = query.peak_mib().saturating_sub(before);
    drop(unread);
    cluster.assert_healthy();
    let seen = format!("newcomers and probes are answered; {grown} MiB more");
    held(ROW, "800 answers of all rows that nobody reads, over HTTP/1.1", &seen);
}

/// Sends a request without a body, and returns the whole answer.
fn answer_to(node: SocketAddr, call: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&node, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request =
        format!("{call} HTTP/1.1\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // Rows are Arrow, which is no text.
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_page_whose_name_leads_to_the_node_reads_nothing() {
    let cluster = Cluster::start(&settings());
    let address = cluster.query.address();
    let calls = [
        "GET /v1/table/",
        "GET /v1/namespace/$/table/list",
        "POST /v1/table/words/describe/",
        "POST /v1/table/words/query/",
    ];
    // A browser sends these headers with a page's own requests, unencrypted: without Sec-Fetch-Site and, with GET,
    // without Origin. The page's scripts can add a key.
    let port = address.port();
    let hosts = ["evil.example.com", "127.0.0.1.example.com", "localhost.example.com"];
    for call in calls {
        for host in hosts {
            for key in ["", "X-Api-Key: any\r\n", "Authorization: Bearer any\r\n"] {
                let said = answer_to(address, call, &format!("Host: {host}:{port}\r\n{key}"));
                assert!(said.starts_with("HTTP/1.1 403 "), "{call} {host} {key}: {said:.300}");
                assert!(!said.contains("words"), "{call} {host} {key}: {said:.300}");
            }
        }
        let said = answer_to(address, call, &format!("Host: 127.0.0.1:{port}\r\n"));
        assert!(said.starts_with("HTTP/1.1 200 "), "{call}: {said:.300}");
    }
    cluster.assert_healthy();
    let attack =
        "4 calls of a web page whose name leads to the node, under 3 names, with and without keys";
    held(ROW, attack, "all 36 requests are refused with 403");
}

#[test]
fn strange_bodies_get_an_answer_that_says_what_is_wrong() {
    let cluster = Cluster::start(&settings());
    let address = cluster.query.address();
    let nested = format!("{{\"full_text_query\": {}", "[".repeat(1 << 18));
    let numbers = format!("{{\"vector\": [{}1]}}", "1e39,".repeat(1 << 20));
    let names = format!("{{\"columns\": [{}\"x\"]}}", "\"x\",".repeat(5000));
    let filter = format!("{{\"filter\": \"{}1\"}}", "NOT ".repeat(1 << 20));
    let rows = format!("{{\"filter\": \"_rowid IN ({}1)\"}}", "1,".repeat(1_000_001));
    for (body, said) in [
        (nested, "recursion limit"),
        (numbers, "1048577 numbers in its vectors"),
        (names, "names 5001 columns"),
        (filter, "is the most"),
        (rows, "more than 1000000 rows"),
        ("{\"k\": -1}".into(), "invalid value"),
    ] {
        let answer = answer(address, &body);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{:.80}: {answer:.900}", body);
        assert!(answer.contains(said), "{:.80}: {answer:.900}", body);
    }
    assert!(cluster.query.peak_mib() <= QUERY_MEMORY_MIB, "{}", cluster.query.peak_mib());
    cluster.assert_healthy();
    let seen = format!("refused with a sentence; {} MiB at most", cluster.query.peak_mib());
    held(ROW, "6 bodies that are nested, endless or out of range", &seen);
}
