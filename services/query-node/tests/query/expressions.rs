//! Tests columns that are computed by SQL expressions, by gRPC. The oracles are plain computations over the same rows,
//! and the answers of plain HTTP.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use client::query::{NamedExpression, OrderBy, SearchRequest};
use serde_json::{Map, Value, json};
use wire::{MESSAGE_BYTES_MAX, Reason};

use crate::http::post;
use crate::node::{addresses, ids, names, near, numbers, serve, served, words};
use crate::table::{TestTable, live, vector};

fn expressions(all: &[(&str, &str)]) -> Vec<NamedExpression> {
    let expression = |(name, sql): &(&str, &str)| NamedExpression {
        name: (*name).to_owned(),
        sql: (*sql).to_owned(),
    };
    all.iter().map(expression).collect()
}

/// Returns the same expressions as a body of plain HTTP has them.
fn aliases(all: &[(&str, &str)]) -> Value {
    all.iter().map(|(name, sql)| ((*name).to_owned(), json!(sql))).collect::<Map<_, _>>().into()
}

/// Checks that each column of `one` is in `other` too, with the same values.
fn same_columns(one: &RecordBatch, other: &RecordBatch) {
    for (column, field) in one.columns().iter().zip(one.schema_ref().fields()) {
        assert_eq!(Some(column), other.column_by_name(field.name()), "{}", field.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn computed_columns_are_those_of_plain_http() {
    let (_table, node, client) = served().await;
    let asked =
        [("twice", "id * 2"), ("Words", "upper(text)"), ("far", "_distance + 1"), ("id", "`id`")];
    let search = SearchRequest { expressions: expressions(&asked), ..near(vector(1), 7) };
    let found = client.search(search.clone()).await.unwrap().rows;
    assert_eq!(names(&found), ["twice", "Words", "far", "id", "_rowaddr", "_distance"]);
    let twice = found["twice"].as_primitive::<Int64Type>().values();
    assert!(twice.iter().zip(ids(&found)).all(|(twice, id)| *twice == id * 2));
    let far = found["far"].as_primitive::<Float32Type>().values();
    assert!(far.iter().zip(numbers(&found, "_distance")).all(|(far, near)| *far == near + 1.0));
    let body = json!({"vector": vector(1), "k": 7, "columns": aliases(&asked)});
    let by_http = post(&node, "/v1/table/t/query/", body).await.rows();
    same_columns(&by_http, &found);
    assert_eq!(
        addresses(&client.search(near(vector(1), 7)).await.unwrap().rows),
        addresses(&found)
    );

    // Named columns come first, also with an order, by columns that are not returned.
    let ordered = SearchRequest {
        columns: vec!["key".into()],
        expressions: expressions(&[("odd", "id % 2 = 1")]),
        order_by: vec![OrderBy { column: "id".into(), ..Default::default() }],
        ..search
    };
    let ordered = client.search(ordered).await.unwrap().rows;
    assert_eq!(names(&ordered), ["key", "odd", "_rowaddr", "_distance"]);
    let mut sorted = ids(&found);
    sorted.sort_unstable();
    let odd: Vec<_> = ordered["odd"].as_boolean().iter().flatten().collect();
    assert_eq!(odd, sorted.iter().map(|id| id % 2 == 1).collect::<Vec<_>>());

    let asked = [("better", "_score * 2")];
    let search = SearchRequest { expressions: expressions(&asked), ..words("oak", 5) };
    let found = client.search(search).await.unwrap().rows;
    let better = found["better"].as_primitive::<Float32Type>().values();
    assert!(
        better.iter().zip(numbers(&found, "_score")).all(|(twice, score)| *twice == score * 2.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_filter_have_computed_columns_addresses_and_positions() {
    let (_table, node, client) = served().await;
    let asked = [("next", "id + 1"), ("at", "_rowoffset"), ("place", "_rowaddr"), ("seven", "7")];
    let search = SearchRequest {
        table: "t".into(),
        filter: "id > 40".into(),
        k: 50,
        columns: vec!["id".into(), "_rowoffset".into()],
        expressions: expressions(&asked),
        ..Default::default()
    };
    let found = client.search(search).await.unwrap().rows;
    let expected =
        ["id", "_rowoffset", "next", "at", "place", "seven", "_rowaddr"].map(String::from);
    assert_eq!(names(&found), expected);
    let wanted: Vec<(u64, i64)> = (0..).zip(live()).filter(|(_, id)| *id > 40).take(50).collect();
    assert_eq!(ids(&found), wanted.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    let offsets: Vec<u64> = wanted.iter().map(|(offset, _)| *offset).collect();
    for name in ["_rowoffset", "at"] {
        assert_eq!(found[name].as_primitive::<UInt64Type>().values(), &offsets[..], "{name}");
    }
    assert_eq!(&found["place"], &found["_rowaddr"]);
    let body = json!({"k": 50, "filter": "id > 40", "columns": aliases(&asked)});
    same_columns(&post(&node, "/v1/table/t/query/", body).await.rows(), &found);
}

/// The columns have 1.7 GB. The node must not compute them all to find that out.
#[tokio::test(flavor = "multi_thread")]
async fn computing_ends_once_the_columns_do_not_fit_a_message() {
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..1000))),
        (
            "text",
            Arc::new(StringArray::from_iter_values((0..1000).map(|id| format!("{id:04000}")))),
        ),
    ];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let (node, client) = serve(&[("t", &table)]).await;
    let long = ["text"; 17].join(" || ");
    let asked: Vec<String> = (0..25).map(|at| format!("c{at}")).collect();
    let asked: Vec<(&str, &str)> = asked.iter().map(|name| (name.as_str(), &*long)).collect();
    let search = |expressions| SearchRequest {
        table: "t".into(),
        filter: "id >= 0".into(),
        k: 1000,
        expressions,
        ..Default::default()
    };
    let fault = client.search(search(expressions(&asked))).await.unwrap_err();
    assert_eq!(fault.reason, Reason::TooLarge, "{fault}");
    let bytes: usize = fault.message.split(' ').find_map(|word| word.parse().ok()).unwrap();
    let one_part = 32 << 20;
    assert!((MESSAGE_BYTES_MAX..MESSAGE_BYTES_MAX + one_part).contains(&bytes), "{fault}");
    // A piece of a longer answer has 256 of these rows.
    let body = json!({"k": 1000, "columns": aliases(&asked)});
    assert_eq!(post(&node, "/v1/table/t/query/", body).await.status, 413);

    // Rows of 4 KB are computed a few hundred at once.
    let rows = client.search(search(expressions(&asked[..1]))).await.unwrap().rows;
    let computed = rows["c0"].as_string::<i32>();
    assert!((0..1000).all(|id| computed.value(id) == format!("{id:04000}").repeat(17)));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_expressions_are_refused_with_a_sentence() {
    let (_table, _node, client) = served().await;
    let many: Vec<(String, String)> = (0..101).map(|at| (format!("c{at}"), "id".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let long = format!("text = '{}'", "x".repeat(16 << 10));
    for (asked, reason, said) in [
        (&[("a", "idd + 1")][..], Reason::ColumnNotFound, "idd"),
        (&[("a", "id +")], Reason::BadFilter, "id +"),
        (&[("a", "")], Reason::BadFilter, ""),
        (&[("a", "repeat(text, 1000000)")], Reason::BadFilter, "repeat"),
        (&[("a", "id"), ("a", "key")], Reason::BadArgument, "`expressions` has `a`"),
        (&[("key", "id")], Reason::BadArgument, "`expressions` has `key`"),
        (&[("_rowaddr", "id")], Reason::BadArgument, "`expressions` has `_rowaddr`"),
        (&[("_distance", "id")], Reason::BadArgument, "`expressions` has `_distance`"),
        (&[("a", "_score + 1")], Reason::ColumnNotFound, "_score"),
        (&many, Reason::BadArgument, "`expressions` has 101 expressions; give at most 100"),
        (&[("a", long.as_str())], Reason::BadArgument, "16384 are the most"),
    ] {
        let search = SearchRequest {
            columns: vec!["key".into()],
            expressions: expressions(asked),
            ..near(vector(1), 2)
        };
        let fault = client.search(search).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{asked:?}: {fault}");
        assert!(fault.message.contains(said), "{fault}");
    }
}
