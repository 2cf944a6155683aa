//! Hostile callers open thousands of streams whose replies they do not read, and send messages that they never finish.
//! The node's memory stays within its limit, and once these callers are gone, the node serves others.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use bytes::Bytes;
use client::fetch::{FetchClient, FetchOptions, Instant, TableVersion};
use futures::stream::{self, StreamExt};
use http_body::Frame;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::{Channel, Endpoint};
use wire::fetch::fetch_request::Kind;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::{Batch, Batches, FetchRequest, Open};
use wire::{FETCH_PATH, Reason};

use super::io_process::IoProcess;
use super::{folder, run, text};

/// The node's limit on memory.
const MEMORY_MIB: u64 = 768;

const ROWS: u32 = 1000;
const ROW_BYTES: usize = 64 << 10;

const CONNECTIONS: usize = 50;
const STREAMS_A_CONNECTION: usize = 200;
const ROWS_A_BATCH: u64 = 20;

/// The number of streams that begin a message of 8 MiB and never end it.
const UNFINISHED: usize = 100;

fn words(id: u32) -> String {
    let mut words = String::with_capacity(ROW_BYTES);
    let mut number = u64::from(id) + 1;
    while words.len() < ROW_BYTES {
        number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        write!(words, "{number:016x}").unwrap();
    }
    words
}

/// Returns the peak of a node's resident memory, in MiB.
fn peak_mib(io: &IoProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", io.process.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

/// Connects with a small receive window.
async fn connect(io: &IoProcess) -> Channel {
    let endpoint = Endpoint::from_shared(io.endpoint.clone()).unwrap();
    endpoint.initial_stream_window_size(4096).connect().await.unwrap()
}

/// Requests more than the receive window of `channel` has room for, and reads nothing.
async fn slow_reader(channel: Channel, uri: String, number: u64) -> Option<impl Sized> {
    let kind = |kind| FetchRequest { kind: Some(kind) };
    let columns = vec!["words".into()];
    let open = Open { handle: 1, table_uri: uri, version: 1, columns, ..Default::default() };
    let row_addrs = (0..ROWS_A_BATCH).map(|row| (number + row * 37) % u64::from(ROWS)).collect();
    let batch = Batch { id: 1, handle: 1, row_addrs, ..Default::default() };
    let batches = Batches { batches: vec![batch] };
    let asked = [kind(Kind::Open(open)), kind(Kind::Batches(batches))];
    let asked = stream::iter(asked).chain(stream::pending());
    FetchServiceClient::new(channel).fetch(asked).await.ok()
}

/// The beginning of a message, and nothing more.
struct Unfinished(Option<Bytes>);

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

async fn unfinished(mut channel: Channel, endpoint: &str) -> Option<http::Response<Body>> {
    let mut message = vec![0; 5 + (7 << 20)];
    message[1..5].copy_from_slice(&(8u32 << 20).to_be_bytes());
    let request = http::Request::post(format!("{endpoint}{FETCH_PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Unfinished(Some(message.into()))))
        .unwrap();
    poll_fn(|cx| GrpcService::<Body>::poll_ready(&mut channel, cx)).await.ok()?;
    GrpcService::call(&mut channel, request).await.ok()
}

/// Fetches rows as soon as the node has room for the request, and checks them.
async fn behaves(io: &IoProcess, uri: &str) {
    let client = FetchClient::new(io.endpoint.parse().unwrap(), FetchOptions::default()).unwrap();
    let soon = || Instant::now() + Duration::from_secs(60);
    let table = TableVersion { uri, branch: "", version: 1, identity: "" };
    let ids = [3, 999, 41];
    loop {
        let addrs = ids.map(|id| RowAddr::new(0, id)).to_vec();
        let fetched = async {
            let projection = client.open(table, &["words".into()], soon()).await?;
            client.fetch(&projection, addrs, None, soon()).await
        };
        match fetched.await {
            Ok(reply) => {
                let rows = reply.into_rows().unwrap();
                let got: Vec<_> = rows["words"].as_string::<i32>().iter().flatten().collect();
                assert!(got == ids.map(words), "wrong rows");
                return;
            }
            // The node may not have noticed yet that the hostile callers are gone.
            Err(fault) => assert!(
                matches!(fault.reason, Reason::Overloaded | Reason::NodeUnavailable),
                "{fault}"
            ),
        }
    }
}

#[test]
fn memory_is_bounded_under_ten_thousand_slow_readers_of_wide_rows() {
    let folder = folder();
    let (rows, table) = (folder.path().join("rows.jsonl"), folder.path().join("table"));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&rows).unwrap());
    (0..ROWS).for_each(|id| writeln!(file, r#"{{"words":"{}"}}"#, words(id)).unwrap());
    file.into_inner().unwrap();
    run(&["ingest", text(&rows), "--table", text(&table)]);
    let io = IoProcess::start(
        &format!("{}:256MiB", text(&folder.path().join("slab"))),
        &[("MEMORY", &format!("{MEMORY_MIB}MiB")), ("RAM_TIER", "32MiB"), ("SEGMENT", "16MiB")],
    );
    // The hostile callers have a runtime of their own, whose shutdown closes all their connections at once.
    let hostile = tokio::runtime::Runtime::new().unwrap();
    let streams = hostile.block_on(async {
        let mut held = Vec::new();
        for connection in 0..CONNECTIONS {
            let channel = connect(&io).await;
            let streams = (0..STREAMS_A_CONNECTION).map(|stream| {
                let number = connection * STREAMS_A_CONNECTION + stream;
                slow_reader(channel.clone(), text(&table).into(), number as u64)
            });
            held.push(futures::future::join_all(streams).await);
        }
        let channel = connect(&io).await;
        let begun = (0..UNFINISHED).map(|_| unfinished(channel.clone(), &io.endpoint));
        let begun = futures::future::join_all(begun).await;
        // Wait until the bytes that the callers send have arrived.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let streams = held.iter().flatten().flatten().count();
        println!("{streams} streams, {} unfinished, {} MiB", begun.len(), peak_mib(&io));
        streams
    });
    assert!(streams >= 50, "{streams} streams");
    assert!(peak_mib(&io) <= MEMORY_MIB, "{} MiB", peak_mib(&io));
    hostile.shutdown_background();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(behaves(&io, text(&table)));
    assert!(peak_mib(&io) <= MEMORY_MIB, "{} MiB", peak_mib(&io));
}
