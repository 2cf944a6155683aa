//! Filters that have no value for a row: the caller's mistake, in every kind of search.

use client::query::{By, CountRequest, SearchRequest, Text};
use lake::Metric;
use serde_json::json;
use wire::Reason;

use crate::http::post;
use crate::node::{near, serve, words};
use crate::table::{TestTable, vector};

const FILTERS: [&str; 10] = [
    "id / 0 = 1",
    "id % 0 = 1",
    "100 / (id - 31) > 1",
    "cast(key as int) = 1",
    "make_date(cast(id as int), 99, 99) IS NULL",
    "to_date(key) IS NULL",
    "100 / _rowid > 1",
    "key = 'row-5' OR 100 / _rowid > 1",
    "key = 'row-31' AND 100 / (id - 31) > 1",
    "date_part('foo', to_timestamp(id)) = 1",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_without_a_value_is_the_callers_mistake() {
    for is_indexed in [false, true] {
        let table = match is_indexed {
            false => TestTable::plain().await,
            true => TestTable::indexed(Default::default(), Metric::L2).await,
        };
        let (node, client) = serve(&[("t", &table)]).await;
        for filter in FILTERS {
            let context = format!("{filter}, indexed: {is_indexed}");
            let filtered =
                |request: SearchRequest| SearchRequest { filter: filter.into(), ..request };
            let near = near(vector(31), 9);
            let mut searches = vec![
                SearchRequest { by: None, ..near.clone() },
                SearchRequest { exact: true, ..near.clone() },
                SearchRequest { metric: "cosine".into(), ..near.clone() },
                SearchRequest { filter_after: true, ..near.clone() },
                near.clone(),
            ];
            if is_indexed {
                let oak = Text { words: "oak".into(), ..Default::default() };
                searches.push(words("oak", 9));
                searches.push(SearchRequest { fused_with: Some(oak), ..near });
            }
            for request in searches.into_iter().map(filtered) {
                let by = request.by.as_ref().map(|by| matches!(by, By::Vector(_)));
                let fault = client.search(request).await.unwrap_err();
                assert_eq!(fault.reason, Reason::BadFilter, "{context}, {by:?}: {fault}");
                assert!(!fault.message.contains("Lance"), "{context}: {fault}");
            }
            let count =
                CountRequest { table: "t".into(), filter: filter.into(), ..Default::default() };
            let fault = client.count(count).await.unwrap_err();
            assert_eq!(fault.reason, Reason::BadFilter, "{context}: {fault}");
            for (call, body) in [
                ("query", json!({ "vector": [], "k": 9, "filter": filter })),
                (
                    "query",
                    json!({ "vector": [], "k": 9, "filter": filter, "order_by": [{ "column_name": "id" }] }),
                ),
                ("query", json!({ "vector": vector(31), "k": 9, "filter": filter })),
                ("count_rows", json!({ "predicate": filter })),
            ] {
                let answer = post(&node, &format!("/v1/table/t/{call}/"), body).await;
                let said = String::from_utf8_lossy(&answer.body);
                assert_eq!(answer.status.as_u16(), 400, "{call}, {context}: {said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sentence_says_what_failed() {
    let table = TestTable::plain().await;
    let (_node, client) = serve(&[("t", &table)]).await;
    for (filter, said) in [
        ("id / 0 = 1", "bad filter `id / 0 = 1`: it has no value for a row: Divide by zero error"),
        (
            "cast(key as int) = 1",
            "bad filter `cast(key as int) = 1`: it has no value for a row: Cast error: Cannot cast string 'row-0' to \
             value of Int32 type",
        ),
    ] {
        let count = CountRequest { table: "t".into(), filter: filter.into(), ..Default::default() };
        let fault = client.count(count).await.unwrap_err();
        assert_eq!(fault.message, said);
    }
}
