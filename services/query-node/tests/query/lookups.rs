//! Lookup streams: batches of typed keys, many in flight.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::DataType;
use client::query::{
    Append, GottenRows, Keys, Lookup, LookupClient, LookupOpen, QueryClient, append_columns,
    keys_of, presence_of,
};
use futures::channel::mpsc;
use futures::future::join_all;
use futures::{TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::NewColumnTransform;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use wire::query::lookup_response::Kind;
use wire::query::query_service_client::QueryServiceClient;
use wire::query::{
    Integers, LookupBatch, LookupRequest, LookupResponse, LookupResult, RowFormat, Strings,
};
use wire::{Fault, Reason, schema_from_bytes};

use crate::keys::with_metrics;
use crate::node::{addresses, config, ids, names, serve, serve_with, served};
use crate::operate::metric;
use crate::overload::{PATIENCE, Withheld};
use crate::table::{FIRST, ROWS, TestTable, address_of, is_live, key, rows};

pub fn text_keys(keys: &[String]) -> Keys {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(keys));
    keys_of(&keys).unwrap()
}

pub fn of_rows(rows: Option<GottenRows>) -> RecordBatch {
    match rows {
        Some(GottenRows::Arrow(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

fn open(columns: &[&str]) -> LookupOpen {
    let columns = columns.iter().map(|&column| column.to_owned()).collect();
    LookupOpen { table: "t".into(), columns, ..Default::default() }
}

async fn lookup(client: &QueryClient, open: LookupOpen) -> Lookup {
    client.lookups().await.unwrap().open(open).await.unwrap()
}

fn integers(values: &[i64]) -> Keys {
    Keys::Integers(Integers { values: values.iter().map(|&value| value as u64).collect() })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_batch_gets_the_rows_of_its_own_keys() {
    let (_table, _node, client) = served().await;
    let stream = client.lookups().await.unwrap();
    let texts = stream.open(open(&["id", "_rowaddr"])).await.unwrap();
    let numbers = LookupOpen { key_column: "id".into(), ..open(&["key", "id"]) };
    let numbers = stream.open(numbers).await.unwrap();
    // Batches of both projections, of 1 to 40 keys, all under way at the same time. Some keys are in no row.
    let batches = (0..600).map(|number: i64| {
        let wanted: Vec<i64> =
            (0..1 + number % 40).map(|at| (number * 37 + at * 101) % (ROWS + 50)).collect();
        let (texts, numbers) = (texts.clone(), numbers.clone());
        async move {
            let there = |id: &i64| *id < ROWS && is_live(*id);
            let present: Vec<i64> = wanted.iter().copied().filter(there).collect();
            let absent: Vec<u32> =
                (0..).zip(&wanted).filter(|(_, id)| !there(id)).map(|(at, _)| at).collect();
            let answer = match number % 2 {
                0 => {
                    let keys: Vec<String> = wanted.iter().map(|&id| key(id)).collect();
                    let answer = texts.get(text_keys(&keys)).await.unwrap();
                    let rows = of_rows(answer.rows.clone());
                    assert_eq!(names(&rows), ["id", "_rowaddr"]);
                    let addrs: Vec<u64> =
                        present.iter().map(|&id| address_of(id).to_u64()).collect();
                    assert_eq!(addresses(&rows), addrs);
                    answer
                }
                _ => numbers.get(integers(&wanted)).await.unwrap(),
            };
            let rows = of_rows(answer.rows);
            assert_eq!(ids(&rows), present, "batch {number}");
            assert_eq!(answer.not_found, absent, "batch {number}");
        }
    });
    join_all(batches).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_kind_are_found() {
    let (_table, _node, client) = served().await;
    let by_id = LookupOpen { key_column: "id".into(), ..open(&["id"]) };
    let by_id = lookup(&client, by_id).await;
    // 7 is deleted, and a null is the key of no row.
    let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None, Some(7), Some(9)]));
    let batch = RecordBatch::try_from_iter_with_nullable([("k", column, true)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let keys = Keys::Arrow(writer.into_inner().unwrap().into());
    let answer = by_id.get(keys).await.unwrap();
    assert_eq!((ids(&of_rows(answer.rows)), answer.not_found), (vec![5, 9], vec![1, 2]));
    let answer = by_id.get(integers(&[2999, -1, i64::MIN, 2999])).await.unwrap();
    assert_eq!((ids(&of_rows(answer.rows)), answer.not_found), (vec![2999, 2999], vec![1, 2]));

    let all = lookup(&client, open(&[])).await;
    let rows = of_rows(all.get(text_keys(&[key(8)])).await.unwrap().rows);
    assert_eq!(names(&rows), ["id", "key", "text", "tag"]);
    assert_eq!(rows["tag"].data_type(), &DataType::Utf8, "dictionaries are sent as plain values");
    assert_eq!(&rows["text"], &crate::table::rows(8..9)["text"]);

    let json = LookupOpen { format: RowFormat::Json.into(), ..open(&["id", "tag"]) };
    let json = lookup(&client, json).await;
    let wanted = [vec![key(1), key(7)], vec![key(2), key(3)]];
    let answers = join_all(wanted.iter().map(|keys| json.get(text_keys(keys)))).await;
    let lines = answers.into_iter().map(|answer| match answer.unwrap().rows {
        Some(GottenRows::Json(lines)) => lines,
        other => panic!("{other:?}"),
    });
    let expected = [
        "{\"id\":1,\"tag\":\"tag-1\"}\n",
        "{\"id\":2,\"tag\":\"tag-2\"}\n{\"id\":3,\"tag\":\"tag-0\"}\n",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
}

#[track_caller]
fn assert_fault(fault: Fault, reason: Reason, says: &str) {
    assert_eq!(fault.reason, reason, "{fault}");
    assert!(fault.message.contains(says), "`{fault}` doesn't say `{says}`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_that_cannot_be_opened_says_why_and_the_stream_goes_on() {
    let (_table, _node, client) = served().await;
    let stream = client.lookups().await.unwrap();
    let of = |change: fn(&mut LookupOpen)| {
        let mut open = open(&["id"]);
        change(&mut open);
        open
    };
    for (open, reason, says) in [
        (of(|o| o.table = "absent".into()), Reason::TableNotFound, "`absent`"),
        (of(|o| o.version = 999), Reason::VersionNotFound, "no version 999"),
        (of(|o| o.columns = vec!["idd".into()]), Reason::ColumnNotFound, "idd"),
        (of(|o| o.key_column = "nope".into()), Reason::ColumnNotFound, "nope"),
        (
            of(|o| o.key_column = "tag".into()),
            Reason::BadArgument,
            "`key_column` is `tag`, and columns of type Dictionary(Int8, Utf8) can't be looked up by key",
        ),
        (of(|o| o.format = 9), Reason::BadArgument, "`format` is 9"),
        (of(|o| o.priority = 9), Reason::BadArgument, "`priority` is 9"),
        (of(|o| o.only_presence = true), Reason::BadArgument, "`only_presence` returns no rows"),
    ] {
        assert_fault(stream.open(open).await.err().unwrap(), reason, says);
    }
    let good = stream.open(open(&["id"])).await.unwrap();
    let answer = good.get(text_keys(&[key(1)])).await.unwrap();
    assert_eq!(ids(&of_rows(answer.rows)), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_batch_gets_its_own_error() {
    let (_table, _node, client) = served().await;
    let stream = client.lookups().await.unwrap();
    let by_key = stream.open(open(&["id"])).await.unwrap();
    let by_vector = LookupOpen { key_column: "vector".into(), ..open(&["id"]) };
    let by_vector = stream.open(by_vector).await.unwrap();
    let not_text = Strings { data: (&b"\xff"[..]).into(), lengths: vec![1] };
    let too_many = text_keys(&vec![key(1); 10_001]);
    let (good, number, text, empty, vector, many) = tokio::join!(
        by_key.get(text_keys(&[key(1)])),
        by_key.get(integers(&[1])),
        by_key.get(Keys::Strings(not_text)),
        by_key.get(text_keys(&[])),
        by_vector.get(integers(&[1])),
        by_key.get(too_many),
    );
    assert_eq!(ids(&of_rows(good.unwrap().rows)), [1]);
    for (answer, says) in [
        (number, "`keys` has integers, but the key column is of type Utf8"),
        (text, "not UTF-8"),
        (empty, "`keys` is empty"),
        (vector, "`keys` has integers, but the key column is of type FixedSizeList"),
        (many, "`keys` has 10001 keys; give at most 10000"),
    ] {
        assert_fault(answer.unwrap_err(), Reason::BadArgument, says);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_follows_the_table() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&[("t", &table)]).await;
    let by_key = LookupOpen { key_column: "key".into(), ..open(&[]) };
    let latest = lookup(&client, by_key.clone()).await;
    let keys = || text_keys(&[key(3), key(ROWS)]);
    let first = latest.get(keys()).await.unwrap();
    assert_eq!((first.rows_len(), first.not_found), (1, vec![1]));
    let pinned = lookup(&client, LookupOpen { version: first.version, ..by_key }).await;
    table.append(ROWS..ROWS + 1).await;
    let mut dataset = Dataset::open(&table.uri).await.unwrap();
    let twice = NewColumnTransform::SqlExpressions(vec![("twice".into(), "2 * id".into())]);
    dataset.add_columns(twice, None, None).await.unwrap();
    node.refresh().await;
    let second = latest.get(keys()).await.unwrap();
    assert_eq!(second.version, first.version + 2);
    let rows = of_rows(second.rows);
    // The new version has another schema, which the client learns before the rows.
    assert_eq!(names(&rows), ["id", "key", "text", "tag", "twice"]);
    assert_eq!(rows["twice"].as_primitive::<Int64Type>().values(), &[6, 2 * ROWS]);
    let old = pinned.get(keys()).await.unwrap();
    assert_eq!((old.version, old.rows_len()), (first.version, 1));
}

trait RowsLen {
    fn rows_len(&self) -> usize;
}

impl RowsLen for client::query::LookedUp {
    fn rows_len(&self) -> usize {
        of_rows(self.rows.clone()).num_rows()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_give_up_touch_nobody_else() {
    let (_table, _node, client) = served().await;
    let by_key = lookup(&client, open(&["id"])).await;
    // The batches have more keys than the stream has credits, and every second caller gives up within 0.4 ms.
    let batches = (0..400).map(|number: i64| {
        let wanted: Vec<i64> = (0..500).map(|at| (number + at * 6) % FIRST).collect();
        let by_key = by_key.clone();
        async move {
            let keys: Vec<String> = wanted.iter().map(|&id| key(id)).collect();
            let answer = by_key.get(text_keys(&keys));
            if number % 2 == 1 {
                let _ = tokio::time::timeout(Duration::from_micros(number as u64), answer).await;
                return;
            }
            let expected: Vec<i64> = wanted.into_iter().filter(|&id| is_live(id)).collect();
            assert_eq!(ids(&of_rows(answer.await.unwrap().rows)), expected, "batch {number}");
        }
    });
    join_all(batches).await;
}

/// Connects without [`QueryClient`], to send messages as they are.
pub async fn service(node: &query_node::QueryNode) -> QueryServiceClient<Channel> {
    let uri = format!("http://{}", node.local_addr());
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    QueryServiceClient::new(channel)
}

/// Sends raw messages on a Lookup stream. Returns what came back until the stream ended.
async fn send_raw(
    node: &query_node::QueryNode,
    messages: Vec<LookupRequest>,
) -> (Vec<LookupResponse>, Option<Status>) {
    let mut service = service(node).await;
    let mut answers = service.lookup(stream::iter(messages)).await.unwrap().into_inner();
    let mut said = Vec::new();
    loop {
        match answers.message().await {
            Ok(Some(message)) => said.push(message),
            Ok(None) => return (said, None),
            Err(status) => return (said, Some(status)),
        }
    }
}

fn batch(id: u64, keys: usize) -> LookupBatch {
    let keys = text_keys(&vec![key(1); keys]);
    LookupBatch { id, handle: 1, keys: Some(keys) }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_violations_of_the_protocol_end_the_stream() {
    let (_table, node, _client) = served().await;
    let open = || LookupOpen { handle: 1, ..open(&["id"]) };
    let message = |open: Vec<LookupOpen>, batches: Vec<LookupBatch>, close: Vec<u32>| {
        LookupRequest { open, batches, close }
    };
    let violation = async |messages, says: &str| {
        let (_, status) = send_raw(&node, messages).await;
        assert_fault(Fault::from_status(&status.unwrap()), Reason::BadProtocol, says);
    };
    violation(vec![message(vec![], vec![batch(1, 1)], vec![])], "handle 1 is not open").await;
    violation(vec![message(vec![open(), open()], vec![], vec![])], "handle 1 is open already")
        .await;
    let closed =
        vec![message(vec![open()], vec![], vec![1]), message(vec![], vec![batch(1, 1)], vec![])];
    violation(closed, "handle 1 is not open").await;
    let many = (1..=7).map(|id| batch(id, 10_000)).collect();
    violation(vec![message(vec![open()], many, vec![])], "the credits are 65536").await;
    // Empty batches and projections cost credits too.
    let empty = vec![LookupBatch { handle: 1, ..Default::default() }; 65_536];
    violation(vec![message(vec![open()], empty, vec![])], "the credits are 65536").await;
    let reopened = (0..70_000).map(|_| message(vec![open()], vec![], vec![1])).collect();
    let (said, status) = send_raw(&node, reopened).await;
    match status.map(|status| Fault::from_status(&status).reason) {
        // The memory for projections ends before the credits if the core has little.
        Some(reason) => assert!([Reason::BadProtocol, Reason::Overloaded].contains(&reason)),
        None => assert_eq!(said.len(), 70_001, "the node kept up"),
    }
    let projections = (1..=65).map(|handle| LookupOpen { handle, ..open() }).collect();
    violation(vec![message(projections, vec![], vec![])], "64 projections are open").await;

    // A projection that is closed still answers its earlier batches. Unknown handles to close are ignored.
    let good = message(vec![open()], vec![batch(7, 2), batch(8, 1)], vec![1, 5]);
    let (said, status) = send_raw(&node, vec![good]).await;
    assert!(status.is_none(), "{status:?}");
    let kinds: Vec<Kind> = said.into_iter().filter_map(|it| it.kind).collect();
    assert!(matches!(kinds[0], Kind::Welcome(_)), "{kinds:?}");
    let schema = kinds.iter().position(|kind| matches!(kind, Kind::Schema(_))).unwrap();
    let reply = kinds.iter().position(|kind| matches!(kind, Kind::Reply(_))).unwrap();
    assert!(schema < reply, "the schema comes before the rows");
    let Kind::Reply(reply) = &kinds[reply] else { unreachable!() };
    let result = |id, rows| LookupResult { id, rows, ..Default::default() };
    assert_eq!(reply.results, [result(7, 2), result(8, 1)], "batches that wait share a reply");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_share_a_reply_up_to_4096_keys_and_a_larger_one_has_its_own() {
    let (_table, node, _client) = served().await;
    let open = LookupOpen { handle: 1, ..open(&["id"]) };
    let batches = vec![batch(1, 5_000), batch(2, 2_048), batch(3, 2_048), batch(4, 1)];
    let message = LookupRequest { open: vec![open], batches, ..Default::default() };
    let (said, status) = send_raw(&node, vec![message]).await;
    assert!(status.is_none(), "{status:?}");
    let ids = |it: LookupResponse| match it.kind {
        Some(Kind::Reply(reply)) => {
            Some(reply.results.iter().map(|it| it.id).collect::<Vec<u64>>())
        }
        _ => None,
    };
    let mut replies: Vec<_> = said.into_iter().filter_map(ids).collect();
    replies.sort_unstable();
    assert_eq!(replies, [vec![1], vec![2, 3], vec![4]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_stream_of_keys_is_refused_before_it_is_decoded() {
    let (_table, _node, client) = served().await;
    let by_id = LookupOpen { key_column: "id".into(), ..open(&["id"]) };
    let by_id = lookup(&client, by_id).await;
    let column: ArrayRef = Arc::new(Int64Array::from(vec![5; 1000]));
    let batch = RecordBatch::try_from_iter([("k", column)]).unwrap();
    let compression = Some(CompressionType::LZ4_FRAME);
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    let keys = Keys::Arrow(writer.into_inner().unwrap().into());
    let fault = by_id.get(keys).await.unwrap_err();
    assert_fault(fault, Reason::BadArgument, "send it without compression");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_never_read_with_the_schema_of_another_version() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&[("t", &table)]).await;
    let by_key = LookupOpen { key_column: "key".into(), ..open(&[]) };
    let latest = lookup(&client, by_key).await;
    for step in 0..4 {
        // Batches of the old and the new version end in any order.
        let gets = (0..200).map(|number| {
            let latest = latest.clone();
            async move {
                let answer = latest.get(text_keys(&[key(number)])).await.unwrap();
                let rows = of_rows(answer.rows);
                let own = if is_live(number) { vec![number] } else { vec![] };
                assert_eq!(ids(&rows), own);
                (answer.version, rows.num_columns())
            }
        });
        let mut dataset = Dataset::open(&table.uri).await.unwrap();
        let column =
            NewColumnTransform::SqlExpressions(vec![(format!("column_{step}"), "id + 1".into())]);
        let change = async {
            dataset.add_columns(column, None, None).await.unwrap();
            node.refresh().await;
        };
        let (answers, ()) = tokio::join!(join_all(gets), change);
        let widths: BTreeSet<_> = answers.into_iter().collect();
        let versions: Vec<u64> = widths.iter().map(|(version, _)| *version).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "one schema for each version: {widths:?}");
    }
}

/// Returns the columns of a schema, or the id of the first result of a reply.
fn said(response: LookupResponse) -> String {
    match response.kind.unwrap() {
        Kind::Welcome(_) => "welcome".into(),
        Kind::Schema(schema) => {
            let schema = schema_from_bytes(&schema.schema).unwrap();
            let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            names.join(", ")
        }
        Kind::Reply(reply) => format!("reply {}", reply.results[0].id),
    }
}

/// A closed projection answers its batch only when another one has its handle.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_is_used_again_has_the_schema_of_its_rows() {
    let (table, node, _client) = served().await;
    let withheld = Withheld::of(&table);
    let (messages, sent) = mpsc::unbounded();
    let mut answers = service(&node).await.lookup(sent).await.unwrap().into_inner();
    let mut next = async || {
        let answer = tokio::time::timeout(PATIENCE, answers.message()).await;
        said(answer.expect("there is an answer").unwrap().unwrap())
    };
    let send = |message| messages.unbounded_send(message).unwrap();
    let open_1 = |columns: &[&str]| vec![LookupOpen { handle: 1, ..open(columns) }];
    let batches = vec![batch(7, 1)];
    send(LookupRequest { open: open_1(&["id"]), batches, ..Default::default() });
    assert_eq!([next().await, next().await], ["welcome", "id"]);
    send(LookupRequest { close: vec![1], ..Default::default() });
    send(LookupRequest { open: open_1(&["key", "text"]), ..Default::default() });
    assert_eq!(next().await, "key, text");
    drop(withheld);
    assert_eq!([next().await, next().await], ["id", "reply 7"]);
    send(LookupRequest { batches: vec![batch(8, 1)], ..Default::default() });
    assert_eq!([next().await, next().await], ["key, text", "reply 8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_opens_leave_no_handle_behind() {
    let (_table, _node, client) = served().await;
    let stream = client.lookups().await.unwrap();
    for _ in 0..200 {
        let absent = LookupOpen { table: "absent".into(), ..open(&["id"]) };
        assert!(stream.open(absent).await.is_err());
    }
    let good = stream.open(open(&["id"])).await.unwrap();
    assert_eq!(ids(&of_rows(good.get(text_keys(&[key(1)])).await.unwrap().rows)), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_projection_too_many_fails_alone_and_may_take_the_place_of_another() {
    let (_table, _node, client) = served().await;
    let stream = client.lookups().await.unwrap();
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(stream.open(open(&["id"])).await.unwrap());
    }
    let fault = stream.open(open(&["id"])).await.err().unwrap();
    assert_fault(fault, Reason::BadArgument, "64 projections are open on this stream");
    // Each of them in turn is dropped, with a batch under way, and another one opened in its place.
    for at in 0..200_i64 {
        let asked = all.remove(0);
        let id = at % 7;
        let answer = tokio::spawn(async move { asked.get(text_keys(&[key(id)])).await });
        tokio::task::yield_now().await;
        // The batch may not be sent yet, so its projection may still be open.
        let another = loop {
            match stream.open(open(&["id"])).await {
                Ok(another) => break another,
                Err(fault) => assert_fault(fault, Reason::BadArgument, "64 projections are open"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        all.push(another);
        assert_eq!(ids(&of_rows(answer.await.unwrap().unwrap().rows)), [id]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_projections_are_small_and_hold_memory_even_if_their_table_is_unknown() {
    let table = TestTable::plain().await;
    let (node, _client) = serve_with(with_metrics(config(&[("t", &table)]))).await;
    let message = |open| LookupRequest { open: vec![open], ..Default::default() };
    let large = LookupOpen { columns: vec![String::new(); 40_000], ..open(&[]) };
    let (_, status) = send_raw(&node, vec![message(large)]).await;
    let fault = Fault::from_status(&status.unwrap());
    assert_fault(fault, Reason::BadArgument, "name fewer columns");

    const USED: &str = "bireme_query_traffic_memory_usage_bytes";
    let long = |handle| LookupOpen { handle, table: "t".repeat(60_000), ..Default::default() };
    let before = metric(&node, USED).await;
    let mut service = service(&node).await;
    let (send, messages) = mpsc::unbounded();
    (0..64).for_each(|handle| send.unbounded_send(message(long(handle))).unwrap());
    let mut answers = service.lookup(messages).await.unwrap().into_inner();
    let mut refused = 0;
    while refused < 64 {
        match answers.message().await.unwrap().unwrap().kind {
            Some(Kind::Welcome(_)) => {}
            Some(Kind::Schema(schema)) => refused += usize::from(schema.error.is_some()),
            other => panic!("{other:?}"),
        }
    }
    let projections = 64.0 * 60_000.0;
    let most = metric(&node, USED).await;
    assert!(most - before >= projections, "{most} bytes are held, {before} before");
    drop((send, answers));
    // Connections, which hold memory too, may come and go meanwhile, but have far less.
    let gives_back = async {
        while most - metric(&node, USED).await < projections {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gives_back).await.expect("all is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_keys_are_sent_in_several_messages() {
    let (_table, _node, client) = served().await;
    let by_key = lookup(&client, open(&["id"])).await;
    let long: Vec<String> = (0..16).map(|at| format!("{at}{}", "k".repeat(60 << 10))).collect();
    let batches = (0..20).map(|_| by_key.get(text_keys(&long)));
    for answer in join_all(batches).await {
        assert_eq!(answer.unwrap().not_found.len(), long.len());
    }
    let fault = by_key.get(text_keys(&[&long[..]; 4].concat())).await.unwrap_err();
    assert_fault(fault, Reason::TooLarge, "give fewer keys");
}

/// Columns are appended by keys of any length, and keys of any length may exist: batches have fewer of them.
#[tokio::test(flavor = "multi_thread")]
async fn long_keys_are_joined_and_may_exist() {
    let (_table, _node, client) = served().await;
    let wanted = |at: i64| match at % 3 {
        0 => key(at),
        _ => format!("{at}{}", "k".repeat(10 << 10)),
    };
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_500).map(wanted)));
    let presence = lookup(&client, LookupOpen { only_presence: true, ..open(&[]) }).await;
    let absent = presence_of(&presence, &texts).await.unwrap().not_found;
    let is_absent = |at: &u32| !at.is_multiple_of(3) || !is_live(i64::from(*at));
    assert!(absent.into_iter().eq((0..1_500).filter(is_absent)));
    let input = RecordBatch::try_from_iter([("k", texts)]).unwrap();
    let lookup = lookup(&client, open(&["id"])).await;
    let append = Append { lookup, on: "k".into(), counts: Arc::default() };
    let joined = append_columns(stream::iter([Ok(input)]), Arc::from([append]));
    let joined: Vec<RecordBatch> = joined.try_collect().await.unwrap();
    let found = joined.iter().flat_map(|rows| rows["id"].as_primitive::<Int64Type>().iter());
    let expected = (0..1_500).map(|at| (at % 3 == 0 && is_live(at)).then_some(at));
    assert!(found.eq(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_each_batchs_own() {
    let (_table, _node, client) = served().await;
    let patient = lookup(&client, open(&["id"])).await;
    let hasty = lookup(&client, LookupOpen { timeout_us: 1, ..open(&["id"]) }).await;
    let fault = hasty.get(text_keys(&[key(1)])).await.unwrap_err();
    assert_eq!(fault.reason, Reason::DeadlineExceeded, "{fault}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(ids(&of_rows(patient.get(text_keys(&[key(1)])).await.unwrap().rows)), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_ends_the_stream_with_a_fault() {
    let (_table, node, client) = served().await;
    let stream: LookupClient = client.lookups().await.unwrap();
    let by_key = stream.open(open(&["id"])).await.unwrap();
    by_key.get(text_keys(&[key(1)])).await.unwrap();
    drop(node);
    let ended = async {
        loop {
            match by_key.get(text_keys(&[key(1)])).await {
                Err(fault) => return fault,
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let fault = tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
    let again = by_key.get(text_keys(&[key(1)])).await.unwrap_err();
    assert_eq!(again.reason, Reason::NodeUnavailable);
}

#[test]
fn keys_are_made_of_arrays() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 7]));
    assert_eq!(keys_of(&numbers).unwrap(), integers(&[1, 7]));
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    assert_fault(keys_of(&nulls).unwrap_err(), Reason::BadArgument, "1 of the keys are null");
    let vectors = Arc::clone(&rows(0..1)["vector"]);
    assert_fault(keys_of(&vectors).unwrap_err(), Reason::BadArgument, "can't be looked up");
}
