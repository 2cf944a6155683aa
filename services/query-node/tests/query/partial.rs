//! Partial requests: rows that can't be read do not fail those that can, and each key and each batch gets its own error.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use arrow_array::{Array, RecordBatch};
use client::query::{GetRequest, GottenRows, LookupOpen, QueryClient, UnreadKeys};
use futures::future::join_all;
use futures::{StreamExt, stream};
use query_node::{IoNodeConfig, QueryConfig, QueryNode};
use serde_json::Value;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::reply::Outcome;
use wire::fetch::{Batch, Opened, Reply};
use wire::query::lookup_reply::Rows;
use wire::query::lookup_response::Kind;
use wire::query::query_service_client::QueryServiceClient;
use wire::query::{LookupBatch, LookupRequest, LookupResponse, LookupResult, RowFormat};
use wire::{ArrowBatch, Fault, Reason, schema_to_bytes};

use crate::fake_io;
use crate::gather::{damage_second_file, get, open, serve, streams};
use crate::keys::covered;
use crate::lookups::{of_rows, text_keys};
use crate::node::{NOBODY, config, ids, serve_with};
use crate::table::{FIRST, ROWS, TestTable, is_live, key, rows};

fn arrow(rows: GottenRows) -> RecordBatch {
    match rows {
        GottenRows::Arrow(rows) => rows,
        GottenRows::Json(text) => panic!("{text}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_request_gets_the_rows_that_can_be_read() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&table).await;
    let lookup = streams(&client, [LookupOpen { partial: true, ..open(&["id"]) }]).await.remove(0);
    damage_second_file(&table).await;
    // Rows of both files, a deleted one, an absent one, a repeat of each kind.
    let wanted = [0, FIRST, 17, 3, FIRST + 5, ROWS + 1, FIRST, 3];
    let keys: Vec<String> = wanted.iter().map(|&id| key(id)).collect();
    let request = |partial| GetRequest { keys: keys.clone(), partial, ..get(0) };
    let whole = client.get(request(false)).await.unwrap_err();
    assert_eq!(whole.reason, Reason::TableDamaged, "{whole}");
    let check = |unread: Option<UnreadKeys>, not_found: Vec<u32>, rows: &RecordBatch| {
        assert_eq!((ids(rows), not_found), (vec![0, 3, 3], vec![2, 5]));
        let unread = unread.unwrap();
        assert_eq!((unread.positions, unread.fault.reason), (vec![1, 4, 6], whole.reason));
    };
    let gotten = client.get(request(true)).await.unwrap();
    check(gotten.unread, gotten.not_found, &arrow(gotten.rows));
    let looked_up = lookup.get(text_keys(&keys)).await.unwrap();
    check(looked_up.unread, looked_up.not_found, &of_rows(looked_up.rows));

    // Without a row that can be read, the request fails.
    let none = [key(FIRST), key(FIRST + 1)];
    let bad = GetRequest { keys: none.to_vec(), ..request(true) };
    assert_eq!(client.get(bad.clone()).await.unwrap_err().reason, whole.reason);
    assert_eq!(lookup.get(text_keys(&none)).await.unwrap_err().reason, whole.reason);

    // Requests that arrive together have unread keys of their own.
    let gets = stream::iter([request(true), bad, GetRequest { partial: true, ..get(10) }]);
    let (gotten, batches) = tokio::join!(
        async {
            let answers = client.get_stream(gets, RowFormat::Arrow).await.unwrap();
            answers.collect::<Vec<_>>().await
        },
        join_all([&keys[..], &none, &keys[..1], &keys[3..]].map(|it| lookup.get(text_keys(it)))),
    );
    let [some, no, all] = <[_; 3]>::try_from(gotten).unwrap();
    let some = some.unwrap();
    check(some.unread, some.not_found, &arrow(some.rows));
    assert_eq!(no.unwrap_err().reason, whole.reason);
    let all = all.unwrap();
    assert!(all.unread.is_none() && ids(&arrow(all.rows)) == [10]);
    let [some, no, all, rest] = <[_; 4]>::try_from(batches).unwrap();
    let some = some.unwrap();
    check(some.unread, some.not_found, &of_rows(some.rows));
    assert_eq!(no.unwrap_err().reason, whole.reason);
    let all = all.unwrap();
    assert!(all.unread.is_none() && ids(&of_rows(all.rows)) == [0]);
    let rest = rest.unwrap();
    assert_eq!((ids(&of_rows(rest.rows)), rest.not_found), (vec![3, 3], vec![2]));
    assert_eq!(rest.unread.unwrap().positions, [1, 3]);

    // A request of 300 keys with rows of both files, in any order.
    let wanted: Vec<i64> = (0..300).map(|at| at * 7 % 300 * (ROWS / 300)).collect();
    let many = wanted.iter().map(|&id| key(id)).collect();
    let many = client.get(GetRequest { keys: many, ..request(true) }).await.unwrap();
    let is_read = |id: &i64| *id < FIRST && is_live(*id);
    assert_eq!(ids(&arrow(many.rows)), wanted.iter().copied().filter(is_read).collect::<Vec<_>>());
    let unread = (0..).zip(&wanted).filter(|(_, id)| **id >= FIRST && is_live(**id));
    assert_eq!(many.unread.unwrap().positions, unread.map(|it| it.0).collect::<Vec<u32>>());

    for (all_rows, only_presence) in [(true, false), (false, true)] {
        let columns: &[&str] = if only_presence { &[] } else { &["id"] };
        let open = LookupOpen { all_rows, only_presence, partial: true, ..open(columns) };
        let fault = client.lookups().await.unwrap().open(open).await.err().unwrap();
        assert_eq!(
            (fault.reason, fault.metadata["field"].as_str()),
            (Reason::BadArgument, "partial")
        );
    }
    let fault = client.get(GetRequest { all_rows: true, ..request(true) }).await.unwrap_err();
    assert_eq!((fault.reason, fault.metadata["field"].as_str()), (Reason::BadArgument, "partial"));
}

/// Rows of an I/O node that refuses work are not read from the table. Those of other nodes are still returned.
#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_io_node_fails_only_its_own_rows_of_a_partial_request() {
    const PER_FRAGMENT: i64 = 5;
    // Each fragment has chunks of its own, so neither node owns all rows, but for one chance in two million.
    let table = TestTable::nowhere();
    for fragment in 0..22 {
        table.append(fragment * PER_FRAGMENT..(fragment + 1) * PER_FRAGMENT).await;
    }
    let overloaded = fake_io::serve(|asked| match asked {
        RequestKind::Open(open) => {
            let error = Some(Fault::new(Reason::Overloaded, "full").into());
            vec![ResponseKind::Opened(Opened { handle: open.handle, error, ..Default::default() })]
        }
        _ => Vec::new(),
    });
    let io_nodes = vec![overloaded.await, IoNodeConfig::at(NOBODY[0])];
    let mut config = QueryConfig { io_nodes, ..config(&[("t", &table)]) };
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    let (_node, client) = serve_with(config).await;
    let wanted: Vec<i64> = (0..22 * PER_FRAGMENT).map(|at| at * 7 % (22 * PER_FRAGMENT)).collect();
    let keys: Vec<String> = wanted.iter().map(|&id| key(id)).collect();
    let request = GetRequest { keys, partial: true, ..get(0) };
    let gotten = client.get(request.clone()).await.unwrap();
    let unread = gotten.unread.unwrap();
    assert_eq!(unread.fault.reason, Reason::Overloaded, "{}", unread.fault);
    let rows = arrow(gotten.rows);
    let is_read = |at: &u32| unread.positions.binary_search(at).is_err();
    let read = (0..).zip(&wanted).filter(|(at, _)| is_read(at)).map(|(_, id)| *id);
    assert_eq!((ids(&rows), gotten.not_found), (read.collect(), vec![]));
    assert!(rows.num_rows() > 0 && !unread.positions.is_empty());
    assert_eq!(unread.positions.len() as i64 % PER_FRAGMENT, 0, "whole chunks");
    let whole = client.get(GetRequest { partial: false, ..request }).await.unwrap_err();
    assert_eq!(whole.reason, Reason::Overloaded);
}

/// An I/O node that has the rows of [`rows`] at the addresses that equal their ids, and refuses a batch with certain
/// rows.
struct FakeNode {
    /// The reason why a batch with this row is refused. The first entry that is in a batch decides.
    refused: Vec<(i64, Reason)>,
    /// The columns of the open projections.
    opened: Mutex<HashMap<u32, Vec<String>>>,
    /// The ids of the rows of each batch.
    batches: Mutex<Vec<Vec<i64>>>,
}

impl FakeNode {
    fn new(refused: Vec<(i64, Reason)>) -> Arc<Self> {
        Arc::new(Self { refused, opened: Mutex::default(), batches: Mutex::default() })
    }

    async fn serve(self: &Arc<Self>) -> IoNodeConfig {
        let node = Arc::clone(self);
        fake_io::serve(move |asked| match asked {
            RequestKind::Open(open) => {
                let fields = node.rows(&open.columns, &[]).schema();
                let schema = schema_to_bytes(&fields).unwrap();
                node.opened.lock().unwrap().insert(open.handle, open.columns);
                vec![ResponseKind::Opened(Opened { handle: open.handle, schema, error: None })]
            }
            RequestKind::Batches(batches) => {
                batches.batches.into_iter().map(|batch| node.answer(batch)).collect()
            }
            _ => Vec::new(),
        })
        .await
    }

    /// Returns some columns of rows, with wire types.
    fn rows(&self, columns: &[String], ids: &[i64]) -> RecordBatch {
        let rows = rows(ids.iter().copied());
        let at = columns.iter().map(|name| rows.schema().index_of(name).unwrap());
        rows.project(&at.collect::<Vec<_>>()).unwrap()
    }

    fn answer(&self, batch: Batch) -> ResponseKind {
        let ids: Vec<i64> = batch.row_addrs.iter().map(|&addr| addr as i64).collect();
        let outcome = match self.refused.iter().find(|(id, _)| ids.contains(id)) {
            Some((id, reason)) => Outcome::Error(Fault::new(*reason, format!("row {id}")).into()),
            None => {
                let rows = self.rows(&self.opened.lock().unwrap()[&batch.handle], &ids);
                let columns: Vec<_> =
                    rows.columns().iter().map(|column| column.to_data()).collect();
                Outcome::Rows(ArrowBatch::from_columns(ids.len(), &columns).unwrap())
            }
        };
        self.batches.lock().unwrap().push(ids);
        ResponseKind::Reply(Reply { id: batch.id, outcome: Some(outcome), ..Default::default() })
    }

    /// Takes the ids of the rows of each batch since the last call.
    fn batches(&self) -> Vec<Vec<i64>> {
        std::mem::take(&mut *self.batches.lock().unwrap())
    }
}

/// Serves `table` as `t`, with `node` as its only I/O node.
async fn serve_from(node: &Arc<FakeNode>, table: &TestTable) -> (QueryNode, QueryClient) {
    let mut config = QueryConfig { io_nodes: vec![node.serve().await], ..config(&[("t", table)]) };
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    serve_with(config).await
}

fn partial_get(wanted: impl IntoIterator<Item = i64>) -> GetRequest {
    GetRequest { keys: wanted.into_iter().map(key).collect(), partial: true, ..get(0) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_too_large_fails_only_its_own_key() {
    let table = TestTable::of(rows(0..20)).await;
    let node = FakeNode::new(vec![(13, Reason::TooLarge)]);
    let (_node, client) = serve_from(&node, &table).await;
    let gotten = client.get(partial_get(8..16)).await.unwrap();
    assert_eq!(ids(&arrow(gotten.rows)), [8, 9, 10, 11, 12, 14, 15]);
    let unread = gotten.unread.unwrap();
    assert_eq!((unread.positions, unread.fault.reason), (vec![5], Reason::TooLarge));
    // The slices of 8, 4, 2 and 1 rows that have the row are refused, and the other halves are answered. The client
    // halves a batch that is too large by itself before it reports the error, so each slice costs the batches below it.
    let mut sizes: Vec<usize> = node.batches().iter().map(Vec::len).collect();
    sizes.sort_unstable();
    let of_client = |rows: usize| (0..rows.ilog2()).flat_map(|bits| [1 << bits; 2]).chain([rows]);
    let slices = [8, 4, 2, 1].into_iter().flat_map(of_client).chain([4, 2, 1]);
    let mut expected: Vec<usize> = slices.collect();
    expected.sort_unstable();
    assert_eq!(sizes, expected);
}

/// The I/O node would report the same damage of each part of the slice again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_reports_damage_is_asked_once() {
    let table = TestTable::plain().await;
    let wanted = [0, FIRST, 1, 2, FIRST + 5, 3];
    let node = FakeNode::new(vec![(0, Reason::TableDamaged)]);
    let (query_node, client) = serve_from(&node, &table).await;
    client.get(get(10)).await.unwrap();
    covered(&client).await;
    damage_second_file(&table).await;
    let (before, _) = (query_node.fallback_rows(), node.batches());
    let gotten = client.get(partial_get(wanted)).await.unwrap();
    assert_eq!(ids(&arrow(gotten.rows)), [0, 1, 2, 3]);
    let unread = gotten.unread.unwrap();
    assert_eq!((unread.positions, unread.fault.reason), (vec![1, 4], Reason::TableDamaged));
    assert_eq!(node.batches().len(), 1);
    assert_eq!(query_node.fallback_rows() - before, wanted.len() as u64);
}

/// Looks up batches that arrive in one message, and thus form a group. Returns the result of each, and the ids of its
/// rows.
async fn look_up(node: &QueryNode, batches: &[Vec<i64>]) -> Vec<(LookupResult, Vec<i64>)> {
    let uri = format!("http://{}", node.local_addr());
    let mut service = QueryServiceClient::connect(uri).await.unwrap();
    let format = RowFormat::Json.into();
    let open = LookupOpen { handle: 1, format, partial: true, ..open(&["id"]) };
    let batch = |(id, wanted): (u64, &Vec<i64>)| {
        let keys: Vec<String> = wanted.iter().copied().map(key).collect();
        LookupBatch { id, handle: 1, keys: Some(text_keys(&keys)) }
    };
    let batches = (0..).zip(batches).map(batch).collect();
    let message = LookupRequest { open: vec![open], batches, close: Vec::new() };
    let responses = service.lookup(stream::iter([message])).await.unwrap().into_inner();
    let responses: Vec<Result<LookupResponse, _>> = responses.collect().await;
    let mut answers = BTreeMap::new();
    for response in responses {
        let Kind::Reply(reply) = response.unwrap().kind.unwrap() else { continue };
        let lines = match reply.rows {
            Some(Rows::Json(lines)) => String::from_utf8(lines.to_vec()).unwrap(),
            None => String::new(),
            other => panic!("{other:?}"),
        };
        let mut found = lines.lines().map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            row["id"].as_i64().unwrap()
        });
        for result in reply.results {
            let own: Vec<i64> = found.by_ref().take(result.rows as usize).collect();
            assert_eq!(own.len(), result.rows as usize);
            assert!(answers.insert(result.id, (result, own)).is_none(), "answered twice");
        }
        assert_eq!(found.next(), None, "a row belongs to no batch");
    }
    answers.into_values().collect()
}

fn reason_of(result: &LookupResult) -> Reason {
    Fault::from(result.error.clone().unwrap()).reason
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_read_fail_no_row_of_another_batch() {
    let table = TestTable::of(rows(0..200)).await;
    // To read every second row, the slice of the first batch would have to be divided 63 times.
    let every_second = (0..64).step_by(2).chain([100]);
    let node = FakeNode::new(every_second.map(|id| (id, Reason::TooLarge)).collect());
    let (query_node, _client) = serve_from(&node, &table).await;
    let wanted = [(0..64).collect(), (64..128).collect::<Vec<i64>>(), (128..160).collect()];
    let answers = look_up(&query_node, &wanted).await;
    let batches = node.batches();
    assert_eq!(batches[0].len(), 160, "the batches form a group");
    let [(many, odd), (one, others), (none, all)] = <[_; 3]>::try_from(answers).unwrap();
    assert!((0..64).step_by(2).all(|at| many.failed.contains(&at)), "{many:?}");
    assert!(!odd.is_empty() && odd.len() + many.failed.len() == 64, "{many:?}");
    assert_eq!(reason_of(&many), Reason::TooLarge);
    assert_eq!((one.failed.as_slice(), reason_of(&one)), (&[36][..], Reason::TooLarge));
    assert_eq!(others, (64..128).filter(|&id| id != 100).collect::<Vec<_>>());
    assert_eq!((none.error, none.failed.len(), all), (None, 0, (128..160).collect()));
    // The rows of the last batch were in the group's slices, and are not fetched again.
    let alone = batches.iter().position(|batch| batch.len() == 64 && batch[0] == 0).unwrap();
    assert!(batches[alone..].iter().flatten().all(|&id| id < 128), "{batches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_batch_gets_the_error_of_its_own_rows() {
    let table = TestTable::of(rows(0..20)).await;
    let node = FakeNode::new(vec![(0, Reason::TooLarge), (7, Reason::Overloaded)]);
    let (query_node, _client) = serve_from(&node, &table).await;
    let answers = look_up(&query_node, &[vec![0, 1, 2, 3], vec![4, 5, 6, 7]]).await;
    assert_eq!(node.batches()[0].len(), 8, "the batches form a group");
    let [(large, rest), (overloaded, nothing)] = <[_; 2]>::try_from(answers).unwrap();
    assert_eq!((reason_of(&large), large.failed, rest), (Reason::TooLarge, vec![0], vec![1, 2, 3]));
    assert_eq!(reason_of(&overloaded), Reason::Overloaded);
    assert_eq!((overloaded.failed.len(), nothing), (0, vec![]));
}
