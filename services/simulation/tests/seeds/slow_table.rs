//! Batches whose rows are on no drive, while the table answers too slowly: how each ends, and that the node counts it.

use std::time::Duration;

use futures::stream;
use fuzz::RawCodec;
use io_node::IoConfig;
use prost::Message;
use ring::sim::{SimConfig, SimDisk};
use tonic::Request;
use wire::fetch::fetch_request::Kind;
use wire::fetch::fetch_response::Kind as Answer;
use wire::fetch::reply::Outcome;
use wire::fetch::{Batch, Batches, FetchRequest, FetchResponse, Open};
use wire::{Fault, Reason};

use crate::arena::{self, Arena, NODE};
use crate::network::Net;
use crate::store::{Store, StoreTroubles};
use crate::strangers::{connect, http_path};
use crate::truth::TABLES;

/// The time that each request to the store takes, in ms.
const STORE_MS: u64 = 5_000;

/// Sends batches of one row, each with this timeout, on one stream. Returns the reason why each failed, by its id. No
/// batch is cancelled: the stream's client, unlike [`client::fetch`], has no deadlines of its own.
async fn failures(net: Net, batches: u64, timeout: Duration) -> Vec<(u64, Reason)> {
    let version = &TABLES[0][0];
    let open = Open {
        handle: 1,
        table_uri: version.uri.into(),
        version: version.version,
        columns: vec!["id".into()],
        ..Open::default()
    };
    let batch = |id| Batch {
        id,
        handle: 1,
        row_addrs: vec![0],
        timeout_us: timeout.as_micros() as u64,
        ..Batch::default()
    };
    let batches = Batches { batches: (0..batches).map(batch).collect() };
    let message = |kind| FetchRequest { kind: Some(kind) }.encode_to_vec();
    let messages = [message(Kind::Open(open)), message(Kind::Batches(batches))];
    let mut grpc = tonic::client::Grpc::new(connect(&net, NODE).await.unwrap());
    grpc.ready().await.unwrap();
    let answers = grpc.streaming(Request::new(stream::iter(messages)), http_path(), RawCodec);
    let mut answers = answers.await.unwrap().into_inner();
    let mut failures = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        if let Some(Answer::Reply(reply)) = FetchResponse::decode(answer).unwrap().kind {
            let Some(Outcome::Error(error)) = reply.outcome else { panic!("{reply:?}") };
            failures.push((reply.id, Fault::from(error).reason));
        }
    }
    failures.sort_unstable_by_key(|(id, _)| *id);
    failures
}

#[test]
fn batches_that_the_table_cannot_answer_in_time_are_counted() {
    let drives = vec![8 << 20];
    let disk = SimDisk::new(SimConfig { drives, ..SimConfig::default() });
    let store = Store::new(1);
    store.set_troubles(StoreTroubles {
        latency_ms: STORE_MS..=STORE_MS,
        ..StoreTroubles::default()
    });
    let config = IoConfig { table_reads: 1, table_queue_max: 1, ..arena::config() };
    let mut arena = Arena::start(1, config, &disk, store);
    let net = arena.net.clone();
    let failures = arena.run(failures(net, 3, Duration::from_millis(STORE_MS / 5)));
    // The first batch is read too slowly, the second waits for the first, and the third finds the queue full.
    let late = Reason::DeadlineExceeded;
    assert_eq!(failures, [(0, late), (1, late), (2, Reason::Overloaded)]);
    let [core] = &arena.node.state().cores[..] else { panic!("there is one core") };
    assert_eq!((core.dropped, core.shed, core.batches), (2, 1, 0));
}
