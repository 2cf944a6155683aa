use std::sync::Arc;
use std::time::Duration;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, StringArray};
use bytesize::ByteSize;
use client::query::{GetRequest, GottenRows, RowFormat};
use futures::future::join_all;
use futures::{StreamExt, stream};
use lake::Metric;
use query_node::QueryConfig;
use serde_json::Value;
use telemetry::TelemetryConfig;
use wire::Reason;
use wire::query::query_service_client::QueryServiceClient;

use crate::node::{assert_true, config, ids, names, serve_with, served};
use crate::operate::metric;
use crate::table::{ROWS, TestTable, is_live, key, live};

fn get(keys: &[&str]) -> GetRequest {
    let keys = keys.iter().map(|&key| key.to_owned()).collect();
    GetRequest { table: "t".into(), keys, ..Default::default() }
}

fn arrow(rows: GottenRows) -> RecordBatch {
    match rows {
        GottenRows::Arrow(rows) => rows,
        GottenRows::Json(text) => panic!("{text}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_in_the_order_of_their_keys() {
    let (_table, _node, client) = served().await;
    // Row 17 is deleted.
    let request = get(&["row-2999", "row-17", "row-0", "none", "row-2999", "", "row-2500"]);
    let answer = client.get(request).await.unwrap();
    assert_eq!(answer.not_found, [1, 3, 5]);
    let rows = arrow(answer.rows);
    assert_eq!(ids(&rows), [2999, 0, 2999, 2500]);
    assert_eq!(names(&rows), ["id", "key", "text", "tag", "_rowaddr"]);
    assert_true(&rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_live_key_is_found_and_no_other() {
    let (_table, _node, client) = served().await;
    let keys: Vec<String> = (0..3001).map(key).collect();
    let columns = vec!["vector".into(), "id".into()];
    let request = GetRequest { table: "t".into(), keys, columns, ..Default::default() };
    let answer = client.get(request).await.unwrap();
    let rows = arrow(answer.rows);
    assert_eq!(names(&rows), ["vector", "id", "_rowaddr"]);
    assert_eq!(ids(&rows), live().collect::<Vec<_>>());
    assert_true(&rows);
    let dead: Vec<u32> = (0..3001).filter(|i| i % 10 == 7 || *i == 3000).collect();
    assert_eq!(answer.not_found, dead);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_column_and_json() {
    let (_table, _node, client) = served().await;
    let request = GetRequest {
        key_column: "id".into(),
        columns: vec!["text".into(), "tag".into()],
        ..get(&["12", " 0040", "-1"])
    };
    let request = GetRequest { format: RowFormat::Json as i32, ..request };
    let answer = client.get(request).await.unwrap();
    assert_eq!(answer.not_found, [2]);
    let GottenRows::Json(lines) = answer.rows else { panic!("{:?}", answer.rows) };
    let expected = concat!(
        r#"{"text":"maple trees by the river","tag":"tag-0","_rowaddr":12}"#,
        "\n",
        r#"{"text":"oak trees by the river","tag":"tag-1","_rowaddr":40}"#,
        "\n",
    );
    assert_eq!(lines, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_come_back_only_if_they_are_named_however_short_they_are() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let lists = |values: Vec<Option<f32>>| Some(values);
    let points = [lists(vec![Some(1.0), Some(2.0)]), lists(vec![Some(3.0), Some(4.0)])];
    let points = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(points, 2);
    let columns: [(&str, ArrayRef); 2] = [("id", ids), ("point", Arc::new(points))];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let (_node, client) = crate::node::serve(&[("t", &table)]).await;
    let request = GetRequest { key_column: "id".into(), ..get(&["2"]) };
    let rows = arrow(client.get(request.clone()).await.unwrap().rows);
    assert_eq!(names(&rows), ["id", "_rowaddr"]);
    let request = GetRequest { columns: vec!["point".into()], ..request };
    let rows = arrow(client.get(request).await.unwrap().rows);
    assert_eq!(names(&rows), ["point", "_rowaddr"]);
    let described = client.describe("t", 0).await.unwrap().response;
    let by_default: Vec<_> = described.columns.iter().map(|column| column.by_default).collect();
    assert_eq!(by_default, [true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_stream_answers_come_in_order_and_errors_end_nothing() {
    let (_table, _node, client) = served().await;
    let mut requests: Vec<GetRequest> = (0..100).map(|i| get(&[key(i * 10).as_str()])).collect();
    requests[3] = GetRequest { table: "absent".into(), ..get(&["x"]) };
    requests[40] = get(&[]);
    let answers = client.get_stream(stream::iter(requests), RowFormat::Arrow).await.unwrap();
    let answers: Vec<_> = answers.collect().await;
    assert_eq!(answers.len(), 100);
    for (i, answer) in answers.into_iter().enumerate() {
        match (i, answer) {
            (3, answer) => assert_eq!(answer.unwrap_err().reason, Reason::TableNotFound),
            (40, answer) => assert_eq!(answer.unwrap_err().reason, Reason::BadArgument),
            (i, answer) => assert_eq!(ids(&arrow(answer.unwrap().rows)), [i as i64 * 10]),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_key_column_goes_first_and_a_table_without_one_says_so() {
    let table = TestTable::plain().await;
    let mut config = crate::node::config(&[("t", &table), ("keyless", &table)]);
    config.tables.get_mut("t").unwrap().key = Some("id".into());
    let (_node, client) = serve_with(config).await;
    let rows = arrow(client.get(get(&["33"])).await.unwrap().rows);
    assert_eq!(ids(&rows), [33]);
    let request = GetRequest { table: "keyless".into(), ..get(&["33"]) };
    let fault = client.get(request).await.unwrap_err();
    assert_eq!(fault.reason, Reason::NoIndex);
    assert!(fault.message.contains("--key"), "{fault}");
}

/// The counter of Gets that shared work.
const GATHERED: &str = "bireme_query_gathered_total";

#[tokio::test(flavor = "multi_thread")]
async fn gets_that_share_work_get_their_own_rows_and_nobody_elses() {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let metrics_listen = Some("127.0.0.1:0".parse().unwrap());
    let telemetry = TelemetryConfig { metrics_listen, ..Default::default() };
    let (node, client) =
        serve_with(QueryConfig { cores: 1, telemetry, ..config(&[("t", &table)]) }).await;
    let before = metric(&node, GATHERED).await;
    let columns: [&[&str]; 2] = [&["text", "id"], &[]];
    for round in 0..20 {
        // The Gets ask for two lists of columns, in both formats. Some keys have no row, and some callers give up.
        let gets = (0..60_i64).map(|number| {
            let number = 60 * round + number;
            let wanted: Vec<i64> =
                (0..1 + number % 3).map(|at| (number * 31 + at * 7) % (ROWS + 100)).collect();
            let columns = columns[number as usize % 2].iter().map(|&name| name.into()).collect();
            let keys = wanted.iter().map(|&id| key(id)).collect();
            let mut request = GetRequest { table: "t".into(), keys, columns, ..Default::default() };
            if number % 5 == 0 {
                request.set_format(RowFormat::Json);
            }
            let client = client.clone();
            async move {
                let answer = client.get(request);
                if number % 7 == 6 {
                    let soon = Duration::from_micros(100 * round as u64);
                    let _ = tokio::time::timeout(soon, answer).await;
                    return;
                }
                let answer = answer.await.unwrap();
                let there: Vec<i64> =
                    wanted.iter().copied().filter(|&id| id < ROWS && is_live(id)).collect();
                assert_eq!(answer.not_found.len(), wanted.len() - there.len());
                match answer.rows {
                    GottenRows::Arrow(rows) => {
                        assert_eq!(ids(&rows), there, "Get {number}");
                        assert_true(&rows);
                    }
                    GottenRows::Json(lines) => {
                        assert_eq!(lines.lines().count(), there.len());
                        let has = |id: &i64| lines.contains(&format!("\"id\":{id},"));
                        assert!(there.iter().all(has), "Get {number}: {lines}");
                    }
                }
            }
        });
        join_all(gets).await;
    }
    let gathered = metric(&node, GATHERED).await - before;
    assert!(gathered > 100.0, "only {gathered} of 1200 Gets shared work");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_no_bytes_of_gets_that_it_shared_work_with() {
    let table = TestTable::indexed(Default::default(), Metric::L2).await;
    let (node, client) = serve_with(QueryConfig { cores: 1, ..config(&[("t", &table)]) }).await;
    let uri = format!("http://{}", node.local_addr());
    let service = QueryServiceClient::connect(uri).await.unwrap();
    let request = |id: i64| GetRequest {
        table: "t".into(),
        keys: vec![key(id)],
        columns: ["text", "key", "tag", "vector"].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    client.get(request(0)).await.unwrap();
    let rows: Vec<i64> = (0..200).filter(|&id| is_live(id)).collect();
    let mut alone = Vec::new();
    for &id in &rows {
        alone.push(service.clone().get(request(id)).await.unwrap().into_inner().rows);
    }
    let together = rows.iter().map(|&id| {
        let mut service = service.clone();
        async move { service.get(request(id)).await.unwrap().into_inner().rows }
    });
    assert_eq!(join_all(together).await, alone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_of_a_stream_that_is_refused_at_its_end_counts_no_rows() {
    // JSON writes the character as six bytes, so the answer is six times as large as the rows.
    let text = "\u{1}".repeat(4_000_000);
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("text", Arc::new(StringArray::from(vec![text.as_str(), "short"]))),
    ];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    // This leaves 32 MiB for callers. Rows hold twice their size: 8 MB while they are read, and 48 MB as an answer.
    let memory = ByteSize::mib(1757);
    let mut config =
        QueryConfig { cores: 1, memory, audit: Some(audit.clone()), ..config(&[("t", &table)]) };
    config.tables.get_mut("t").unwrap().key = Some("id".into());
    let (_node, client) = serve_with(config).await;
    let requests = stream::iter([get(&["1"]), get(&["2"])]);
    let answers = client.get_stream(requests, RowFormat::Json).await.unwrap();
    let answers: Vec<_> = answers.collect().await;
    assert_eq!(answers[0].as_ref().unwrap_err().reason, Reason::Overloaded);
    assert!(answers[1].is_ok());
    let mut lines = Vec::new();
    for _ in 0..500 {
        let text = std::fs::read_to_string(&audit).unwrap();
        lines = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap()).collect();
        if lines.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut counted: Vec<_> =
        lines.iter().map(|it| (it["rows"].as_u64(), it["bytes"].as_u64() > Some(0))).collect();
    counted.sort_unstable();
    assert_eq!(counted, [(Some(0), false), (Some(1), true)], "{lines:?}");
}
