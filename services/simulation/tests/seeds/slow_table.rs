//! Batches whose rows come from a slow table: how each ends, and what the node counts and holds for it.

use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use client::fetch::{FetchClient, FetchOptions, Instant, Projection, TableVersion};
use client::{Endpoint, Network};
use futures::{StreamExt, stream};
use fuzz::RawCodec;
use io_node::IoConfig;
use prost::Message;
use ring::sim::{SimConfig, SimDisk, SimFaults};
use tonic::Request;
use wire::fetch::fetch_request::Kind;
use wire::fetch::fetch_response::Kind as Answer;
use wire::fetch::reply::Outcome;
use wire::fetch::{
    Batch, Batches, ChunkRange, FetchRequest, FetchResponse, Open, WarmProgress, WarmRequest,
};
use wire::{Fault, Reason};

use crate::arena::{self, Arena, NODE};
use crate::network::Net;
use crate::store::{Store, StoreTroubles};
use crate::strangers::{connect, http_path};
use crate::truth::{DIMENSION, TABLES, Version};

/// The time that each request to the store takes, in ms, once it is slow.
const STORE_MS: u64 = 5_000;

fn slow() -> StoreTroubles {
    StoreTroubles { latency_ms: STORE_MS..=STORE_MS, ..StoreTroubles::default() }
}

pub fn disk() -> SimDisk {
    let (drives, tick) = (vec![8 << 20], Duration::from_millis(1));
    SimDisk::new(SimConfig { drives, tick, ..SimConfig::default() })
}

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

/// Returns a client of the arena's node with one stream.
pub fn client_of(arena: &Arena) -> FetchClient {
    let _guard = arena.runtime.enter();
    let network = Network::Simulated(Arc::new(arena.net.clone()));
    let options = FetchOptions { streams: 1, network, ..FetchOptions::default() };
    let endpoint: Endpoint = format!("{NODE}:7071").parse().unwrap();
    FetchClient::new(endpoint, options).unwrap()
}

/// Returns the time until which a test waits for an answer.
pub fn until() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Opens a column of a version.
pub async fn open(client: &FetchClient, version: &Version, column: &str) -> Projection {
    let (uri, version) = (version.uri, version.version);
    let table = TableVersion { uri, branch: "", version, identity: "" };
    client.open(table, &[column.to_owned()], until()).await.unwrap()
}

#[test]
fn batches_that_the_table_cannot_answer_in_time_are_counted() {
    let store = Store::new(1);
    store.set_troubles(slow());
    let config = IoConfig { table_reads: 1, table_queue_max: 1, ..arena::config() };
    let mut arena = Arena::start(1, config, &disk(), store);
    // To open the table takes two requests. The batches wait for it, and their timeouts are counted from their arrival.
    let timeout_ms = 2 * STORE_MS + STORE_MS / 2;
    let (net, began) = (arena.net.clone(), arena.now_ms);
    let failures = arena.run(failures(net, 3, Duration::from_millis(timeout_ms)));
    let took = arena.now_ms - began;
    assert!((timeout_ms..timeout_ms + 100).contains(&took), "{took} ms");
    // The first batch is read too slowly, the second waits for the first, and the third finds the queue full.
    let late = Reason::DeadlineExceeded;
    assert_eq!(failures, [(0, late), (1, late), (2, Reason::Overloaded)]);
    let [core] = &arena.node.state().cores[..] else { panic!("there is one core") };
    assert_eq!((core.dropped, core.shed, core.batches), (2, 1, 0));
}

#[test]
fn rows_that_are_read_again_do_not_keep_the_memory_of_the_first_read() {
    let (store, disk, version) = (Store::new(1), disk(), &TABLES[0][0]);
    let mut arena = Arena::start(1, arena::config(), &disk, store.clone());
    let client = client_of(&arena);
    // The first chunk is on the drive, and the last is not.
    let opening = client.clone();
    let projection = arena.run(async move {
        let chunks = vec![ChunkRange { fragment: 0, first: 0, count: 1 }];
        let (table_uri, version_no) = (version.uri.to_owned(), version.version);
        let warm = WarmRequest { table_uri, version: version_no, chunks, ..WarmRequest::default() };
        let steps: Vec<_> = opening.warm(warm).await.unwrap().collect().await;
        let last: WarmProgress = steps.into_iter().next_back().unwrap().unwrap();
        assert!(last.extents_done > 0 && last.extents_failed == 0, "{last:?}");
        open(&opening, version, "vector").await
    });
    // The store is slow now, the drive fails, and no chunk can be filled.
    store.set_troubles(slow());
    disk.set_faults(SimFaults {
        failed_reads_per_mille: 1000,
        failed_writes_per_mille: 1000,
        ..SimFaults::default()
    });
    const ROWS: u32 = 50;
    let last_rows = version.infos[1].physical_rows - ROWS..;
    let addrs = (0..ROWS).map(|row| RowAddr::new(0, row));
    let addrs = addrs.chain(last_rows.take(ROWS as usize).map(|row| RowAddr::new(1, row)));
    let addrs: Vec<_> = addrs.collect();
    let fetched = arena
        .local
        .spawn_local(async move { client.fetch(&projection, addrs, None, until()).await });
    let mut held_after = |ms: u64| {
        (0..ms).for_each(|_| arena.step());
        arena.node.state().cores[0].traffic_bytes
    };
    // The rows that are on no drive are read first, and then all rows, because the drive failed.
    let first = held_after(STORE_MS / 2);
    let again = held_after(STORE_MS);
    assert_eq!(again - first, first_read_bytes(ROWS), "all rows are held once");
    let reply = arena.run(fetched).unwrap().unwrap();
    assert_eq!(reply.into_rows().unwrap().num_rows(), 2 * ROWS as usize);
}

#[test]
fn reads_of_the_table_end_with_their_batches() {
    let store = Store::new(1);
    let config = IoConfig { table_reads: 1, ..arena::config() };
    let mut arena = Arena::start(1, config, &disk(), store.clone());
    let (client, version) = (client_of(&arena), &TABLES[0][0]);
    let opening = client.clone();
    let projection = arena.run(async move { open(&opening, version, "id").await });
    let after = |arena: &mut Arena, ms: u64| {
        (0..ms).for_each(|_| arena.step());
        let state = arena.node.state();
        (state.table_waiting, state.cores[0].traffic_bytes)
    };
    let (_, idle) = after(&mut arena, 100);
    store.set_troubles(slow());
    let fetch = |row| {
        let (client, projection) = (client.clone(), projection.clone());
        let addrs = vec![RowAddr::new(0, row)];
        async move { client.fetch(&projection, addrs, None, until()).await }
    };
    // The first batch is read, and the second waits.
    let batches = [0, 1].map(|row| arena.local.spawn_local(fetch(row)));
    let (waiting, held) = after(&mut arena, 100);
    assert_eq!(waiting, 1);
    assert!(held > idle, "{held}, and {idle} without batches");
    batches.iter().for_each(|batch| batch.abort());
    assert_eq!(after(&mut arena, 100), (0, idle), "both reads have ended");
    let began = arena.now_ms;
    let reply = arena.run(fetch(2)).unwrap();
    assert_eq!(reply.into_rows().unwrap().num_rows(), 1);
    let took = arena.now_ms - began;
    assert!((STORE_MS..STORE_MS + 100).contains(&took), "{took} ms: it has waited for no other");
}

/// Returns the bytes that the node reserves to read vectors from the table: the columns that Lance returns, and the
/// image, which has the same rows encoded as an extent.
fn first_read_bytes(rows: u32) -> u64 {
    2 * u64::from(rows) * 4 * DIMENSION as u64
}
