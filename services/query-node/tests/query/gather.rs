//! Lookup streams, and Gets, that wait on the same core: they share look-ups and fetches, but no rows and no errors.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bytesize::ByteSize;
use client::query::{GetRequest, GottenRows, Lookup, LookupOpen, QueryClient};
use futures::future::join_all;
use futures::{StreamExt, stream};
use lance::Dataset;
use prost::Message;
use query_node::{AccessConfig, QueryConfig, QueryNode};
use tonic::transport::Endpoint;
use wire::Reason;
use wire::query::lookup_response::Kind;
use wire::query::query_service_client::QueryServiceClient;
use wire::query::{GetResponse, LookupBatch, LookupRequest, LookupResponse, RowFormat};

use crate::access::{policy, secret};
use crate::keys::{covered, with_metrics};
use crate::lookups::{of_rows, text_keys};
use crate::node::{addresses, config, ids, serve_with};
use crate::operate::metric;
use crate::overload::PATIENCE;
use crate::table::{FIRST, ROWS, TestTable, address_of, is_live, key};

/// The counter of requests that shared work.
const GATHERED: &str = "bireme_query_gathered_total";

/// Serves a table `t` on one core, with a key index that covers it.
pub async fn serve(table: &TestTable) -> (QueryNode, QueryClient) {
    serve_within(table, ByteSize::b(0)).await
}

/// Like [`serve`], with `memory` for the node.
async fn serve_within(table: &TestTable, memory: ByteSize) -> (QueryNode, QueryClient) {
    let mut config = with_metrics(QueryConfig { cores: 1, memory, ..config(&[("t", table)]) });
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    let (node, client) = serve_with(config).await;
    client.get(get(0)).await.unwrap();
    covered(&client).await;
    (node, client)
}

pub fn get(id: i64) -> GetRequest {
    let (keys, columns) = (vec![key(id)], vec!["id".to_owned()]);
    GetRequest { table: "t".into(), keys, columns, ..Default::default() }
}

/// Opens a stream of its own for each of `opens`.
pub async fn streams(
    client: &QueryClient,
    opens: impl IntoIterator<Item = LookupOpen>,
) -> Vec<Lookup> {
    let open = async |open| client.lookups().await.unwrap().open(open).await.unwrap();
    join_all(opens.into_iter().map(open)).await
}

pub fn open(columns: &[&str]) -> LookupOpen {
    let columns = columns.iter().map(|&column| column.to_owned()).collect();
    LookupOpen { table: "t".into(), columns, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_share_work_get_their_own_rows_and_nobody_elses() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&table).await;
    let json = LookupOpen { format: RowFormat::Json.into(), ..open(&["id", "text", "tag"]) };
    let all_rows = LookupOpen { all_rows: true, ..open(&["id", "_rowaddr"]) };
    let kinds = [open(&["id", "text", "tag"]), json, open(&["id", "_rowaddr"]), all_rows];
    let streams = streams(&client, (0..40).map(|at| kinds[at % 4].clone())).await;
    for round in 0..20_i64 {
        // Batches have between 1 and 150 keys, so some have more than are gathered. Some keys are in no row, some are
        // asked for by several streams or twice, and some callers give up.
        let batches = (0..).zip(&streams).map(|(number, stream): (i64, _)| async move {
            let count = if number % 10 == 9 { 150 } else { 1 + (number + round) % 7 };
            let wanted: Vec<i64> = (0..count)
                .map(|at| (round * 53 + number % 20 * 31 + at * 7) % (ROWS + 50))
                .collect();
            let keys: Vec<String> = wanted.iter().map(|&id| key(id)).collect();
            let answer = stream.get(text_keys(&keys));
            if number % 7 == 6 {
                let soon = Duration::from_micros(100 * round as u64);
                let _ = tokio::time::timeout(soon, answer).await;
                return;
            }
            let answer = answer.await.unwrap();
            let is_there = |id: &i64| *id < ROWS && is_live(*id);
            let there: Vec<i64> = wanted.iter().copied().filter(is_there).collect();
            let absent = (0..).zip(&wanted).filter(|(_, id)| !is_there(id)).map(|(at, _)| at);
            assert_eq!(answer.not_found, absent.collect::<Vec<u32>>(), "batch {number}");
            match answer.rows.unwrap() {
                GottenRows::Arrow(rows) => {
                    assert_eq!(ids(&rows), there, "batch {number}");
                    if number % 4 == 0 {
                        let texts = crate::table::rows(there.iter().copied());
                        assert_eq!(rows["text"].as_ref(), texts["text"].as_ref());
                    } else {
                        let addrs: Vec<u64> =
                            there.iter().map(|&id| address_of(id).to_u64()).collect();
                        assert_eq!(addresses(&rows), addrs);
                    }
                }
                GottenRows::Json(lines) => {
                    let expected: Vec<String> =
                        there.iter().map(|id| format!("{{\"id\":{id},")).collect();
                    assert_eq!(lines.lines().count(), there.len());
                    let mut lines = lines.lines().zip(&expected);
                    assert!(lines.all(|(line, start)| line.starts_with(start)), "batch {number}");
                }
            }
        });
        // Gets share work with streams.
        let gets = (0..10).map(|number: i64| {
            let (client, id) = (client.clone(), round * 53 + number);
            async move {
                let GottenRows::Arrow(rows) = client.get(get(id)).await.unwrap().rows else {
                    panic!("not Arrow")
                };
                let own = if is_live(id) { vec![id] } else { vec![] };
                assert_eq!(ids(&rows), own, "Get {number}");
            }
        });
        tokio::join!(join_all(batches), join_all(gets));
    }
    let gathered = metric(&node, GATHERED).await;
    assert!(gathered > 100.0, "only {gathered} of 1000 requests shared work");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gets_that_arrive_together_share_work() {
    let table = TestTable::plain().await;
    let (node, _client) = serve(&table).await;
    let service = QueryServiceClient::connect(format!("http://{}", node.local_addr()));
    let mut service = service.await.unwrap();
    let before = metric(&node, GATHERED).await;
    // Requests of a stream that are ready when it begins arrive in one frame.
    let answers = service.get_stream(stream::iter([10, 20].map(get))).await.unwrap();
    let answers: Vec<_> = answers.into_inner().collect().await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().error.is_none()));
    assert_eq!(metric(&node, GATHERED).await - before, 2.0);
}

/// Cuts the second data file of a table short, so that its rows can't be read.
pub async fn damage_second_file(table: &TestTable) {
    let dataset = Dataset::open(&table.uri).await.unwrap();
    let file = dataset.get_fragments()[1].metadata().files[0].path.clone();
    let path = PathBuf::from(&table.uri).join("data").join(file);
    File::options().write(true).open(path).unwrap().set_len(64).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_read_fail_only_the_requests_that_ask_for_them() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&table).await;
    let streams = streams(&client, (0..20).map(|_| open(&["id"]))).await;
    damage_second_file(&table).await;
    let mut shared = metric(&node, GATHERED).await;
    for round in 0..10_i64 {
        let batches = (0..).zip(&streams).map(|(number, stream): (i64, _)| async move {
            // In every second round, every fifth stream asks for rows that can't be read.
            let is_bad = round % 2 == 1 && number % 5 == 0;
            let id = 10 * (round * 20 + number) % FIRST;
            let answer = stream.get(text_keys(&[key(if is_bad { FIRST + id % 100 } else { id })]));
            match (is_bad, answer.await) {
                (true, answer) => {
                    let fault = answer.unwrap_err();
                    assert_ne!(fault.reason, Reason::DeadlineExceeded, "{fault}");
                }
                (false, answer) => {
                    assert_eq!(ids(&of_rows(answer.unwrap().rows)), [id], "batch {number}");
                }
            }
        });
        let gets = (0..20).map(|number: i64| {
            let client = client.clone();
            async move {
                let is_bad = round % 2 == 1 && number % 5 == 0;
                let id = if is_bad { FIRST + number } else { 10 * (round * 20 + number) % FIRST };
                match (is_bad, client.get(get(id)).await) {
                    (true, answer) => {
                        let fault = answer.unwrap_err();
                        assert_ne!(fault.reason, Reason::DeadlineExceeded, "{fault}");
                    }
                    (false, answer) => {
                        let GottenRows::Arrow(rows) = answer.unwrap().rows else {
                            panic!("not Arrow")
                        };
                        assert_eq!(ids(&rows), [id], "Get {number}");
                    }
                }
            }
        });
        tokio::join!(join_all(batches), join_all(gets));
        // Batches arrive in the rounds with rows that can't be read as they do in the others, where they share work.
        if round == 0 || round == 9 {
            let before = std::mem::replace(&mut shared, metric(&node, GATHERED).await);
            assert!(shared > before, "no batches shared work");
        }
    }
}

/// Opens a GetStream whose answers nobody reads: its window has room for one byte. Sends a Get whose answer fills the
/// window, and then `gets` at once.
async fn unread(node: &QueryNode, gets: Vec<GetRequest>) -> tonic::Streaming<GetResponse> {
    let endpoint = Endpoint::from_shared(format!("http://{}", node.local_addr())).unwrap();
    let channel = endpoint.initial_stream_window_size(1).connect().await.unwrap();
    let pause = stream::once(tokio::time::sleep(Duration::from_millis(100)));
    let first = stream::iter([get(10)]).chain(pause.filter_map(|()| async { None }));
    let gets = first.chain(stream::iter(gets)).chain(stream::pending());
    QueryServiceClient::new(channel).get_stream(gets).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_stream_that_nobody_reads_holds_up_no_other_request() {
    let table = TestTable::plain().await;
    let (node, client) = serve(&table).await;
    let lookup = streams(&client, [open(&["id"])]).await.remove(0);
    let before = metric(&node, GATHERED).await;
    let mut unread_streams = Vec::new();
    for _ in 0..5 {
        // The first of these Gets is refused at once. Its answer waits for the window from then on, and the connection
        // does not poll the stream again. The others have just arrived.
        let refused = GetRequest { keys: Vec::new(), ..get(0) };
        let gets = [refused].into_iter().chain((0..14).map(|at| get(10 * at))).collect();
        unread_streams.push(unread(&node, gets).await);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let others = async {
            let GottenRows::Arrow(rows) = client.get(get(20)).await.unwrap().rows else {
                panic!("not Arrow")
            };
            assert_eq!(ids(&rows), [20]);
            let looked_up = lookup.get(text_keys(&[key(30)])).await.unwrap();
            assert_eq!(ids(&of_rows(looked_up.rows)), [30]);
        };
        tokio::time::timeout(PATIENCE / 4, others).await.expect("others are answered");
    }
    // The Gets that nobody waits for are answered too, so they hold no rows of others.
    let is_answered = async {
        let answered = "bireme_query_requests_under_way";
        while metric(&node, answered).await > 0.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE / 4, is_answered).await.expect("all Gets end");
    assert!(metric(&node, GATHERED).await >= before + 2.0, "no Gets shared work");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_have_memory_alone_have_it_together() {
    const TEXT_BYTES: usize = 200_000;
    const KEYS: i64 = 20;
    let all = 0..3 * KEYS;
    let texts = all.clone().map(|id| format!("{id}{}", " ".repeat(TEXT_BYTES)));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(all.clone()))),
        ("key", Arc::new(StringArray::from_iter_values(all.map(key)))),
        ("text", Arc::new(StringArray::from_iter_values(texts))),
    ];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    // This leaves 32 MiB for callers, and 28 of them for one flow. Rows hold twice their size: 8 MB for each batch.
    let (node, client) = serve_within(&table, ByteSize::mib(1757)).await;
    for format in [RowFormat::Arrow, RowFormat::Json] {
        let open = LookupOpen { format: format.into(), ..open(&["id", "text"]) };
        let streams = streams(&client, [open.clone(), open.clone(), open]).await;
        let before = metric(&node, GATHERED).await;
        // Whether batches arrive at the same time depends on the scheduler, so rounds follow until enough have.
        for round in 0..60 {
            if round >= 20 && metric(&node, GATHERED).await >= before + 6.0 {
                break;
            }
            let batches = (0..).zip(&streams).map(|(number, stream): (i64, _)| async move {
                let wanted: Vec<i64> = (number * KEYS..(number + 1) * KEYS).collect();
                let keys: Vec<String> = wanted.iter().map(|&id| key(id)).collect();
                // The node may still hold the rows of the last answers, which it has just sent.
                let mut answer = stream.get(text_keys(&keys)).await;
                for _ in 0..20 {
                    let Err(fault) = &answer else { break };
                    assert_eq!(fault.reason, Reason::Overloaded, "{fault}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    answer = stream.get(text_keys(&keys)).await;
                }
                match answer.unwrap().rows.unwrap() {
                    GottenRows::Arrow(rows) => assert_eq!(ids(&rows), wanted),
                    GottenRows::Json(lines) => assert_eq!(lines.lines().count(), wanted.len()),
                }
            });
            join_all(batches).await;
        }
        assert!(metric(&node, GATHERED).await >= before + 6.0, "{format:?}: no work was shared");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_is_the_same_whether_work_was_shared_or_not() {
    let table = TestTable::plain().await;
    let (node, _client) = serve(&table).await;
    let uri = format!("http://{}", node.local_addr());
    let service = QueryServiceClient::connect(uri).await.unwrap();
    let replies = async |format: RowFormat, id: i64| {
        let columns = ["id", "text", "tag", "vector", "_rowaddr"];
        let open = LookupOpen { handle: 1, format: format.into(), ..open(&columns) };
        let keys = Some(text_keys(&[key(id), key(id + 1), key(id)]));
        let batches = vec![LookupBatch { id: 5, handle: 1, keys }];
        let message = LookupRequest { open: vec![open], batches, close: Vec::new() };
        let responses = service.clone().lookup(stream::iter([message])).await.unwrap();
        let reply = |response: Result<LookupResponse, _>| match response.unwrap().kind.unwrap() {
            Kind::Reply(reply) => Some(reply.encode_to_vec()),
            _ => None,
        };
        let replies = responses.into_inner().filter_map(|it| async { reply(it) });
        replies.collect::<Vec<_>>().await
    };
    for format in [RowFormat::Arrow, RowFormat::Json] {
        let mut alone = Vec::new();
        for id in 0..100 {
            alone.push(replies(format, id).await);
        }
        assert!(alone.iter().all(|replies| replies.len() == 1));
        let before = metric(&node, GATHERED).await;
        let together = join_all((0..100).map(|id| replies(format, id))).await;
        assert!(metric(&node, GATHERED).await > before, "no batches shared work");
        assert_eq!(together, alone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_two_grants_share_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    let grant = |name: &str| {
        format!(
            "[[grants]]\nname = \"{name}\"\nwho = [\"key:{name}\"]\ntables = [\"*\"]\nmay = [\"read\"]\n"
        )
    };
    std::fs::write(&file, policy(&["one", "two"].map(grant).concat())).unwrap();
    let table = TestTable::plain().await;
    let access = Some(AccessConfig::Policy(file));
    let mut config = with_metrics(QueryConfig { cores: 1, access, ..config(&[("t", &table)]) });
    config.tables.get_mut("t").unwrap().key = Some("key".into());
    let (node, anonymous) = serve_with(config).await;
    let with_key = |name| anonymous.clone().with_token(&secret(name)).unwrap();
    let (one, two) = (with_key("one"), with_key("two"));
    one.get(get(0)).await.unwrap();
    covered(&one).await;
    let look_up = async |clients: [&QueryClient; 2]| {
        let opened = clients.map(|client| streams(client, [open(&["id"])]));
        let streams: Vec<Lookup> = join_all(opened).await.into_iter().flatten().collect();
        for id in (0..1000).step_by(10) {
            let answers = join_all(streams.iter().map(|it| it.get(text_keys(&[key(id)])))).await;
            for answer in answers {
                assert_eq!(ids(&of_rows(answer.unwrap().rows)), [id]);
            }
        }
        metric(&node, GATHERED).await
    };
    assert_eq!(look_up([&one, &two]).await, 0.0);
    assert!(look_up([&one, &one]).await > 0.0, "no batches of one grant shared work");
}
