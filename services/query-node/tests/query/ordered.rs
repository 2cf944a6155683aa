//! Tests the order of rows by columns, and nested columns, by gRPC. The oracles are plain computations over the same
//! rows, and the answers of plain HTTP.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use client::query::{OrderBy, QueryClient, SearchRequest, Text};
use query_node::QueryNode;
use serde_json::json;
use wire::Reason;

use crate::http::post;
use crate::node::{addresses, ids, names, near, numbers, serve, served, words};
use crate::table::{TestTable, key, live, vector};

fn by(column: &str) -> OrderBy {
    OrderBy { column: column.into(), ..Default::default() }
}

fn largest_first(column: &str) -> OrderBy {
    OrderBy { descending: true, ..by(column) }
}

#[tokio::test(flavor = "multi_thread")]
async fn found_rows_are_put_in_order_before_some_are_left_out() {
    let (_table, _node, client) = served().await;
    let hybrid = SearchRequest {
        fused_with: Some(Text { words: "oak".into(), ..Default::default() }),
        ..near(vector(1), 9)
    };
    for (search, measure) in [
        (near(vector(1), 9), "_distance"),
        (words("oak", 9), "_score"),
        (hybrid, "_relevance_score"),
    ] {
        let best = client.search(search.clone()).await.unwrap().rows;
        let mut wanted: Vec<i64> = ids(&best);
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        let asked = SearchRequest {
            k: 6,
            offset: 3,
            order_by: vec![largest_first("id")],
            ..search.clone()
        };
        let found = client.search(asked.clone()).await.unwrap().rows;
        assert_eq!(names(&found), names(&best), "{measure}");
        assert_eq!(ids(&found), wanted[3..], "{measure}");
        for (row, id) in ids(&found).into_iter().enumerate() {
            let at = ids(&best).iter().position(|best| *best == id).unwrap();
            assert_eq!(addresses(&found)[row], addresses(&best)[at]);
            assert_eq!(numbers(&found, measure)[row], numbers(&best, measure)[at]);
        }
        // The answer need not have the columns that rows are ordered by.
        let only = SearchRequest { columns: vec!["key".into()], ..asked };
        let only = client.search(only).await.unwrap().rows;
        assert_eq!(names(&only), ["key", "_rowaddr", measure]);
        let keys: Vec<_> = only["key"].as_string::<i32>().iter().flatten().collect();
        assert_eq!(keys, wanted[3..].iter().map(|id| key(*id)).collect::<Vec<_>>());
        // Ties stay best first, and rows may be ordered by the measure.
        let tied = SearchRequest { order_by: vec![by("tag")], ..search.clone() };
        let tied = client.search(tied).await.unwrap().rows;
        let rank = |id: &i64| (id % 3, ids(&best).iter().position(|best| best == id));
        assert!(ids(&tied).is_sorted_by_key(rank), "{measure}");
        let worst =
            SearchRequest { order_by: vec![largest_first("_distance")], ..near(vector(1), 9) };
        let worst = client.search(worst).await.unwrap().rows;
        assert!(worst["_distance"].as_primitive::<Float32Type>().values().iter().rev().is_sorted());
    }
    let filter = SearchRequest {
        table: "t".into(),
        filter: "id < 2000".into(),
        k: 3,
        offset: 1,
        columns: vec!["id".into()],
        order_by: vec![by("tag"), largest_first("id")],
        ..Default::default()
    };
    let mut wanted: Vec<i64> = live().filter(|id| *id < 2000).collect();
    wanted.sort_by_key(|id| (id % 3, -id));
    assert_eq!(ids(&client.search(filter).await.unwrap().rows), wanted[1..4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_none_is_refused_with_a_sentence() {
    let (_table, _node, client) = served().await;
    let many: Vec<OrderBy> = (0..17).map(|_| by("id")).collect();
    for (order_by, reason, said) in [
        (vec![by("idd")], Reason::ColumnNotFound, "idd"),
        (many, Reason::BadArgument, "`order_by` has 17 columns; order by 16 at most"),
        (vec![by("_rowoffset")], Reason::BadArgument, "`order_by` names `_rowoffset`"),
    ] {
        let near = SearchRequest { order_by: order_by.clone(), ..near(vector(1), 2) };
        let fault = client.search(near).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
        assert!(fault.message.contains(said), "{fault}");
    }
    let too_many = SearchRequest { offset: 9_995, order_by: vec![by("id")], ..near(vector(1), 6) };
    let fault = client.search(too_many).await.unwrap_err();
    assert!(fault.message.starts_with("`offset` is 9995, and k is 6"), "{fault}");
    let none = SearchRequest { offset: 5, order_by: vec![by("id")], ..near(vector(1), 0) };
    assert!(client.search(none).await.unwrap_err().message.starts_with("`k` is 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_put_in_order_only_as_many_as_their_memory_allows() {
    let rows = 0..10_001i64;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
    let texts = rows.map(|id| format!("t{:05}", 10_000 - id));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let rows = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let (table, emptied) = (TestTable::of(rows.clone()).await, TestTable::of(rows).await);
    emptied.delete("id >= 0").await;
    let (node, _client) = serve(&[("t", &table), ("emptied", &emptied)]).await;
    let ordered = async |column: &str, more: serde_json::Value| {
        let by = json!([{"column_name": column, "ascending": true, "nulls_first": null}]);
        let mut body = json!({"vector": [], "columns": ["id"], "order_by": by});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post(&node, "/v1/table/t/query/", body).await
    };
    // Without a limit, LanceDB's clients send the largest number. Numbers have a fixed width, so more of them fit.
    let max = i64::MAX;
    assert_eq!(ordered("id", json!({"k": max})).await.ids(), (0..10_001).collect::<Vec<_>>());
    for more in [
        json!({"k": max}),
        json!({"k": max, "filter": "id >= 0"}),
        json!({"k": 5, "offset": 9_996}),
        json!({}),
    ] {
        let (status, _, said) = ordered("text", more.clone()).await.error();
        assert_eq!(status, 400, "{more}: {said}");
        assert!(said.contains("at most 10000 rows are put in this order"), "{more}: {said}");
    }
    let last = ordered("text", json!({"k": 4, "offset": 9_996})).await.ids();
    assert_eq!(last, [4, 3, 2, 1]);
    // Only the rows that pass the filter count.
    let few = ordered("text", json!({"k": max, "filter": "id < 3"})).await.ids();
    assert_eq!(few, [2, 1, 0]);
    for more in [json!({"k": max, "filter": "id < 0"}), json!({"k": 0})] {
        assert_eq!(ordered("text", more.clone()).await.ids(), [0; 0], "{more}");
    }
    let by = json!([{"column_name": "id"}]);
    let body = json!({"k": 0, "filter": "idd < 0", "order_by": by});
    let (status, _, said) = post(&node, "/v1/table/t/query/", body).await.error();
    assert!(status == 400 && said.contains("no column \"idd\""), "{said}");
    let body = json!({"columns": ["id"], "order_by": by});
    assert_eq!(post(&node, "/v1/table/emptied/query/", body).await.ids(), [0; 0]);
}

/// Serves a table with a struct: `place.x` is a third of the id and null for every fifth row, `place.of.name` is `n`
/// and the id.
async fn places() -> (TestTable, QueryNode, QueryClient) {
    let rows = 0..60i64;
    let name = Field::new("name", DataType::Utf8, true);
    let of = Fields::from(vec![name]);
    let inner = Fields::from(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("of", DataType::Struct(of.clone()), true),
    ]);
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values(rows.clone().map(|id| format!("n{id}"))));
    let thirds = rows.clone().map(|id| (id % 5 != 0).then_some(id / 3));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(thirds)),
        Arc::new(StructArray::new(of, vec![names], None)),
    ];
    let place: ArrayRef = Arc::new(StructArray::new(inner, columns, None));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    let rows =
        RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("place", place, true)]);
    let table = TestTable::of(rows.unwrap()).await;
    let (node, client) = serve(&[("t", &table)]).await;
    (table, node, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_structs_are_columns_like_others() {
    let (_table, node, client) = places().await;
    let columns = ["place.of.name", "id", "place.`x`", "place"].map(String::from);
    let request = SearchRequest {
        table: "t".into(),
        filter: "place.x > 3".into(),
        k: 7,
        columns: columns.to_vec(),
        order_by: vec![largest_first("place.x"), by("id")],
        ..Default::default()
    };
    let found = client.search(request.clone()).await.unwrap().rows;
    assert_eq!(names(&found), ["place.of.name", "id", "place.`x`", "place", "_rowaddr"]);
    let mut wanted: Vec<i64> = (0..60).filter(|id| id % 5 != 0 && id / 3 > 3).collect();
    wanted.sort_by_key(|id| (-(id / 3), *id));
    assert_eq!(ids(&found), wanted[..7]);
    let body = json!({
        "vector": [],
        "k": 7,
        "filter": request.filter,
        "columns": columns,
        "order_by": [
            {"column_name": "place.x", "ascending": false},
            {"column_name": "id"},
        ],
    });
    let by_http = post(&node, "/v1/table/t/query/", body).await;
    let by_http = by_http.rows();
    for (at, column) in by_http.columns().iter().enumerate() {
        assert_eq!(column, found.column(at), "{}", by_http.schema_ref().field(at));
    }
    let xs = found["place.`x`"].as_primitive::<Int64Type>();
    assert!(xs.values().iter().zip(&wanted).all(|(x, id)| *x == id / 3));

    let nulls = |nulls_first| SearchRequest {
        filter: "id < 10".into(),
        k: 3,
        order_by: vec![OrderBy { nulls_first, ..by("place.x") }, by("id")],
        ..request.clone()
    };
    assert_eq!(ids(&client.search(nulls(true)).await.unwrap().rows), [0, 5, 1]);
    assert_eq!(ids(&client.search(nulls(false)).await.unwrap().rows), [1, 2, 3]);
    for (columns, reason, said) in [
        (vec!["place.y"], Reason::ColumnNotFound, "place.y"),
        (vec!["place.x", "place.x"], Reason::BadArgument, "twice"),
    ] {
        let columns = columns.into_iter().map(String::from).collect();
        let fault = client.search(SearchRequest { columns, ..request.clone() }).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
        assert!(fault.message.contains(said), "{fault}");
    }
}
