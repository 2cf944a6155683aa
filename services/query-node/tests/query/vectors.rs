//! Tests requests with several query vectors, by gRPC. The oracles are a request for each vector, and the answers of
//! plain HTTP.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_select::concat::concat_batches;
use client::query::{By, NamedExpression, OrderBy, SearchRequest, Text, Vector, Vectors};
use lake::{IndexRequest, Metric, VectorIndex};
use serde_json::json;
use wire::Reason;

use crate::http::post;
use crate::node::{by, ids, names, near, numbers, serve, served};
use crate::table::{DIMENSION, TestTable, vector};

fn vectors(vectors: impl IntoIterator<Item = Vec<f32>>) -> By {
    let vectors = vectors.into_iter().map(|values| Vector { values }).collect();
    By::Vectors(Vectors { vectors })
}

fn positions(rows: &RecordBatch) -> Vec<i32> {
    rows["query_index"].as_primitive::<Int32Type>().values().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_vector_is_a_search_of_its_own() {
    let (_table, node, client) = served().await;
    // More vectors than run at the same time, one of them twice.
    let asked: Vec<Vec<f32>> = [1, 2, 30, 4, 5, 6, 30].map(vector).into();
    let order = OrderBy { column: "id".into(), ..Default::default() };
    let twice = NamedExpression { name: "twice".into(), sql: "id * 2".into() };
    for shaped in [
        SearchRequest::default(),
        SearchRequest { columns: vec!["key".into(), "id".into()], ..Default::default() },
        SearchRequest { offset: 2, order_by: vec![order], ..Default::default() },
        SearchRequest { expressions: vec![twice], ..Default::default() },
        SearchRequest { filter: "id < 100".into(), ..Default::default() },
    ] {
        let shaped = SearchRequest { table: "t".into(), k: 3, ..shaped };
        let all = SearchRequest { by: Some(vectors(asked.clone())), ..shaped.clone() };
        let found = client.search(all).await.unwrap();
        assert!(!found.exhaustive);
        assert_eq!(names(&found.rows)[0], "query_index");
        let expected = asked.iter().map(|values| {
            let by = Some(By::Vector(Vector { values: values.clone() }));
            client.search(SearchRequest { by, ..shaped.clone() })
        });
        let expected = futures::future::try_join_all(expected).await.unwrap();
        let counts = expected.iter().map(|it| it.rows.num_rows());
        let at: Vec<i32> =
            (0..).zip(counts).flat_map(|(at, count)| std::iter::repeat_n(at, count)).collect();
        assert_eq!(positions(&found.rows), at);
        let schema = expected[0].rows.schema();
        let expected = concat_batches(&schema, expected.iter().map(|found| &found.rows)).unwrap();
        let rest: Vec<usize> = (1..found.rows.num_columns()).collect();
        let rest = found.rows.project(&rest).unwrap();
        for (column, field) in expected.columns().iter().zip(schema.fields()) {
            let name = field.name();
            // Dictionaries of equal rows may number their values differently.
            let plain = |column: &ArrayRef| match field.data_type() {
                arrow_schema::DataType::Dictionary(_, value) => {
                    arrow_cast::cast(column, value).unwrap()
                }
                _ => Arc::clone(column),
            };
            assert_eq!(&plain(column), &plain(&rest[name.as_str()]), "{name}");
        }
    }
    let body = json!({"vector": asked, "k": 3, "columns": ["id", "_distance"]});
    let by_http = post(&node, "/v1/table/t/query/", body).await.rows();
    let found = client.search(by(vectors(asked), 3)).await.unwrap().rows;
    for name in ["query_index", "id", "_distance"] {
        assert_eq!(&by_http[name], &found[name], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unindexed_metric_is_exhaustive_and_stages_are_those_of_all_searches() {
    let (_table, _node, client) = served().await;
    let asked = SearchRequest {
        metric: "cosine".into(),
        explain: true,
        ..by(vectors([vector(1), vector(2)]), 2)
    };
    let found = client.search(asked).await.unwrap();
    assert!(found.exhaustive);
    let stages = found.stages.iter().filter(|stage| stage.name == "search").count();
    assert_eq!(stages, 2, "{:?}", found.stages);
    // The rows of each vector are assembled, then given the columns of the answer, then written.
    let names: Vec<_> = found.stages.iter().map(|stage| stage.name.as_str()).collect();
    let ends = names.split_inclusive(|name| *name == "reply").collect::<Vec<_>>();
    let [first, second, ["reply"]] = ends[..] else { panic!("{names:?}") };
    assert!(first.ends_with(&["assemble", "assemble", "reply"]), "{names:?}");
    assert!(second.ends_with(&["assemble", "assemble", "reply"]), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_explains_the_form_of_an_answer_and_its_encoding() {
    let (_table, node, _client) = served().await;
    let one = ["assemble", "assemble", "reply"];
    let several = ["assemble", "assemble", "reply", "reply"];
    for (vectors, ends) in
        [(json!(vector(1)), &one[..]), (json!([vector(1), vector(2)]), &several[..])]
    {
        let query = json!({"vector": vectors, "k": 2, "columns": {"twice": "id * 2"}});
        let body = json!({ "query": query });
        let explained = post(&node, "/v1/table/t/explain_plan/", body).await.json();
        let lines = explained.as_str().unwrap().lines();
        let names: Vec<_> = lines.filter_map(|line| line.split(' ').next()).collect();
        assert!(names.ends_with(ends), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_column_of_positions_is_the_only_one_of_its_name() {
    let (_table, node, client) = served().await;
    let named = |by| {
        let expressions = vec![NamedExpression { name: "query_index".into(), sql: "id".into() }];
        SearchRequest { table: "t".into(), k: 2, by: Some(by), expressions, ..Default::default() }
    };
    let one = named(By::Vector(Vector { values: vector(1) }));
    assert_eq!(names(&client.search(one).await.unwrap().rows)[0], "query_index");
    let said = "`vectors` add a column `query_index` to the answer, which another column is called";
    let fault = client.search(named(vectors([vector(1), vector(2)]))).await.unwrap_err();
    assert_eq!(fault.reason, Reason::BadArgument, "{fault}");
    assert!(fault.message.contains(said), "{fault}");
    let columns = json!({"query_index": "id"});
    let body = json!({"vector": [vector(1), vector(2)], "k": 2, "columns": columns});
    let (status, _, by_http) = post(&node, "/v1/table/t/query/", body).await.error();
    assert!(status == 400 && by_http.contains(said), "{status}: {by_http}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_vectors_are_refused_with_a_sentence() {
    let (_table, _node, client) = served().await;
    let words = Text { words: "oak".into(), ..Default::default() };
    let two = || by(vectors([vector(1), vector(2)]), 2);
    for (request, reason, said) in [
        (by(vectors([]), 2), Reason::BadArgument, "`vectors` is empty; give at least one"),
        (
            by(vectors((0..101).map(vector)), 2),
            Reason::BadArgument,
            "`vectors` has 101 vectors; give at most 100",
        ),
        (by(vectors([vector(1), vec![1.0; 3]]), 2), Reason::BadVector, "vector 1 has 3 dimensions"),
        (
            by(vectors([vector(1), vector(2), vec![f32::NAN; vector(1).len()]]), 2),
            Reason::BadVector,
            "vector 2 has NaN at position 0",
        ),
        (
            SearchRequest { fused_with: Some(words), ..two() },
            Reason::BadArgument,
            "`fused_with` is set beside `vectors`",
        ),
        (SearchRequest { key_column: "id".into(), ..two() }, Reason::BadArgument, "`key_column`"),
        (
            SearchRequest { text_weight: Some(1.0), ..two() },
            Reason::BadArgument,
            "`text_weight` applies only",
        ),
        (SearchRequest { k: 0, ..two() }, Reason::BadArgument, "`k` is 0"),
        (SearchRequest { k: u32::MAX, ..two() }, Reason::BadArgument, "`k` is 4294967295"),
    ] {
        let fault = client.search(request).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
        assert!(fault.message.contains(said), "{fault}");
    }
}

/// Serves a table with lists of vectors of two dimensions: row `id` has the vectors (id, 0) and (0, id).
#[tokio::test(flavor = "multi_thread")]
async fn a_vector_for_lists_of_vectors_may_be_several() {
    let mut lists = ListBuilder::new(FixedSizeListBuilder::new(Float32Builder::new(), 2));
    for id in 0..40 {
        for pair in [[id as f32, 0.0], [0.0, id as f32]] {
            lists.values().values().append_slice(&pair);
            lists.values().append(true);
        }
        lists.append(true);
    }
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..40))),
        ("vectors", Arc::new(lists.finish())),
    ];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let (node, client) = serve(&[("t", &table)]).await;
    let asked = [vec![7.0, 0.0, 0.0, 7.0], vec![21.0, 0.0], vec![0.0, 30.0, 30.0, 0.0]];
    let found = client.search(by(vectors(asked.clone()), 1)).await.unwrap().rows;
    assert_eq!((positions(&found), ids(&found)), (vec![0, 1, 2], vec![7, 21, 30]));
    for (values, id) in asked.clone().into_iter().zip([7, 21, 30]) {
        assert_eq!(ids(&client.search(near(values, 1)).await.unwrap().rows), [id]);
    }
    // A list of single vectors is one query, as for LanceDB, by gRPC and by plain HTTP.
    let pair = [vec![7.0, 0.0], vec![0.0, 7.0]];
    let one = client.search(near(pair.concat(), 3)).await.unwrap().rows;
    let found = client.search(by(vectors(pair.clone()), 3)).await.unwrap().rows;
    assert_eq!((ids(&found), names(&found)), (ids(&one), names(&one)));
    assert_eq!(numbers(&found, "_distance"), numbers(&one, "_distance"));
    let body = json!({ "vector": pair, "k": 3, "columns": ["id"] });
    let answer = post(&node, "/v1/table/t/query/", body).await;
    assert_eq!(ids(&answer.rows()), ids(&one));
    let body = json!({ "vector": asked, "k": 1, "columns": ["id"] });
    let answer = post(&node, "/v1/table/t/query/", body).await;
    assert_eq!(ids(&answer.rows()), [7, 21, 30]);
    // Three vectors of fifty pairs each are 150 vectors.
    let many = vec![vec![1.0; 100]; 3];
    let fault = client.search(by(vectors(many), 1)).await.unwrap_err();
    assert!(fault.message.contains("`vectors` has 150 vectors in all"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vector_is_searched_in_a_column_of_its_length_before_lists_of_shorter_ones() {
    const SHORT: usize = DIMENSION / 5;
    let mut whole = FixedSizeListBuilder::new(Float32Builder::new(), DIMENSION as i32);
    let short = FixedSizeListBuilder::new(Float32Builder::new(), SHORT as i32);
    let mut tokens = ListBuilder::new(short);
    for id in 0..40 {
        whole.values().append_slice(&vector(id));
        whole.append(true);
        // In the other column, these are the numbers of another row.
        for token in vector(39 - id).chunks(SHORT) {
            tokens.values().values().append_slice(token);
            tokens.values().append(true);
        }
        tokens.append(true);
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..40))),
        ("vector", Arc::new(whole.finish())),
        ("tokens", Arc::new(tokens.finish())),
    ];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let (node, _client) = serve(&[("t", &table)]).await;
    let found = async |column: Option<&str>| {
        let body =
            json!({ "vector": vector(7), "k": 3, "columns": ["id"], "vector_column": column });
        post(&node, "/v1/table/t/query/", body).await.ids()
    };
    let nearest = found(Some("vector")).await;
    assert_eq!(nearest[0], 7);
    assert_eq!(found(None).await, nearest);
    let tokens = VectorIndex {
        column: "tokens".into(),
        metric: Metric::Cosine,
        partitions: Some(1),
        ..Default::default()
    };
    table.index(IndexRequest::Vector(tokens)).await;
    node.refresh().await;
    assert_ne!(found(Some("tokens")).await, nearest);
    assert_eq!(found(None).await, nearest);
}
